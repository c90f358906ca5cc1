/** Jobs: what there is, when each is due, and how its latest firings went; as a list, or as a ledger of all jobs by day. */
import { html, useState } from "../html.js";
import { askForAll } from "../parts/bulk.js";
import { Strip } from "../parts/chart.js";
import { AllLedgers } from "../parts/all_ledgers.js";
import { Fresh, readWords, Search, usePages } from "../parts/lists.js";
import { Badge, Empty, Head, Loaded } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { jobHref, place, to } from "../router.js";
import { may } from "../state/me.js";

/** @typedef {import("../records.d.ts").ListedJob} ListedJob */

const FILTERS = ["state", "task", "tag", "app", "queue", "name"];
const SORTS = [["name", "name"], ["next", "next due"], ["last", "last fired"]];
const RECENT = 30;

const COLUMNS = [
  { name: "Name", cell: (/** @type {ListedJob} */ job) => html`<a href=${jobHref(job)}>${job.name}</a>` },
  { name: "State", tight: true, cell: (/** @type {ListedJob} */ job) => html`<${Badge} state=${job.state} />` },
  { name: "Schedule", cell: (/** @type {ListedJob} */ job) => html`<span class="schedule" title=${job.schedule}>${job.schedule_text ?? job.schedule}</span>` },
  { name: "Next", tight: true, cell: (/** @type {ListedJob} */ job) => (job.state === "active" ? html`<${When} at=${job.next_fire_at} plain />` : html`<span class="muted">–</span>`) },
  { name: `Last ${RECENT} firings`, tight: true, cell: (/** @type {ListedJob} */ job) => Strip({ outcomes: job.recent ?? [] }) },
  { name: "Queue", tight: true, cell: (/** @type {ListedJob} */ job) => job.queue },
];

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
  const isLedger = place.value.query.get("view") === "ledger";
  return html`
    <${Head} title="Jobs" actions=${may("jobs:create") && html`<a class="button" href=${to("/new-job")}>New job</a>`} />
    <nav class="tabs" aria-label="view"><a href=${to("/jobs", { q: words })} aria-current=${isLedger ? null : "page"}>List</a><a href=${to("/jobs", { q: words, view: "ledger" })} aria-current=${isLedger ? "page" : null}>Ledger of all</a></nav>
    ${isLedger ? html`<${AllLedgers} />` : html`<${List} words=${words} sort=${sort} />`}`;
}

/** @param {{ words: string, sort: string }} given */
function List({ words, sort }) {
  const { found, rest } = readWords(words, FILTERS);
  const filter = { ...found, ...(rest ? { q: rest } : {}) };
  const jobs = usePages("/v1/jobs", { limit: 100, fields: "row", recent: RECENT, sort, ...filter }, (news) => news.more || news.jobs.size > 0);
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
        ? html`<${Empty}>No job matches <code>${words}</code>. <a href=${to("/jobs")}>Clear the filter</a></${Empty}>`
        : html`<${Empty} command='mainspring job add hello --every 30s --command "echo hello"'>There are no jobs yet.</${Empty}>`}</${Loaded}>`;
}
