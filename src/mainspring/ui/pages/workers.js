/** Workers: which work, on what, and which have gone silent. One worker: its runs on a time axis. */
import { send } from "../api.js";
import { packed } from "../draw/lanes.js";
import { lookOf } from "../draw/text.js";
import { html, useMemo } from "../html.js";
import { ask, quoted } from "../parts/dialog.js";
import { Lanes } from "../parts/lanes.js";
import { Badge, Empty, Head, Loaded, Meter } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { lengthOf, now, since, Spans, When } from "../parts/when.js";
import { place, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";

/** @typedef {import("../records.d.ts").Worker} Worker */
/** @typedef {import("../records.d.ts").Spans} SpanPage */

const EVERY_MS = 3_000;
const MOST_LANES = 40;
const ORDER = ["active", "draining", "stopped", "dead"];

/** @param {Worker} worker @param {Worker[]} all @param {() => void} then */
function askToDrain(worker, all, then) {
  const isLast = !all.some((each) => each.state === "active" && each.worker !== worker.worker);
  ask({
    title: `Drain ${worker.worker}`, text: `It finishes what it holds, takes nothing more, and ends.${isLast ? " No other worker is active: no run will start." : ""}`, button: "Drain it", done: "asked to drain",
    command: (reason) => `mainspring drain ${quoted(worker.worker)}${reason ? ` --reason ${quoted(reason)}` : ""}`,
    act: async (reason) => {
      await send("POST", `/v1/workers/${encodeURIComponent(worker.worker)}/drain`, reason ? { reason } : {});
      then();
    },
  });
}

/** @param {Worker} worker */
function workerHref(worker) {
  return to(`/workers/${encodeURIComponent(worker.worker)}`);
}

/** @param {Worker[]} all @param {() => void} reload */
function columns(all, reload) {
  return [
    { name: "Worker", lead: true, cell: (/** @type {Worker} */ it) => html`<a class="mono" href=${workerHref(it)}>${it.worker}</a>` },
    { name: "State", tight: true, cell: (/** @type {Worker} */ it) => html`<${Badge} state=${it.state} />` },
    { name: "Slots", tight: true, cell: (/** @type {Worker} */ it) => (["dead", "stopped"].includes(it.state) ? html`<span class="muted">–</span>` : html`<span class="row nowrap slots"><${Meter} used=${it.running} of=${it.concurrency} /><a href=${to("/runs", { q: `worker:${it.worker}` })}>${it.running} of ${it.concurrency}</a></span>`) },
    { name: "Queues", cell: (/** @type {Worker} */ it) => it.queues.join(", ") },
    { name: "Regions", cell: (/** @type {Worker} */ it) => it.regions.join(", ") },
    { name: "Tasks", cell: (/** @type {Worker} */ it) => html`<span class="muted" title=${it.tasks.join(", ")}>${it.tasks.length}</span>` },
    { name: "App", tight: true, cell: (/** @type {Worker} */ it) => it.app },
    { name: "Heartbeat", tight: true, cell: (/** @type {Worker} */ it) => html`<${When} at=${it.heartbeat_at} plain />` },
    { name: "Started", tight: true, cell: (/** @type {Worker} */ it) => html`<${When} at=${it.started_at} plain />` },
    { name: "", tight: true, cell: (/** @type {Worker} */ it) => may("workers:control") && it.state === "active" && html`<button aria-label=${`Drain ${it.worker}`} onClick=${() => askToDrain(it, all, reload)}>Drain</button>` },
  ];
}

/** @param {{ argument?: string }} given */
export default function Workers({ argument }) {
  const workers = useResource("/v1/workers", undefined, undefined, EVERY_MS);
  if (argument) return html`<${One} name=${argument} workers=${workers} />`;
  return html`<${Head} title="Workers" /><${Loaded} of=${workers}>${(/** @type {any} */ found) => found.items.length
    ? html`<${Table} label="workers" columns=${columns(found.items, workers.reload)} rows=${[...found.items].sort((one, other) => ORDER.indexOf(one.state) - ORDER.indexOf(other.state) || (one.state === "active" ? 0 : Date.parse(other.heartbeat_at) - Date.parse(one.heartbeat_at)))} href=${workerHref} id=${(/** @type {Worker} */ it) => it.worker} />`
    : html`<${Empty} command="mainspring worker work.py">No worker was seen lately.</${Empty}>`}</${Loaded}>`;
}

/** @param {{ name: string, workers: import("../state/resource.js").Resource<any> }} given */
function One({ name, workers }) {
  return html`<${Loaded} of=${workers}>${(/** @type {any} */ found) => {
    const it = /** @type {Worker | undefined} */ (found.items.find((/** @type {Worker} */ each) => each.worker === name));
    if (!it) return html`<${Head} title=${`Worker ${name}`} /><${Empty}>No worker of this name was seen in the last day. <a href=${to("/workers")}>All workers</a></${Empty}>`;
    const why = may("workers:control") ? "" : "needs workers:control";
    const facts = [["Slots", html`${it.running} of ${it.concurrency} busy${Object.entries(it.pools ?? {}).map(([priority, places]) => ` · ${places} for priority ${priority}`)}`], ["Queues", it.queues.join(", ")], ["Regions", it.regions.join(", ")], ["App", it.app], ["Host", `${it.host}, process ${it.pid}`],
      ["Started", html`<${When} at=${it.started_at} />`], ["Heartbeat", html`<${When} at=${it.heartbeat_at} />`], ["Tasks", html`<span class="mono">${it.tasks.join(", ") || "commands only"}</span>`]];
    return html`<${Head} title=${`Worker ${name}`} actions=${it.state === "active" && html`<button disabled=${!!why} title=${why} onClick=${() => askToDrain(it, found.items, workers.reload)}>Drain</button>`}><${Badge} state=${it.state} /></${Head}>
      <section class="panel"><div class="body"><dl class="facts two">${facts.map(([term, value]) => html`<dt>${term}</dt><dd>${value}</dd>`)}</dl></div></section>
      <${Work} worker=${it} />`;
  }}</${Loaded}>`;
}

/** @param {{ worker: Worker }} given */
function Work({ worker }) {
  const span = place.value.query.get("span") ?? "1h";
  const spans = useResource(`/v1/workers/${encodeURIComponent(worker.worker)}/spans`, { since: since(span) }, (news) => news.more || news.runs.size > 0);
  const until = Math.ceil(now().getTime() / 15_000) * 15_000;
  const lanes = useMemo(() => {
    const bars = /** @type {SpanPage | null} */ (spans.data)?.items.map((each) => {
      const end = each.ended_at ? Date.parse(each.ended_at) : Math.min(now().getTime(), until);
      return { from: Date.parse(each.began_at), to: end, id: each.run_id, state: each.state, title: `${each.name} …${each.run_id.slice(-8)}: ${lookOf(each.state).word}, ${((end - Date.parse(each.began_at)) / 1000).toFixed(1)} s` };
    }) ?? [];
    return packed(bars, Math.min(worker.concurrency, MOST_LANES)).map((row, n) => ({ label: `slot ${n + 1}`, bars: row }));
  }, [spans.data, until]);
  return html`<div class="spread below"><h2>What it ran</h2><${Spans} chosen=${span} choices=${["1h", "6h", "24h"]} /></div>
    <${Loaded} of=${spans}>${(/** @type {SpanPage} */ found) => found.items.length
      ? html`<section class="panel"><div class="body"><${Lanes} lanes=${lanes} from=${until - lengthOf(span)} to=${until} label=${`runs of ${worker.worker}`} href=${(/** @type {string} */ id) => to(`/runs/${id}`)} />${found.partial && html`<p class="muted">Only a part is shown: choose a shorter span.</p>`}</div></section>`
      : html`<${Empty}>It ran nothing in this span.</${Empty}>`}</${Loaded}>`;
}
