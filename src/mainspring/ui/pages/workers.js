/** Workers: who works, on what, and who has gone silent. */
import { send } from "../api.js";
import { html } from "../html.js";
import { Badge, Meter } from "../parts/badge.js";
import { ask, quoted } from "../parts/dialog.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";

/** @param {any} worker @param {() => void} then */
function askToDrain(worker, then) {
  ask({
    title: `Drain ${worker.worker}`, text: "It finishes what it holds, takes nothing more, and ends.", button: "Drain it", done: "asked to drain",
    command: (reason) => `mainspring drain ${quoted(worker.worker)}${reason ? ` --reason ${quoted(reason)}` : ""}`,
    act: async (reason) => {
      await send("POST", `/v1/workers/${encodeURIComponent(worker.worker)}/drain`, reason ? { reason } : {});
      then();
    },
  });
}

/** @param {() => void} reload */
function columns(reload) {
  return [
    { name: "Worker", cell: (/** @type {any} */ it) => html`<span class="mono">${it.worker}</span>` },
    { name: "State", tight: true, cell: (/** @type {any} */ it) => html`<${Badge} state=${it.state} />` },
    { name: "Slots", tight: true, cell: (/** @type {any} */ it) => html`<span class="row"><${Meter} used=${it.running} of=${it.concurrency} /><a href=${to("/runs", { q: `worker:${it.worker}` })}>${it.running} of ${it.concurrency}</a></span>` },
    { name: "Queues", cell: (/** @type {any} */ it) => it.queues.join(", ") },
    { name: "Regions", cell: (/** @type {any} */ it) => it.regions.join(", ") },
    { name: "App", tight: true, cell: (/** @type {any} */ it) => it.app },
    { name: "Heartbeat", tight: true, cell: (/** @type {any} */ it) => html`<${When} at=${it.heartbeat_at} plain />` },
    { name: "Started", tight: true, cell: (/** @type {any} */ it) => html`<${When} at=${it.started_at} plain />` },
    { name: "", tight: true, cell: (/** @type {any} */ it) => may("workers:control") && it.state === "active" && html`<button class="plain" onClick=${() => askToDrain(it, reload)}>Drain</button>` },
  ];
}

export default function Workers() {
  const workers = useResource("/v1/workers");
  return html`<${Head} title="Workers" /><${Loaded} of=${workers}>${(/** @type {any} */ found) => found.items.length
    ? html`<${Table} label="workers" columns=${columns(workers.reload)} rows=${found.items} id=${(/** @type {any} */ it) => it.worker} />`
    : html`<${Empty} command="mainspring worker work.py">No worker was seen lately.</${Empty}>`}</${Loaded}>`;
}
