/** Events: what happened in the last hour, and what happens now. Filters are words; a tail that is scrolled away from is paused. */
import { get, stream } from "../api.js";
import { lookOf } from "../draw/text.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { paused, visible } from "../live.js";
import { readWords, Search } from "../parts/lists.js";
import { Empty, Head, Sentence, Trouble } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { now, When } from "../parts/when.js";
import { jobNamed, place, to } from "../router.js";

/** @typedef {import("../records.d.ts").Event} StoredEvent */

const KEPT = 500;
const FILTERS = ["kind", "job", "task", "run"];
const AGAIN_MS = 2_000;
const SPANS_MS = [10_000, 60_000, 600_000];
/** As many as fill a screen. */
const ENOUGH = 50;

/** What is wrong stands out; the rest is text.
 * @param {string} kind such as `run.failed` */
function toneOf(kind) {
  const { tone } = lookOf(kind.slice(kind.indexOf(".") + 1));
  return tone === "failed" || tone === "warning" ? tone : "";
}

const COLUMNS = [
  { name: "When", tight: true, cell: (/** @type {StoredEvent} */ it) => html`<${When} at=${it.at} />` },
  { name: "What", tight: true, cell: (/** @type {StoredEvent} */ it) => html`<span class=${`mono s-${toneOf(it.kind)}`}>${it.kind}</span>` },
  { name: "Job or task", cell: (/** @type {StoredEvent} */ it) => (it.job ? html`<a href=${jobNamed(it.job)}>${it.job}</a>` : html`<span class="mono">${it.task ?? "–"}</span>`) },
  { name: "Run", tight: true, cell: (/** @type {StoredEvent} */ it) => (it.run_id ? html`<a class="id" href=${to(`/runs/${it.run_id}`)}>${it.run_id.slice(-8)}</a>` : "–") },
  { name: "Reason", cell: (/** @type {StoredEvent} */ it) => it.reason && html`<span class="muted clamp" title=${it.reason}><${Sentence} text=${it.reason} /></span>` },
];

/** Stored events are read forward from an instant. On a busy system the first of the last hour are old: the shortest span that has enough is read.
 * @param {Record<string, string>} filter @param {AbortSignal} signal @returns {Promise<any>} */
async function latest(filter, signal) {
  for (const span of SPANS_MS) {
    const found = await get("/v1/events:page", { ...filter, since: new Date(now().getTime() - span).toISOString(), limit: KEPT }, signal);
    if (found.items.length >= ENOUGH) return found;
  }
  return get("/v1/events:page", { ...filter, limit: KEPT }, signal);
}

/** The last events that are stored, then those to come; behind a broken connection it continues after the last one.
 * @param {Record<string, string>} filter */
function useEvents(filter) {
  const [rows, setRows] = useState(/** @type {StoredEvent[] | null} */ (null));
  const [waiting, setWaiting] = useState(/** @type {StoredEvent[]} */ ([]));
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const key = JSON.stringify(filter);
  const last = useRef({ key: "", position: /** @type {number | undefined} */ (undefined) });
  const isVisible = visible.value;
  useEffect(() => {
    if (!isVisible) return;
    const abort = new AbortController();
    const take = (/** @type {any} */ event) => {
      if (!event.data?.kind) return;
      const isHeld = paused.value || scrollY > 200;  // Nothing moves under the pointer of a reader.
      (isHeld ? setWaiting : setRows)((/** @type {any} */ old) => [event.data, ...(old ?? [])].slice(0, KEPT));
    };
    const follow = async () => {
      if (last.current.key !== key) {
        setRows(null);
        setWaiting([]);
        const found = await latest(filter, abort.signal);
        setRows([...found.items].reverse());
        last.current = { key, position: found.items[found.items.length - 1]?.position };
      }
      while (!abort.signal.aborted) {
        await stream("/v1/events", { ...filter, after: last.current.position }, abort.signal, (event) => ((last.current.position = Number(event.id) || last.current.position), take(event)));
        await new Promise((wake) => setTimeout(wake, AGAIN_MS));
      }
    };
    follow().catch((problem) => abort.signal.aborted || setError(problem));
    return () => abort.abort();
  }, [key, isVisible]);
  const show = () => (setRows((old) => [...waiting, ...(old ?? [])].slice(0, KEPT)), setWaiting([]));
  return { rows, waiting, error, show };
}

export default function Events() {
  const words = place.value.query.get("q") ?? "";
  const { found, rest } = readWords(words, FILTERS);
  const { rows, waiting, error, show } = useEvents({ ...found, ...(rest ? { job: rest } : {}) });
  return html`<${Head} title="Events" /><div class="toolbar"><${Search} value=${words} label="filter events" names=${FILTERS} placeholder="kind:run.failed job:etl task:encode" />
      ${waiting.length > 0 && html`<button onClick=${show}>${waiting.length} new</button>`}</div>
    ${error && html`<${Trouble} error=${error} />`}
    ${rows?.length ? html`<${Table} label="events" columns=${COLUMNS} rows=${rows} id=${(/** @type {StoredEvent} */ it) => `${it.position}`} />` : rows ? html`<${Empty}>Nothing like that happened in the last hour. What happens next is shown here.</${Empty}>` : !error && html`<div class="skeleton" aria-busy="true"></div>`}`;
}
