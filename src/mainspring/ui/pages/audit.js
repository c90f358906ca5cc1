/** The audit trail: which subject changed what. */
import { html } from "../html.js";
import { Difference } from "../parts/difference.js";
import { notFilters, readWords, Search, usePages } from "../parts/lists.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { instantOf, When } from "../parts/when.js";
import { place, to } from "../router.js";

const FILTERS = ["subject", "target", "action", "since", "until"];

const PAGES = /** @type {Record<string, (name: string) => string>} */ ({
  job: (name) => to(`/jobs/${encodeURIComponent(name)}`), run: (name) => to(`/runs/${name}`), calendar: (name) => to(`/calendars/${encodeURIComponent(name)}`),
  queue: () => to("/queues"), worker: (name) => to(`/workers/${encodeURIComponent(name)}`),
});
const ID = /^0[0-9a-hjkmnp-tv-z]{25}$/;

/** What was changed, as a link where it has a page: by its name where the change holds it, else by the end of its id.
 * @param {{ of: any }} given */
function Target({ of }) {
  const [kind, ...rest] = of.target.split(":");
  const own = rest.join(":");
  const isId = ID.test(own);
  const word = isId ? (kind === "job" && (of.after ?? of.before)?.name) || `…${own.slice(-8)}` : own;
  return PAGES[kind] && own ? html`<a class=${isId && word.startsWith("…") ? "nowrap" : ""} title=${of.target} href=${PAGES[kind](own)}>${kind} ${word}</a>` : of.target;
}

const COLUMNS = [
  { name: "When", tight: true, cell: (/** @type {any} */ it) => html`<${When} at=${it.at} />` },
  { name: "Subject", tight: true, cell: (/** @type {any} */ it) => it.subject },
  { name: "Action", tight: true, cell: (/** @type {any} */ it) => html`<span class="mono">${it.action}</span>` },
  { name: "Target", cell: (/** @type {any} */ it) => html`<${Target} of=${it} />` },
  { name: "Difference", cell: (/** @type {any} */ it) => html`<${Difference} before=${it.before} after=${it.after} />` },
];

export default function Audit() {
  const words = place.value.query.get("q") ?? "";
  const { found, rest } = readWords(words, FILTERS);
  const changes = usePages("/v1/audit", { limit: 100, ...found, since: instantOf(found.since), until: instantOf(found.until), ...(rest ? { target: rest } : {}) });
  return html`<${Head} title="Audit" />
    <div class="toolbar"><${Search} value=${words} label="filter the audit trail" names=${FILTERS} placeholder="subject:ann target:etl-nightly action:job.pause since:24h" /></div>
    <${Loaded} of=${changes}>${() => changes.rows.length
      ? html`<${Table} label="changes" columns=${COLUMNS} rows=${changes.rows} id=${(/** @type {any} */ it) => `${it.number}`} more=${changes.more} />`
      : html`<${Empty}>${words ? html`No change matches <code>${words}</code>. ${notFilters(rest, FILTERS)}<a href=${to("/audit")}>Clear the filter</a>` : "Nothing was changed."}</${Empty}>`}</${Loaded}>`;
}
