/** Jobs: what there is, when each is due, and how its latest firings went; as a list, or as a ledger of all jobs by day. */
import { length } from "../draw/text.js";
import { html, useState } from "../html.js";
import { askForAll } from "../parts/bulk.js";
import { Strip } from "../parts/chart.js";
import { AllLedgers } from "../parts/all_ledgers.js";
import { Fresh, notFilters, readWords, Search, usePages } from "../parts/lists.js";
import { Badge, breakable, Empty, Head, Loaded } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { jobHref, place, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";

/** @typedef {import("../records.d.ts").ListedJob} ListedJob */

const FILTERS = ["state", "task", "tag", "app", "queue", "name"];
const SORTS = [["name", "name"], ["next", "next due"], ["last", "last fired"]];
const RECENT = 30;

const COLUMNS = [
  { name: "Name", lead: true, cell: (/** @type {ListedJob} */ job) => html`<a href=${jobHref(job)}>${breakable(job.name)}</a>` },
  { name: "State", tight: true, cell: (/** @type {ListedJob} */ job) => html`<${Badge} state=${job.state} />` },
  { name: "Schedule", cell: (/** @type {ListedJob} */ job) => html`<span class="schedule" title=${job.schedule}>${job.schedule_text ?? job.schedule}</span>` },
  { name: "Next", tight: true, cell: (/** @type {ListedJob} */ job) => (job.state === "active" ? html`<${When} at=${job.next_fire_at} plain />` : html`<span class="muted">–</span>`) },
  { name: `Last ${RECENT} firings`, tight: true, number: true, cell: (/** @type {ListedJob} */ job) => Strip({ outcomes: job.recent ?? [] }) },
  { name: "Took p50", tight: true, number: true, cell: (/** @type {ListedJob} */ job) => Seconds(job.took_p50, "half of its runs took at most this long") },
  { name: "Late p50", tight: true, number: true, cell: (/** @type {ListedJob} */ job) => Seconds(job.late_p50, "half of its runs began at most this long after their instant") },
  { name: "Queue", tight: true, cell: (/** @type {ListedJob} */ job) => job.queue },
];

/** @param {number | null | undefined} seconds @param {string} title */
function Seconds(seconds, title) {
  return typeof seconds === "number" ? html`<span title=${`${title}, in the latest 24 hours in which it ran`}>${length(seconds * 1000)}</span>` : html`<span class="muted">–</span>`;
}

/** How many jobs there are, whatever the filter.
 * @param {{ of: import("../records.d.ts").JobCounts }} given */
function Totals({ of }) {
  const more = of.at_least ? "+" : "";
  const [jobs, active, paused] = [of.jobs, of.active, of.paused].map((count) => count.toLocaleString("en-GB"));
  return html`<span class="muted">${jobs}${more} ${of.jobs === 1 ? "job" : "jobs"} · <a href=${to("/jobs", { q: "state:active" })}>active ${active}${more}</a> · <a href=${to("/jobs", { q: "state:paused" })}>paused ${paused}</a></span>`;
}

/** @param {{ words: string, filter: Record<string, any>, chosen: Set<string>, total: number, done: () => void }} given */
function Bulk({ words, filter, chosen, total, done }) {
  const [all, setAll] = useState(false);
  if (chosen.size === 0) return null;
  const selection = all ? filter : { jobs: [...chosen] };
  const act = (/** @type {string} */ verb) => askForAll("jobs", verb, selection, all ? `all that match ${words || "anything"}` : "selected", done);
  return html`<span>${all ? "all that match selected" : `${chosen.size} selected`}</span>
    ${!all && chosen.size >= total && Object.keys(filter).length > 0 && html`<button class="plain" onClick=${() => setAll(true)}>Select all that match</button>`}
    <button onClick=${() => act("pause")}>Pause</button><button onClick=${() => act("resume")}>Resume</button><button onClick=${() => act("trigger")}>Trigger</button>`;
}

export default function Jobs() {
  const words = place.value.query.get("q") ?? "";
  const sort = place.value.query.get("sort") ?? "name";
  const counts = useResource("/v1/jobs:count", undefined, (news) => news.more || news.jobs.size > 0);
  const isLedger = place.value.query.get("view") === "ledger";
  return html`
    <${Head} title="Jobs" actions=${may("jobs:create") && html`<a class="button" href=${to("/new-job")}>New job</a>`}>${counts.data && html`<${Totals} of=${counts.data} />`}</${Head}>
    <nav class="tabs" aria-label="view"><a href=${to("/jobs", { q: words })} aria-current=${isLedger ? null : "page"}>List</a><a href=${to("/jobs", { q: words, view: "ledger" })} aria-current=${isLedger ? "page" : null}>Ledger of all</a></nav>
    ${isLedger ? html`<${AllLedgers} />` : html`<${List} words=${words} sort=${sort} />`}`;
}

/** @param {{ words: string, sort: string }} given */
function List({ words, sort }) {
  const { found, rest } = readWords(words, FILTERS);
  const filter = { ...found, ...(rest ? { q: rest } : {}) };
  const jobs = usePages("/v1/jobs", { limit: 100, fields: "row", recent: RECENT, times: true, sort, ...filter }, (news) => news.more || news.jobs.size > 0);
  const [chosen, setChosen] = useState(new Set());
  const done = () => (setChosen(new Set()), jobs.reload());
  const operates = may("jobs:operate");
  return html`<div class="toolbar">
      <${Search} value=${words} label="filter jobs" names=${FILTERS} placeholder="state:paused task:etl tag:nightly, or part of a name" />
      <nav class="spans" aria-label="order">${SORTS.map(([each, name]) => html`<a href=${to("/jobs", { q: words, sort: each === "name" ? "" : each })} aria-current=${each === sort ? "true" : null}>${name}</a>`)}</nav>
      <${Fresh} of=${jobs} />
      <${Bulk} words=${words} filter=${filter} chosen=${chosen} total=${jobs.rows.length} done=${done} />
    </div>
    <${Loaded} of=${jobs}>${() => jobs.rows.length
      ? html`<${Table} label="jobs" columns=${COLUMNS} rows=${jobs.rows} id=${(/** @type {any} */ job) => job.name} href=${jobHref} more=${jobs.more}
          chosen=${operates ? chosen : undefined} onChoose=${operates ? setChosen : undefined} />`
      : words
        ? html`<${Empty}>No job matches <code>${words}</code>. ${notFilters(rest, FILTERS)}<a href=${to("/jobs")}>Clear the filter</a></${Empty}>`
        : html`<${Empty} command='mainspring job add hello --every 30s --command "echo hello"'>There are no jobs yet.</${Empty}>`}</${Loaded}>`;
}
