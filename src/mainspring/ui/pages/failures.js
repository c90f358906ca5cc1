/** Failures: the runs that failed for good, grouped by their error. */
import { html } from "../html.js";
import { readWords, Search, usePages } from "../parts/lists.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { When } from "../parts/when.js";
import { place, to } from "../router.js";
import { may } from "../state/me.js";
import { askForRuns, runHref } from "./runs.js";

/** @param {any[]} runs */
function grouped(runs) {
  const groups = new Map();
  for (const run of runs) {
    const error = run.error ?? {};
    const name = `${error.type ?? "error"}: ${(error.message ?? run.reason ?? "").replace(/\d+/g, "*")}`;
    groups.set(name, [...(groups.get(name) ?? []), run]);
  }
  return [...groups].sort((one, other) => other[1].length - one[1].length);
}

/** @param {{ name: string, runs: any[], then: () => void }} given */
function Group({ name, runs, then }) {
  const jobs = new Set(runs.map((run) => run.job ?? run.task));
  const ids = new Set(runs.map((run) => run.run_id));
  return html`<section class="panel"><header><h2>${name}</h2>
      ${may("runs:control") && html`<button onClick=${() => askForRuns(ids, "retry", then)}>Retry ${ids.size}</button>`}</header>
    <div class="body stack">
      <p class="muted">${runs.length} runs · ${jobs.size} ${jobs.size === 1 ? "job" : "jobs"} (${[...jobs].slice(0, 4).join(", ")}) · first <${When} at=${runs[runs.length - 1].finished_at} plain />, last <${When} at=${runs[0].finished_at} plain /></p>
      <p class="row">${runs.slice(0, 8).map((run) => html`<a class="mono" href=${runHref(run)}>${run.run_id.slice(-8)}</a>`)}${runs.length > 8 ? "…" : ""}</p></div></section>`;
}

export default function Failures() {
  const words = place.value.query.get("q") ?? "";
  const { found } = readWords(words, ["job", "task", "tag"]);
  const dead = usePages("/v1/dead-letters", { limit: 200, ...found }, (news) => news.more || news.runs.size > 0);
  return html`<${Head} title="Failures" />
    <div class="toolbar"><${Search} value=${words} label="filter failures" placeholder="job:etl task:encode tag:nightly" /></div>
    <${Loaded} of=${dead}>${() => dead.rows.length
      ? html`<div class="stack">${grouped(dead.rows).map(([name, runs]) => html`<${Group} name=${name} runs=${runs} then=${dead.reload} />`)}${dead.more && html`<button onClick=${dead.more}>Show more</button>`}</div>`
      : html`<${Empty}>${words ? html`Nothing matches. <a href=${to("/failures")}>Clear the filter</a>` : "No run has failed for good."}</${Empty}>`}</${Loaded}>`;
}
