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

/** @typedef {import("../records.d.ts").Queue} Queue */
/** @typedef {import("../records.d.ts").Gates} Gates */
/** @typedef {import("../records.d.ts").GateUse} GateUse */
/** @typedef {import("../records.d.ts").LineUse} LineUse */

const EVERY_MS = 5_000;

/** @param {Queue} queue */
function stateOf(queue) {
  if (queue.paused_at) return "paused";
  return queue.workers === 0 && queue.due > 0 ? "unserved" : "active";
}

/** @param {{ queue: Queue }} given */
function Trouble({ queue }) {
  if (queue.paused_at) return html`<p><${Badge} state="paused" /> <${When} at=${queue.paused_at} plain />${queue.paused_why && `: ${queue.paused_why}`}</p>`;
  if (queue.workers > 0 || queue.due === 0) return null;
  return html`<div class="stack"><p><${Badge} state="failed" word="No worker serves it" />: ${bounded(queue.due)} due ${queue.due === 1 ? "run waits" : "runs wait"}. Start one:</p>
    <${Command} line=${`mainspring worker APP --queue ${quoted(queue.queue)}`} /></div>`;
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
      <p class="muted">${queue.oldest_due ? html`The oldest was due <${When} at=${queue.oldest_due} plain />.` : "Nothing is due."}
        ${priorities.length > 1 && ` By priority: ${priorities.map(([priority, count]) => `${bounded(count)} of ${priority}`).join(", ")}.`}</p>
      ${queue.regions.length > 1 && html`<${Table} label=${`regions of ${queue.queue}`} id=${(/** @type {any} */ it) => it.region} rows=${queue.regions} columns=${REGIONS} />`}</div></section>`;
}

const REGIONS = [
  { name: "Region", cell: (/** @type {any} */ it) => it.region }, { name: "Due", number: true, cell: (/** @type {any} */ it) => it.due },
  { name: "Oldest", cell: (/** @type {any} */ it) => html`<${When} at=${it.oldest_due} plain />` },
  { name: "Workers", number: true, cell: (/** @type {any} */ it) => (it.workers === 0 && it.due > 0 ? Badge({ state: "failed", word: "none" }) : it.workers) }, { name: "Slots", number: true, cell: (/** @type {any} */ it) => it.slots },
];

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
  return html`<${Head} title="Queues" /><${Loaded} of=${queues}>${(/** @type {any} */ found) => found.items.length
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
