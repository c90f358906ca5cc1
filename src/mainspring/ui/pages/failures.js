/** Failures: the kinds of error that the server tells apart, and what each affects. */
import { html, useState } from "../html.js";
import { askForRun } from "../parts/actions.js";
import { askForAll } from "../parts/bulk.js";
import { Trend } from "../parts/chart.js";
import { usePages } from "../parts/lists.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { Counting, since, Spans, useCounting, When, zoneOf } from "../parts/when.js";
import { jobNamed, place, refine, runHref, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";
import { RUN_COLUMNS } from "./runs.js";

/** @typedef {import("../records.d.ts").ErrorGroup} ErrorGroup */
/** @typedef {import("../records.d.ts").ErrorStory} ErrorStory */

const FILTERS = ["job", "task"];

/** @param {ErrorGroup} group @param {Record<string, string | undefined>} filter what the list is narrowed to @param {() => void} then */
function retry(group, filter, then) {
  const set = Object.fromEntries(Object.entries(filter).filter(([, value]) => value));
  askForAll("runs", "retry", { error: group.error, state: ["failed"], ...set }, `failed with ${group.type || group.message}`, then);
}

/** The beginning of the trend: at least a day ago.
 * @param {string} span */
const beginning = (span) => ({ "7d": "7 d ago", "30d": "30 d ago" })[span] ?? "24 h ago";

/** Whether what is counted of a kind began before the span: it is listed if it came again within it.
 * @param {ErrorGroup} group @param {string} span */
const isOlder = (group, span) => Date.parse(group.first_at) < Date.parse(since(span));

/** @param {string} at */
function dayOf(at) {
  return new Intl.DateTimeFormat("en-GB", { timeZone: zoneOf(), day: "numeric", month: "short", year: "numeric" }).format(new Date(at));
}

/** @param {{ group: ErrorGroup, span: string, filter: Record<string, string | undefined>, then: () => void }} given */
function Group({ group, span, filter, then }) {
  return html`<section class="panel failure"><div class="body">
    <div class="what"><h2 class="clamp" title=${group.message}><a href=${to(`/failures/${group.error}`)}><span class="s-failed">${group.type}</span> ${group.message}</a></h2>
      <p class="muted">${group.place && html`at <span class="mono">${group.place}</span> · `}first <${When} at=${group.first_at} plain />, last <a href=${to(`/runs/${group.last_run}`)}><${When} at=${group.last_at} plain /></a></p></div>
    <div>${Trend({ counts: group.trend, label: `in equal periods since ${beginning(span)}: ${group.trend.join(", ")}` })}<p class="ends muted"><span>${beginning(span)}</span><span>now</span></p></div>
    <span class="figure">${group.count.toLocaleString("en-GB")} <small>${group.count === 1 ? "run" : "runs"}${group.job_count > 0 && `, ${group.job_count} ${group.job_count === 1 ? "job" : "jobs"}`}</small>${isOlder(group, span) && html`<small class="since">since ${dayOf(group.first_at)}</small>`}</span>
    ${may("runs:control") && html`<button onClick=${() => retry(group, { ...filter, since: since(span) }, then)}>Retry</button>`}</div></section>`;
}

/** @param {{ group: string }} given */
function Story({ group }) {
  const story = useResource(`/v1/errors/${encodeURIComponent(group)}`, undefined, (news) => news.more || news.runs.size > 0);
  const runs = usePages("/v1/runs", { error: group, state: "failed", fields: "row", limit: 50 }, (news) => news.more || news.runs.size > 0);
  const [chosen, setChosen] = useState(new Set());
  const done = () => (setChosen(new Set()), runs.reload());
  const controls = may("runs:control");
  const sample = runs.rows[0]?.run_id;
  return html`<${Loaded} of=${story}>${(/** @type {ErrorStory} */ it) => html`
    <${Head} title=${it.type || it.message} actions=${controls && html`${sample && html`<button onClick=${() => askForRun(sample, "retry", done)}>Retry one first</button>`}<button onClick=${() => retry(it, {}, done)}>Retry all that failed so</button>`}>
      ${it.type && html`<span>${it.message}</span>`}</${Head}>
    <div class="columns first"><section class="panel"><header><h2>What it affects</h2></header><div class="body"><dl class="facts">
        <dt>Runs</dt><dd>${it.count.toLocaleString("en-GB")}</dd><dt>Place</dt><dd class="mono">${it.place || "unknown"}</dd>
        <dt>First</dt><dd><${When} at=${it.first_at} /></dd><dt>Last</dt><dd><${When} at=${it.last_at} /></dd>
        <dt>Jobs</dt><dd>${it.jobs.length ? it.jobs.map((name, n) => html`${n ? ", " : ""}<a href=${jobNamed(name)}>${name}</a>`) : "–"}</dd>
        <dt>Tasks</dt><dd class="mono">${it.tasks.join(", ") || "–"}</dd></dl></div></section>
      <section class="panel"><header><h2>The newest error</h2></header><div class="body"><pre class="code" tabindex="0" aria-label="the newest error">${it.sample?.traceback ?? `${it.sample?.type ?? it.type}: ${it.sample?.message ?? it.message}`}</pre></div></section></div>
    <h2 class="below">Runs that failed so</h2>
    ${chosen.size > 0 && html`<div class="toolbar"><span>${chosen.size} selected</span><button onClick=${() => askForAll("runs", "retry", { run_ids: [...chosen] }, "selected", done)}>Retry</button></div>`}
    <${Loaded} of=${runs}>${() => runs.rows.length
      ? html`<${Table} label="runs that failed so" columns=${RUN_COLUMNS} rows=${runs.rows} id=${(/** @type {any} */ run) => run.run_id} href=${runHref} more=${runs.more}
          chosen=${controls ? chosen : undefined} onChoose=${controls ? setChosen : undefined} />`
      : html`<${Empty}>None of them is kept any more, or each was run again.</${Empty}>`}</${Loaded}>`}</${Loaded}>`;
}

/** @param {{ argument?: string }} given */
export default function Failures({ argument }) {
  return argument ? html`<${Story} group=${argument} />` : html`<${Groups} />`;
}

function Groups() {
  const span = place.value.query.get("span") ?? "7d";
  const filter = Object.fromEntries(FILTERS.map((name) => [name, place.value.query.get(name) ?? undefined]));
  const isNarrow = FILTERS.some((name) => filter[name]);
  const groups = usePages("/v1/errors", { since: since(span), limit: 50, ...filter }, (news) => news.more || news.runs.size > 0);
  const until = useCounting(groups);
  const runs = groups.rows.reduce((sum, each) => sum + each.count, 0);
  return html`<${Head} title="Failures">${groups.data && (groups.rows.length > 0 || until === null) && html`<span class="muted">${groups.rows.length}${groups.more ? "+" : ""} ${groups.rows.length === 1 ? "kind" : "kinds"} of error, ${runs.toLocaleString("en-GB")} failed ${runs === 1 ? "run" : "runs"} in all${groups.rows.some((each) => isOlder(each, span)) ? ", also before this span" : ""}</span>`}</${Head}>
    <div class="toolbar"><${Spans} chosen=${span} />
      ${FILTERS.map((name) => html`<input aria-label=${name} placeholder=${name} value=${filter[name] ?? ""} onChange=${(/** @type {any} */ e) => refine({ [name]: e.target.value.trim() })} />`)}</div>
    <${Counting} until=${until} />
    <${Loaded} of=${groups}>${() => groups.rows.length
      ? html`<div class="stack">${groups.rows.map((/** @type {ErrorGroup} */ each) => html`<${Group} key=${each.error} group=${each} span=${span} filter=${filter} then=${groups.reload} />`)}${groups.more && html`<button onClick=${groups.more}>Show more</button>`}</div>`
      : until === null && html`<${Empty}>No run${isNarrow ? " that matches" : ""} has failed for good in this span.${isNarrow && html` <a href=${to("/failures", { span })}>Clear the filter</a>`}</${Empty}>`}</${Loaded}>`;
}
