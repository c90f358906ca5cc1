/** Overview: is it well, what needs attention, what runs, what comes next. */
import { html, useState } from "../html.js";
import { lookOf } from "../draw/states.js";
import { Badge, Meter } from "../parts/badge.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { When } from "../parts/when.js";
import { to } from "../router.js";
import { useResource } from "../state/resource.js";
import { jobHref } from "./jobs.js";
import { runHref } from "./runs.js";

const FEW = 8;
const MOST = 10_000;

/** @param {{ title: string, href: string, figure: any, children?: any }} given */
function Card({ title, href, figure, children }) {
  return html`<section class="panel"><header><h2>${title}</h2><a class="muted" href=${href}>open</a></header><div class="body"><div class="figure">${figure}</div><div class="muted">${children}</div></div></section>`;
}

/** Counts stop at the server's bound.
 * @param {number} count */
function written(count) {
  return `${count.toLocaleString("en-GB")}${count >= MOST ? "+" : ""}`;
}

/** @param {{ all: any }} given */
function Cards({ all }) {
  const { leader, workers, counts } = all;
  const outcomes = [["succeeded", counts.succeeded], ["failed", counts.failed], ["missed", counts.missed]];
  return html`<div class="cards">
    <${Card} title="Leader" href=${to("/events")} figure=${leader ? leader.owner : html`<${Badge} state="failed" word="none" />`}>
      ${leader ? html`term ${leader.term}, since <${When} at=${leader.since} plain />` : "No node plans firings."}${all.degradation === "normal" ? "" : ` ${all.degradation}, pressure ${all.pressure}`}</${Card}>
    <${Card} title="Workers" href=${to("/workers")} figure=${`${workers.active} of ${workers.known}`}>
      <${Meter} used=${workers.running} of=${workers.slots} /> ${workers.running} of ${workers.slots} slots</${Card}>
    <${Card} title="Waiting" href=${to("/runs", { state: "pending" })} figure=${`${written(counts.due)} due`}>
      ${all.oldest_due && html`oldest <${When} at=${all.oldest_due} plain /> · `}${written(counts.blocked)} blocked · ${written(counts.later)} later</${Card}>
    <${Card} title="Last 24 hours" href=${to("/failures")} figure=${html`<span class="row">${outcomes.map(([state, count]) => html`<${Badge} state=${state} word=${written(count)} />`)}</span>`}>
      succeeded, failed, missed</${Card}>
  </div>`;
}

/** @param {any} cause */
function hrefOf(cause) {
  if (cause.state === "failed" && cause.run_id) return to("/failures", { q: cause.job ? `job:${cause.job}` : "" });
  if (cause.job) return to(`/jobs/${encodeURIComponent(cause.job)}`);
  if (cause.jobs) return to("/jobs", { q: "state:paused" });
  if (cause.queue) return to("/runs", { state: "pending", q: `queue:${cause.queue}` });
  return to("/workers");
}

/** @param {{ causes: any[] }} given */
function Attention({ causes }) {
  const [all, setAll] = useState(false);
  const shown = all ? causes : causes.slice(0, 2 * FEW);
  return html`<section class="panel"><header><h2>Needs attention</h2></header><div class="body">
    ${causes.length === 0
      ? html`<${Empty}>Nothing needs you.</${Empty}>`
      : html`<ul class="attention">${shown.map((cause) => html`<${Cause} cause=${cause} />`)}</ul>
        ${shown.length < causes.length && html`<button class="plain" onClick=${() => setAll(true)}>Show ${causes.length - shown.length} more</button>`}`}</div></section>`;
}

/** @param {{ cause: any }} given */
function Cause({ cause }) {
  const look = lookOf(cause.state);
  return html`<li><span class=${`glyph s-${look.tone}`} aria-hidden="true">${look.glyph}</span>
    <span><a href=${hrefOf(cause)}><strong>${cause.name}</strong></a> ${cause.text}${cause.remedy && html`<br /><span class="muted">${cause.remedy}</span>`}</span>
    <span class="muted"><${When} at=${cause.since} plain none="" /></span></li>`;
}

/** @param {{ all: any }} given */
function Now({ all }) {
  return html`<section class="panel"><header><h2>Running now</h2><a class="muted" href=${to("/runs", { state: "running" })}>all</a></header><div class="body">
      ${all.running.length === 0 ? html`<${Empty}>Nothing runs.</${Empty}>` : html`<ul class="lines">${all.running.slice(0, FEW).map((/** @type {any} */ run) => html`<li>
        <a href=${runHref(run)}>${run.job ?? run.task}</a><span class="muted">${run.progress !== null ? `${Math.round(run.progress * 100)} % · ` : ""}<${When} at=${run.started_at} plain /></span></li>`)}</ul>`}</div></section>
    ${all.next && html`<section class="panel"><header><h2>Next due</h2><a class="muted" href=${to("/jobs")}>all jobs</a></header><div class="body">
      ${all.next.length === 0 ? html`<${Empty} command='mainspring job add hello --every 30s --command "echo hello"'>Nothing is scheduled.</${Empty}>` : html`<ul class="lines">${all.next.slice(0, FEW).map((/** @type {any} */ job) => html`<li>
        <a href=${jobHref(job)}>${job.name}</a><span class="muted"><${When} at=${job.next_fire_at} plain /></span></li>`)}</ul>`}</div></section>`}`;
}

export default function Overview() {
  const all = useResource("/v1/overview");
  return html`<${Head} title="Overview" /><${Loaded} of=${all}>${(/** @type {any} */ it) => html`
    <${Cards} all=${it} />
    <div class="columns"><${Attention} causes=${it.attention} /><div class="stack"><${Now} all=${it} /></div></div>`}</${Loaded}>`;
}
