/** Events: what happens, as it happens. */
import { stream } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { Empty, Head, Trouble } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { to } from "../router.js";
import { paused } from "../live.js";

const KEPT = 500;

const COLUMNS = [
  { name: "When", tight: true, cell: (/** @type {any} */ it) => html`<${When} at=${it.at} />` },
  { name: "What", tight: true, cell: (/** @type {any} */ it) => html`<span class="mono">${it.kind}</span>` },
  { name: "Job", cell: (/** @type {any} */ it) => (it.job ? html`<a href=${to(`/jobs/${encodeURIComponent(it.job)}`)}>${it.job}</a>` : html`<span class="mono">${it.task ?? "–"}</span>`) },
  { name: "Run", tight: true, cell: (/** @type {any} */ it) => (it.run_id ? html`<a class="id" href=${to(`/runs/${it.run_id}`)}>${it.run_id.slice(-8)}</a>` : "–") },
  { name: "Reason", cell: (/** @type {any} */ it) => html`<span class="muted">${it.reason}</span>` },
];

export default function Events() {
  const [rows, setRows] = useState(/** @type {any[]} */ ([]));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  useEffect(() => {
    const abort = new AbortController();
    const take = (/** @type {any} */ event) => !paused.value && event.data?.kind && setRows((old) => [event.data, ...old].slice(0, KEPT));
    stream("/v1/events", {}, abort.signal, take).catch((problem) => abort.signal.aborted || setError(problem));
    return () => abort.abort();
  }, []);
  return html`<${Head} title="Events" />${error && html`<${Trouble} error=${error} />`}
    ${rows.length ? html`<${Table} label="events" columns=${COLUMNS} rows=${rows} id=${(/** @type {any} */ it) => `${it.position}`} />` : html`<${Empty}>Waiting for what happens next.</${Empty}>`}`;
}
