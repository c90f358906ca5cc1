/** Overview: is it well, what needs attention, what runs, what comes next. */
import { html, useState } from "../html.js";
import { length, lookOf } from "../draw/text.js";
import { Badge, breakable, Empty, Head, Loaded, Meter, Sentence } from "../parts/page.js";
import { Bars, Columns } from "../parts/chart.js";
import { Counting, lengthOf, now, since, Spans, useCounting, When } from "../parts/when.js";
import { jobHref, jobNamed, place, runHref, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";
import { useStanding } from "../state/standing.js";

/** @typedef {import("../records.d.ts").Tallies} Tallies */
/** @typedef {import("../records.d.ts").Load} Load */
/** @typedef {import("../records.d.ts").ErrorGroup} ErrorGroup */

const WIDTHS = /** @type {Record<string, string>} */ ({ "1h": "5m", "24h": "1h", "7d": "6h" });
const WIDTH_NAMES = /** @type {Record<string, string>} */ ({ "1h": "5 minutes", "24h": "an hour", "7d": "6 hours" });
const FIRST_STEPS = ["mainspring worker work.py", 'mainspring job add hello --every 30s --command "echo hello"', 'mainspring run submit --command "echo hello"'];
const FEW = 8;
const OF_A_KIND = 3;
const KINDS = 5;
/** The day ahead begins on a round time: equal questions have equal addresses. */
const STEP_MS = 300_000;
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
  const leads = leader ? leader.owner.split(":")[0] : "";
  const outcomes = [["succeeded", counts.succeeded], ["failed", counts.failed], ["missed", counts.missed]];
  return html`<div class="cards">
    <${Card} title="Leader" href=${to("/cluster")} figure=${leader ? html`<span title=${leader.owner}>${leads}</span>` : html`<${Badge} state="failed" word="none" />`}>
      ${leader ? html`term ${leader.term}, began <${When} at=${leader.since} plain />` : "No node plans firings"}</${Card}>
    <${Card} title="Workers" href=${to("/workers")} figure=${workers.active ? `${workers.active.toLocaleString("en-GB")} active` : html`<${Badge} state="failed" word="none" />`}>
      <${Meter} used=${workers.running} of=${workers.slots} /> ${workers.running} of ${workers.slots} slots busy${workers.known > workers.active ? ` · ${workers.known - workers.active} gone` : ""}</${Card}>
    <${Card} title="Waiting" href=${to("/queues")} figure=${`${written(counts.due)} due`}>
      ${all.oldest_due && html`oldest <${When} at=${all.oldest_due} plain /> · `}${written(counts.blocked)} blocked · ${written(counts.later)} later</${Card}>
    <${Card} title="Last 24 hours" href=${to("/failures")} figure=${html`<span class="row">${outcomes.map(([state, count]) => html`<span class=${count ? "" : "none"}><${Badge} state=${state} word=${written(count)} /></span>`)}</span>`}>
      succeeded, failed, missed</${Card}>
  </div>`;
}

/** @param {any} cause */
function hrefOf(cause) {
  if (cause.state === "failed" && cause.run_id) return to(`/runs/${cause.run_id}`);
  if (cause.job) return jobNamed(cause.job);
  if (cause.jobs) return to("/jobs", { q: "state:paused" });
  if (cause.kind === "task-unknown") return to("/runs", { q: `queue:${cause.queue} task:${cause.name}`, state: "pending" });
  if (cause.queue) return to("/queues");
  return to(cause.kind === "no-leader" ? "/cluster" : "/workers");
}

/** The remedy of a cause, where one button is all of it.
 * @param {{ cause: any, then: () => void }} given */
function Remedy({ cause, then }) {
  if (cause.state === "failed" && cause.run_id && may("runs:control")) return html`<button onClick=${async () => (await import("../parts/actions.js")).askForRun(cause.run_id, "retry", then)}>Retry</button>`;
  if (cause.state === "paused" && cause.job && may("jobs:operate")) return html`<button onClick=${async () => (await import("../parts/actions.js")).askForJob({ name: cause.job }, "resume", then)}>Resume</button>`;
  if (cause.kind === "queue-paused" && may("jobs:operate")) return html`<button onClick=${async () => (await import("../parts/actions.js")).askForQueue(cause.queue, "resume", then)}>Resume</button>`;
  if (cause.kind === "job-failing" && cause.job) return html`<a class="button" href=${to("/failures", { job: cause.job, span: "24h" })}>Failures</a>`;
  return null;
}

/** @param {{ causes: any[], failed: number, workers: number, level: string }} given */
function Verdict({ causes, failed, workers, level }) {
  if (causes.length === 0 && workers === 0) return html`<span class="verdict"><${Badge} state="missed" word="No worker is running" /></span>`;
  if (causes.length === 0 && level !== "normal") return html`<span class="verdict"><${Badge} state="missed" word="Under pressure" /></span>`;
  if (causes.length === 0) return html`<span class="verdict"><${Badge} state="succeeded" word="All is well" />${failed > 0 && html` <span class="muted">now; ${written(failed)} ${failed === 1 ? "run" : "runs"} failed in the last 24 hours</span>`}</span>`;
  const worst = causes.some((each) => lookOf(each.state).tone === "failed") ? "failed" : "missed";
  return html`<span class="verdict"><${Badge} state=${worst} word=${causes.length === 1 ? "1 thing needs attention" : `${causes.length} things need attention`} /></span>`;
}

/** The first causes of each kind: when all jobs fail, the queue without a worker is still in sight.
 * @param {any[]} causes */
function firstOf(causes) {
  const counts = /** @type {Record<string, number>} */ ({});
  return causes.filter(({ kind }) => (counts[kind] = (counts[kind] ?? 0) + 1) <= OF_A_KIND).slice(0, FEW);
}

const NO_WORKER = { kind: "no-worker", state: "missed", name: "Workers", text: "None is running: no run starts.", remedy: "Start one with `mainspring worker APP`, or `mainspring up`." };

/** @param {{ found: any[], workers: number, then: () => void }} given */
function Attention({ found, workers, then }) {
  const [all, setAll] = useState(false);
  const causes = workers ? found : [NO_WORKER, ...found];
  const shown = all ? causes : firstOf(causes);
  return html`<section class="panel"><header><h2>Needs attention</h2></header><div class="body">
    ${causes.length === 0
      ? html`<${Empty}>Nothing needs you.</${Empty}>`
      : html`<ul class="attention">${shown.map((cause) => html`<${Cause} cause=${cause} then=${then} />`)}</ul>
        ${shown.length < causes.length && html`<button class="plain" onClick=${() => setAll(true)}>Show ${causes.length - shown.length} more</button>`}`}</div></section>`;
}

/** @param {{ cause: any, then: () => void }} given */
function Cause({ cause, then }) {
  const look = lookOf(cause.state);
  return html`<li><span class=${`glyph s-${look.tone}`} aria-hidden="true">${look.glyph}</span>
    <div><p class="clamp four"><a href=${hrefOf(cause)}><strong>${breakable(cause.name)}</strong></a> <${Sentence} text=${cause.text} /></p>${cause.remedy && html`<span class="muted"><${Sentence} text=${cause.remedy} /></span>`}</div>
    <span class="act">${cause.since && html`<span class="muted"><${When} at=${cause.since} plain /></span>`}<${Remedy} cause=${cause} then=${then} /></span></li>`;
}

/** The kinds of error of the last day, the newest first. */
function Failing() {
  const kinds = useResource("/v1/errors", { since: since("24h"), limit: KINDS }, (news) => news.more || news.runs.size > 0);
  const until = useCounting(kinds);
  const retry = async (/** @type {ErrorGroup} */ kind) => (await import("../parts/bulk.js")).askForAll("runs", "retry", { error: kind.error, state: ["failed"] }, `failed with ${kind.type}`, kinds.reload);
  return html`<section class="panel"><header><h2>What failed, last 24 hours</h2><a class="muted" href=${to("/failures", { span: "24h" })}>all</a></header><div class="body"><${Counting} until=${until} /><${Loaded} of=${kinds}>${(/** @type {any} */ found) => found.items.length === 0
    ? until === null && html`<p class="muted">No run has failed for good.</p>`
    : html`<ul class="kinds">${found.items.map((/** @type {ErrorGroup} */ kind) => html`<li><span class="glyph s-failed" aria-hidden="true">${lookOf("failed").glyph}</span>
      <span><a href=${to(`/failures/${kind.error}`)}><strong>${kind.type || kind.message}</strong></a> ${kind.type && html`<span class="clamp" title=${kind.message}>${kind.message}</span>`}${!kind.type && html`<br />`}<span class="muted">${kind.place && html`at <span class="mono">${kind.place}</span> · `}${kind.count.toLocaleString("en-GB")} ${kind.count === 1 ? "run" : "runs"} in all</span></span>
      <span class="act"><span class="muted"><${When} at=${kind.last_at} plain /></span>${may("runs:control") && html`<button onClick=${() => retry(kind)}>Retry</button>`}</span></li>`)}</ul>`}</${Loaded}></div></section>`;
}

/** @param {{ all: any }} given */
function Running({ all }) {
  return html`<section class="panel"><header><h2>Running now</h2><a class="muted" href=${to("/runs", { state: "running" })}>all</a></header><div class="body">
      ${all.running.length === 0 ? html`<p class="muted">Nothing runs.</p>` : html`<ul class="lines">${all.running.slice(0, FEW).map((/** @type {any} */ run) => html`<li>
        <a href=${runHref(run)}>${run.job ?? run.task}</a><span class="muted">${run.progress !== null ? `${Math.round(run.progress * 100)} % · ` : ""}began <${When} at=${run.started_at} plain /></span></li>`)}</ul>`}</div></section>`;
}

/** @param {{ all: any }} given */
function Due({ all }) {
  return all.next && html`<section class="panel"><header><h2>Next due</h2><a class="muted" href=${to("/jobs")}>all jobs</a></header><div class="body">
      ${all.next.length === 0 ? html`<${Empty} command=${FIRST_STEPS}>Nothing is scheduled yet. Start a worker, add a job, or submit a run:</${Empty}>` : html`<ul class="lines">${all.next.slice(0, FEW).map((/** @type {any} */ job) => html`<li>
        <a href=${jobHref(job)}>${job.name}</a><span class="muted"><${When} at=${job.next_fire_at} /></span></li>`)}</ul>`}</div></section>`;
}

const ENDS = ["succeeded", "failed", "missed", "skipped", "cancelled"];

/** @param {any} bucket */
function wordsOf(bucket) {
  const counts = ENDS.filter((state) => bucket[state]).map((state) => `${bucket[state]} ${state}`);
  return `${new Date(bucket.at).toLocaleString("en-GB")}: ${counts.join(", ") || "nothing ended"}`;
}

function Outcomes() {
  const span = place.value.query.get("span") ?? "24h";
  const width = WIDTHS[span] ?? "1h";
  const step = lengthOf(width);
  const begin = new Date(Math.floor(Date.parse(since(span)) / step) * step).toISOString();  // A part of a period would look like an outage.
  const tallies = useResource("/v1/tallies", { since: begin, bucket: width, whole: true }, (news) => news.more || news.runs.size > 0);
  const until = useCounting(tallies);
  return html`<section class="panel"><header><h2>Outcomes</h2><${Spans} chosen=${span} choices=${["1h", "24h", "7d"]} /></header><div class="body"><${Loaded} of=${tallies}>${(/** @type {Tallies} */ found) => {
    const late = found.items.map((each) => each.late_p99).filter((value) => typeof value === "number");
    return html`<${Bars} buckets=${found.items} label="outcomes over time" words=${wordsOf} each=${WIDTH_NAMES[span] ?? "an hour"} ends=${[`${span.replace(/(\d)([hd])/, "$1 $2")} ago`, "now"]} /><ul class="legend">${ENDS.filter((state) => found.items.some((each) => /** @type {any} */ (each)[state])).map((state) => html`<li><${Badge} state=${state} /></li>`)}</ul><${Counting} until=${until} />${(late.length > 0 || until === null) && html`<p class="muted">${late.length ? `in each bar, 99 of 100 runs began at most ${length(Math.max(...late) * 1000)} late` : "nothing has run in this span"}</p>`}`;
  }}</${Loaded}></div></section>`;
}

function Ahead() {
  const from = new Date(Math.ceil(now().getTime() / STEP_MS) * STEP_MS);
  const load = useResource("/v1/load", { from: from.toISOString(), to: new Date(from.getTime() + 86_400_000).toISOString(), bucket: "30m" });
  return html`<section class="panel"><header><h2>Next 24 hours</h2><a class="muted" href=${to("/load")}>open</a></header><div class="body"><${Loaded} of=${load}>${(/** @type {Load} */ found) => found.peak
    ? html`<${Columns} counts=${found.items.map((each) => each.starts)} label=${`starts in each half hour of the next day, at most ${found.peak.starts}`} ends=${["now", "in 24 h"]} /><p class="muted">peak <${When} at=${found.peak.at} />: ${found.peak.starts.toLocaleString("en-GB")} starts${found.partial && html` · <span class="s-warning">not all jobs are counted</span>`}</p>`
    : html`<${Empty}>Nothing is planned.</${Empty}>`}</${Loaded}></div></section>`;
}

export default function Overview() {
  const all = useStanding();
  return html`<${Head} title="Overview">${all.data && html`<${Verdict} causes=${all.data.attention} failed=${all.data.counts.failed} workers=${all.data.workers.active} level=${all.data.degradation} />`}</${Head}><${Loaded} of=${all}>${(/** @type {any} */ it) => html`
    <${Cards} all=${it} />
    <div class="columns"><div class="stack"><${Attention} found=${it.attention} workers=${it.workers.active} then=${all.reload} /><${Failing} /></div><div class="stack"><${Outcomes} /><${Running} all=${it} /><${Ahead} /><${Due} all=${it} /></div></div>`}</${Loaded}>`;
}
