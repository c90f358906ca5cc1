/** Runs: what was asked for, and what became of it. */
import { spaced } from "../draw/text.js";
import { get } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { askForAll, bounded } from "../parts/bulk.js";
import { Fresh, notFilters, readWords, Search, usePages } from "../parts/lists.js";
import { Badge, breakable, Empty, Head, Loaded } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { instantOf, lengthOf, now, When } from "../parts/when.js";
import { jobNamed, place, refine, runHref, to } from "../router.js";
import { may, namespace } from "../state/me.js";

const FILTERS = ["state", "job", "task", "tag", "queue", "worker", "region", "key", "submitted_by", "late", "took", "error", "since", "until", "id"];
const TABS = ["", "running", "pending", "blocked", "failed", "succeeded", "cancelled", "skipped"];

/** A run counts the attempts that have ended; the one that runs comes after them. What a run has not is left out: cards on small screens hide it. */
export const RUN_COLUMNS = [
  { name: "Run", tight: true, cell: (/** @type {any} */ run) => html`<a class="id" href=${runHref(run)}>${run.run_id.slice(-8)}</a>` },
  { name: "Task", lead: true, cell: (/** @type {any} */ run) => html`${run.job ? html`<a href=${jobNamed(run.job)}>${breakable(run.job)}</a>` : html`<span class="mono">${breakable(run.task)}</span>`}` },
  { name: "State", tight: true, cell: (/** @type {any} */ run) => html`<${Badge} state=${stateOf(run)} />` },
  { name: "Due", tight: true, cell: (/** @type {any} */ run) => html`<${When} at=${run.due_at} plain />` },
  { name: "Took", tight: true, number: true, cell: (/** @type {any} */ run) => (run.duration ? spaced(run.duration) : run.progress !== null && run.state === "running" ? `${Math.round(run.progress * 100)} % done` : null) },
  { name: "Attempt", number: true, cell: (/** @type {any} */ run) => run.attempt + (run.state === "running" ? 1 : 0) || null },
  { name: "Queue", tight: true, cell: (/** @type {any} */ run) => run.queue },
  { name: "Reason", cell: (/** @type {any} */ run) => run.reason && html`<span class="muted clamp" title=${run.reason}>${run.reason}</span>` },
];

/** Columns that can be shown besides. */
const MORE_COLUMNS = [
  { name: "Job", cell: (/** @type {any} */ run) => (run.job ? html`<a href=${jobNamed(run.job)}>${run.job}</a>` : null) },
  { name: "Started", tight: true, cell: (/** @type {any} */ run) => run.started_at && html`<${When} at=${run.started_at} plain />` },
  { name: "Finished", tight: true, cell: (/** @type {any} */ run) => run.finished_at && html`<${When} at=${run.finished_at} plain />` },
  { name: "Worker", tight: true, cell: (/** @type {any} */ run) => run.worker && html`<span class="mono">${run.worker}</span>` },
  { name: "Region", tight: true, cell: (/** @type {any} */ run) => run.region },
  { name: "Priority", number: true, cell: (/** @type {any} */ run) => run.priority },
  { name: "Key", cell: (/** @type {any} */ run) => run.key },
  { name: "Tags", cell: (/** @type {any} */ run) => run.tags.join(", ") || null },
  { name: "By", tight: true, cell: (/** @type {any} */ run) => run.submitted_by },
];
const ALL_COLUMNS = [...RUN_COLUMNS, ...MORE_COLUMNS];
const wordOf = (/** @type {{ name: string }} */ column) => column.name.toLowerCase();

/** The columns that the address names, in its order; the usual ones if it names none. The first is always there: it leads to the run.
 * @param {string | null} cols */
function columnsOf(cols) {
  const named = (cols ?? "").split(",").flatMap((word) => ALL_COLUMNS.filter((each) => wordOf(each) === word && each !== RUN_COLUMNS[0]));
  return cols === null ? RUN_COLUMNS : [RUN_COLUMNS[0], ...new Set(named)];
}

/** @param {{ shown: { name: string }[] }} given */
function Columns({ shown }) {
  const choose = (/** @type {any} */ column, /** @type {boolean} */ on) => {
    const words = (on ? [...shown, column] : shown.filter((each) => each !== column)).map(wordOf).join(",");
    refine({ cols: words === RUN_COLUMNS.map(wordOf).join(",") ? undefined : words });
  };
  return html`<details class="choose"><summary>Columns</summary><fieldset><legend class="hidden-text">columns</legend>${ALL_COLUMNS.slice(1).map((each) => html`<label><input type="checkbox" checked=${shown.includes(each)} onChange=${(/** @type {any} */ e) => choose(each, e.target.checked)} /> ${each.name}</label>`)}</fieldset></details>`;
}

/** A list without a filter shows this much; runs that have not ended are shown however old they are. */
const USUAL = "24h";
const UNENDED = ["running", "pending", "blocked"];
const HOUR_MS = 3_600_000;

/** The beginning of the hour a day ago: Back finds the same list.
 * @param {string} tab */
function usualSince(tab) {
  return UNENDED.includes(tab) ? {} : { since: new Date(Math.floor((now().getTime() - lengthOf(USUAL)) / HOUR_MS) * HOUR_MS).toISOString() };
}

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
    ${!all && !id && isWhole && html`<button class="plain" onClick=${() => setAll(true)}>Select all that match</button>`}
    ${!UNENDED.includes(filter.state) && html`<button onClick=${() => act("retry")}>Retry</button>`}${(!filter.state || UNENDED.includes(filter.state)) && html`<button class="danger" onClick=${() => act("cancel")}>Cancel</button>`}`;
}

/** What the server can count by: an error group and an id it cannot. */
const UNCOUNTED = ["error", "id", "state"];

/** How many runs each tab has, up to the server's bound. They are counted once for a filter: with each change it would cost the server more than
 * the list.
 * @param {Record<string, any>} filter @param {boolean} isUsual whether the usual span bounds them @returns {Record<string, number>} */
function useCounts(filter, isUsual) {
  const [found, set] = useState({ key: "", counts: /** @type {Record<string, number>} */ ({}) });
  const key = JSON.stringify([namespace.value, filter, isUsual]);
  useEffect(() => {
    if (filter.error || filter.id) return;
    const abort = new AbortController();
    const words = Object.fromEntries(Object.entries(filter).filter(([name]) => !UNCOUNTED.includes(name)));
    const countOf = async (/** @type {string} */ state) => (await get("/v1/runs:count", { ...words, ...(isUsual ? usualSince(state) : {}), state }, abort.signal)).count;
    const countAll = async () => {
      for (const state of TABS.filter(Boolean)) {  // One after another: a busy server serves few at once.
        const count = await countOf(state).catch(() => null);  // The list says what is wrong with the filter.
        if (abort.signal.aborted) return;
        if (count !== null) set((old) => ({ key, counts: { ...(old.key === key ? old.counts : {}), [state]: count } }));
      }
    };
    countAll();
    return () => abort.abort();
  }, [key]);
  return found.key === key ? found.counts : {};
}

export default function Runs() {
  const words = place.value.query.get("q") ?? "";
  const tab = place.value.query.get("state") ?? "";
  const { found, rest } = readWords(words, FILTERS);
  const spans = Object.fromEntries(["since", "until"].filter((name) => found[name]).map((name) => [name, instantOf(found[name])]));
  const isUsual = !words && place.value.query.get("since") !== "all";
  const [usual] = useState(() => usualSince(""));
  const isBounded = isUsual && !UNENDED.includes(tab);
  const filter = { ...(tab ? { state: tab } : {}), ...found, ...spans, ...(rest ? { id: rest } : {}) };
  const { state: _, ...others } = filter;
  const counts = useCounts(others, isUsual);
  const cols = place.value.query.get("cols");
  const columns = columnsOf(cols);
  const kept = { q: words, cols, since: isUsual ? "" : place.value.query.get("since") };
  const bounds = { ...filter, ...(isBounded ? usual : {}) };
  const query = { limit: 100, fields: "row", ...bounds };
  const runs = usePages("/v1/runs", query, (news) => news.more || news.runs.size > 0);
  const [chosen, setChosen] = useState(new Set());
  const done = () => {
    setChosen(new Set());
    runs.reload();
  };
  const controls = may("runs:control");
  useEffect(() => {  // On a small screen the tabs scroll; the page itself must not, since Back restores its place.
    const chosen = /** @type {HTMLElement | null} */ (document.querySelector(".tabs a[aria-current]"));
    if (chosen?.parentElement) chosen.parentElement.scrollLeft = chosen.offsetLeft - chosen.parentElement.offsetLeft - 40;
  }, [tab, Object.keys(counts).length]);
  return html`
    <${Head} title="Runs" actions=${may("runs:submit") && html`<a class="button" href=${to("/new-run")}>New run</a>`} />
    <nav class="tabs" aria-label="state">${TABS.map((each) => html`<a href=${to("/runs", { ...kept, state: each })} aria-current=${each === tab ? "page" : null}>${each || "all"}${counts[each] > 0 && html` <span class="tally">${bounded(counts[each])}</span>`}</a>`)}</nav>
    <div class="toolbar">
      <${Search} value=${words} label="filter runs" names=${FILTERS} placeholder="job:etl queue:gpu since:24h, or an id" />
      ${isBounded && html`<span class="chip"><code>since:${USUAL}</code><a href=${to("/runs", { ...kept, state: tab, since: "all" })} aria-label="show runs of all time">✕</a></span>`}
      <${Columns} shown=${columns} />
      <${Fresh} of=${runs} />
      <${Bulk} chosen=${chosen} filter=${bounds} isWhole=${Object.keys(filter).length > 0 && chosen.size >= runs.rows.length} done=${done} />
    </div>
    <${Loaded} of=${runs}>${() => runs.rows.length
      ? html`<${Table} label="runs" columns=${columns} rows=${runs.rows} id=${(/** @type {any} */ run) => run.run_id} href=${runHref} more=${runs.more}
          chosen=${controls ? chosen : undefined} onChoose=${controls ? setChosen : undefined} />`
      : isBounded
        ? html`<${Empty} command="mainspring run submit TASK --app work.py">No run${tab && ` that ${tab === "failed" || tab === "succeeded" ? tab : `was ${tab}`}`} in the last 24 hours. <a href=${to("/runs", { ...kept, state: tab, since: "all" })}>Show all</a></${Empty}>`
        : words || tab
        ? html`<${Empty}>No run matches <code>${[tab && `state:${tab}`, words].filter(Boolean).join(" ")}</code>. ${notFilters(rest, FILTERS)}<a href=${to("/runs")}>Clear the filters</a></${Empty}>`
        : html`<${Empty} command="mainspring run submit TASK --app work.py">There are no runs yet.</${Empty}>`}</${Loaded}>`;
}
