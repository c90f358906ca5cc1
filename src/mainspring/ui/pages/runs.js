/** Runs: what was asked for, and what became of it. */
import { spaced } from "../draw/text.js";
import { get } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { askForAll, bounded } from "../parts/bulk.js";
import { Fresh, readWords, Search, usePages } from "../parts/lists.js";
import { Badge, Empty, Head, Loaded } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { instantOf, When } from "../parts/when.js";
import { jobNamed, place, runHref, to } from "../router.js";
import { may, namespace } from "../state/me.js";

const FILTERS = ["state", "job", "task", "tag", "queue", "worker", "region", "key", "submitted_by", "late", "took", "error", "since", "until", "id"];
const TABS = ["", "running", "pending", "blocked", "failed", "succeeded", "cancelled", "skipped"];

export const RUN_COLUMNS = [
  { name: "Run", tight: true, cell: (/** @type {any} */ run) => html`<a class="id" href=${runHref(run)}>${run.run_id.slice(-8)}</a>` },
  { name: "Task", cell: (/** @type {any} */ run) => html`${run.job ? html`<a href=${jobNamed(run.job)}>${run.job}</a>` : html`<span class="mono">${run.task}</span>`}` },
  { name: "State", tight: true, cell: (/** @type {any} */ run) => html`<${Badge} state=${stateOf(run)} />` },
  { name: "Due", tight: true, cell: (/** @type {any} */ run) => html`<${When} at=${run.due_at} plain />` },
  { name: "Took", tight: true, number: true, cell: (/** @type {any} */ run) => (run.duration && spaced(run.duration)) ?? (run.progress !== null && run.state === "running" ? `${Math.round(run.progress * 100)} %` : "–") },
  { name: "Attempt", number: true, cell: (/** @type {any} */ run) => run.attempt || "–" },
  { name: "Queue", tight: true, cell: (/** @type {any} */ run) => run.queue },
  { name: "Reason", cell: (/** @type {any} */ run) => run.reason && html`<span class="muted">${run.reason}</span>` },
];

/** A pending run that was tried before waits for its next attempt.
 * @param {any} run */
export function stateOf(run) {
  return run.state === "pending" && run.attempt > 0 ? "retrying" : run.state;
}

/** @param {{ chosen: Set<string>, filter: Record<string, any>, isWhole: boolean, done: () => void }} given */
function Bulk({ chosen, filter, isWhole, done }) {
  const [all, setAll] = useState(false);
  if (chosen.size === 0) return null;
  const { id, ...rest } = filter;
  const selection = all ? { ...rest, ...(rest.state ? { state: [rest.state] } : {}) } : { run_ids: [...chosen] };
  const act = (/** @type {string} */ verb) => askForAll("runs", verb, selection, all ? "all that match" : "selected", done);
  return html`<span>${all ? "all that match selected" : `${chosen.size} selected`}</span>
    ${!all && !id && isWhole && Object.keys(rest).length > 0 && html`<button class="plain" onClick=${() => setAll(true)}>Select all that match</button>`}
    <button onClick=${() => act("retry")}>Retry</button><button class="danger" onClick=${() => act("cancel")}>Cancel</button>`;
}

/** What the server can count by: an error group and an id it cannot. */
const UNCOUNTED = ["error", "id", "state"];

/** How many runs each tab has, up to the server's bound. They are counted once for a filter: with each change it would cost the server more than
 * the list.
 * @param {Record<string, any>} filter @returns {Record<string, number>} */
function useCounts(filter) {
  const [found, set] = useState({ key: "", counts: /** @type {Record<string, number>} */ ({}) });
  const key = JSON.stringify([namespace.value, filter]);
  useEffect(() => {
    if (filter.error || filter.id) return;
    const abort = new AbortController();
    const words = Object.fromEntries(Object.entries(filter).filter(([name]) => !UNCOUNTED.includes(name)));
    const count = async (/** @type {string} */ state) => [state, (await get("/v1/runs:count", { ...words, state }, abort.signal)).count];
    Promise.all(TABS.filter(Boolean).map(count)).then((counts) => set({ key, counts: Object.fromEntries(counts) }), () => {});  // The list says what is wrong with the filter.
    return () => abort.abort();
  }, [key]);
  return found.key === key ? found.counts : {};
}

export default function Runs() {
  const words = place.value.query.get("q") ?? "";
  const tab = place.value.query.get("state") ?? "";
  const { found, rest } = readWords(words, FILTERS);
  const spans = Object.fromEntries(["since", "until"].filter((name) => found[name]).map((name) => [name, instantOf(found[name])]));
  const filter = { ...(tab ? { state: tab } : {}), ...found, ...spans, ...(rest ? { id: rest } : {}) };
  const { state: _, ...others } = filter;
  const counts = useCounts(others);
  const query = { limit: 100, fields: "row", ...filter };
  const runs = usePages("/v1/runs", query, (news) => news.more || news.runs.size > 0);
  const [chosen, setChosen] = useState(new Set());
  const done = () => {
    setChosen(new Set());
    runs.reload();
  };
  const controls = may("runs:control");
  return html`
    <${Head} title="Runs" actions=${may("runs:submit") && html`<a class="button" href=${to("/new-run")}>New run</a>`} />
    <nav class="tabs" aria-label="state">${TABS.map((each) => html`<a href=${to("/runs", { q: words, state: each })} aria-current=${each === tab ? "page" : null}>${each || "all"}${counts[each] > 0 && html` <span class="tally">${bounded(counts[each])}</span>`}</a>`)}</nav>
    <div class="toolbar">
      <${Search} value=${words} label="filter runs" names=${FILTERS} placeholder="job:etl queue:gpu since:24h, or an id" />
      <${Fresh} of=${runs} />
      <${Bulk} chosen=${chosen} filter=${filter} isWhole=${chosen.size >= runs.rows.length} done=${done} />
    </div>
    <${Loaded} of=${runs}>${() => runs.rows.length
      ? html`<${Table} label="runs" columns=${RUN_COLUMNS} rows=${runs.rows} id=${(/** @type {any} */ run) => run.run_id} href=${runHref} more=${runs.more}
          chosen=${controls ? chosen : undefined} onChoose=${controls ? setChosen : undefined} />`
      : words || tab
        ? html`<${Empty}>No run matches. <a href=${to("/runs")}>Clear the filters</a></${Empty}>`
        : html`<${Empty} command="mainspring run submit TASK --app work.py">There are no runs yet.</${Empty}>`}</${Loaded}>`;
}
