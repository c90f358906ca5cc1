/** Queues: what waits in each, which workers serve it, and how to continue where none does. */
import { html } from "../html.js";
import { askForQueue } from "../parts/actions.js";
import { bounded } from "../parts/bulk.js";
import { Command, quoted } from "../parts/dialog.js";
import { Badge, Empty, Head, Loaded, Meter } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";
import { standing } from "../state/standing.js";

/** @typedef {import("../records.d.ts").Queue} Queue */
/** @typedef {import("../records.d.ts").Gates} Gates */
/** @typedef {import("../records.d.ts").GateUse} GateUse */
/** @typedef {import("../records.d.ts").LineUse} LineUse */

const EVERY_MS = 5_000;
/** The region that a worker serves if none is named. */
const REGION = "default";

/** @param {Queue} queue */
function stateOf(queue) {
  if (queue.paused_at) return "paused";
  return queue.workers === 0 && queue.due > 0 ? "unserved" : "active";
}

/** What keeps its due runs from starting, and how to go on: a pause, regions without a worker, or both.
 * @param {{ queue: Queue }} given */
function Trouble({ queue }) {
  const served = queue.regions.filter((each) => each.workers > 0);
  const lacking = queue.due > 0 ? queue.regions.filter((each) => each.workers === 0 && each.due > 0).map((each) => each.region) : [];
  const none = queue.workers === 0 && queue.due > 0;
  const where = served.length || lacking.some((each) => each !== REGION) ? ` in ${lacking.join(", ")}` : "";
  const due = none ? queue.due : queue.regions.reduce((sum, each) => sum + (each.workers ? 0 : each.due), 0);
  return html`${queue.paused_at && html`<p><${Badge} state="paused" /> <${When} at=${queue.paused_at} plain />${queue.paused_why && `: ${queue.paused_why}`}</p>`}
    ${(none || lacking.length > 0) && html`<div class="stack"><p><${Badge} state="failed" word=${`No worker serves it${where}`} />: ${bounded(due)} due ${due === 1 ? "run waits" : "runs wait"}. ${queue.paused_at ? "To resume it is not enough. " : ""}Start one:</p>
      ${(lacking.length ? lacking : [REGION]).map((region) => html`<${Command} key=${region} line=${`mainspring worker APP --queue ${quoted(queue.queue)}${region === REGION ? "" : ` --region ${quoted(region)}`}`} />`)}</div>`}`;
}

/** @param {{ queue: Queue, then: () => void }} given */
function One({ queue, then }) {
  const priorities = Object.entries(queue.priorities);
  return html`<section class="panel" aria-label=${`queue ${queue.queue}`}><header><h2><a href=${to("/runs", { q: `queue:${queue.queue}` })}>${queue.queue}</a></h2>
      ${may("jobs:operate") && html`<button onClick=${() => askForQueue(queue.queue, queue.paused_at ? "resume" : "pause", then)}>${queue.paused_at ? "Resume" : "Pause"}</button>`}</header>
    <div class="body stack">
      <${Trouble} queue=${queue} />
      <dl class="numbers"><div><dt>due</dt><dd>${bounded(queue.due)}</dd></div><div><dt>running</dt><dd>${bounded(queue.running)}</dd></div><div><dt>blocked</dt><dd>${bounded(queue.blocked)}</dd></div>
        <div><dt>in per minute</dt><dd>${queue.accepted_per_minute}</dd></div><div><dt>out per minute</dt><dd>${queue.ended_per_minute}</dd></div>
        <div><dt>workers</dt><dd>${queue.workers}</dd></div></dl>
      ${queue.slots > 0 && html`<p class="row"><${Meter} used=${queue.busy} of=${queue.slots} /><span class="muted">${queue.busy} of ${queue.slots} slots of its workers are busy</span></p>`}
      <p>${queue.oldest_due ? html`The oldest was due <${When} at=${queue.oldest_due} plain />.` : html`<span class="muted">Nothing is due.</span>`}
        ${priorities.length > 1 && html` <span class="muted">Due by priority: ${priorities.map(([priority, count]) => `priority ${priority}: ${bounded(count)}`).join(", ")}.</span>`}</p>
      ${queue.regions.length > 1 && html`<${Table} label=${`regions of ${queue.queue}`} id=${(/** @type {any} */ it) => it.region} rows=${queue.regions} columns=${REGIONS} />`}</div></section>`;
}

const REGIONS = [
  { name: "Region", cell: (/** @type {any} */ it) => it.region }, { name: "Due", number: true, cell: (/** @type {any} */ it) => it.due },
  { name: "Oldest", cell: (/** @type {any} */ it) => html`<${When} at=${it.oldest_due} plain />` },
  { name: "Workers", number: true, cell: (/** @type {any} */ it) => (it.workers === 0 && it.due > 0 ? Badge({ state: "failed", word: "none" }) : it.workers) }, { name: "Slots", number: true, cell: (/** @type {any} */ it) => it.slots },
];

/** What the pressure is, where it is that high: the header only names it. */
function Pressure() {
  const now = standing.value.data;
  if (!now || (now.degradation ?? "normal") === "normal") return null;
  return html`<section class="panel pressed" aria-label="pressure"><header><h2>Under pressure: ${(now.pressure ?? 0).toFixed(1)} times the limit</h2></header><div class="body stack">
    <p>Given up now: ${now.given_up}.</p>
    <p>The pressure is the worst of three figures, each divided by its limit: how many due runs of priorities 1 to 7 wait (<code>most_waiting</code>), how late they are where all workers are busy (<code>most_late</code>), and how long requests wait for the database (<code>most_pool_wait</code>). The first two are this namespace's own.</p>
    <p>From 1 on, due runs of priorities 8 to 10 that were never tried are skipped; from 1.5 on, lists of the past answer slowly; from 2 on, runs that allow it do not wait for what they follow; from 3 on, new work is refused. A level begins after 3 s above its mark, and ends after 15 s below 70 % of it.</p>
    <p>It falls as runs end: start workers for the fullest queue, raise their concurrency, or cancel what nobody needs any more.</p></div></section>`;
}

const GATES = [
  { name: "Gate", cell: (/** @type {GateUse} */ it) => html`<span class="mono">${it.name}</span>` },
  { name: "In", tight: true, cell: (/** @type {GateUse} */ it) => html`<span class="row nowrap slots"><${Meter} used=${it.used} of=${it.capacity} />${it.used} of ${it.capacity}</span>` },
  { name: "Waiting", number: true, cell: (/** @type {GateUse} */ it) => it.waiting },
];

const LINES = [
  { name: "Line", cell: (/** @type {LineUse} */ it) => html`<span class="mono">${it.name}</span>` },
  { name: "Standing", number: true, cell: (/** @type {LineUse} */ it) => it.length },
  { name: "First", tight: true, cell: (/** @type {LineUse} */ it) => html`<a class="id" href=${to(`/runs/${it.head}`)}>${it.head.slice(-8)}</a>` },
];

export default function Queues() {
  const queues = useResource("/v1/queues", undefined, undefined, EVERY_MS);
  const gates = useResource("/v1/gates", undefined, undefined, EVERY_MS);
  const worst = (/** @type {Queue[]} */ items) => [...items].sort((one, other) => rank(one) - rank(other) || other.due - one.due || one.queue.localeCompare(other.queue));
  return html`<${Head} title="Queues" /><${Pressure} /><${Loaded} of=${queues}>${(/** @type {any} */ found) => found.items.length
    ? html`<div class="tiles">${worst(found.items).map((each) => html`<${One} key=${each.queue} queue=${each} then=${queues.reload} />`)}</div>`
    : html`<${Empty} command="mainspring run submit TASK --queue default">No queue has runs or workers.</${Empty}>`}</${Loaded}>
    <${Loaded} of=${gates}>${(/** @type {Gates} */ found) => html`
      ${found.gates.length > 0 && html`<h2 class="below">Gates</h2><${Table} label="gates" columns=${GATES} rows=${found.gates} id=${(/** @type {GateUse} */ it) => it.name} />`}
      ${found.lines.length > 0 && html`<h2 class="below">Longest lines</h2><${Table} label="lines" columns=${LINES} rows=${found.lines} id=${(/** @type {LineUse} */ it) => it.name} />`}`}</${Loaded}>`;
}

/** @param {Queue} queue */
function rank(queue) {
  return ["unserved", "paused", "active"].indexOf(stateOf(queue));
}
