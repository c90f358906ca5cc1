/** All jobs by day or hour: a bad night is one dark column. */
import { lookOf } from "../draw/text.js";
import { html, useRef } from "../html.js";
import { jobNamed, place, to } from "../router.js";
import { useScrolledToEnd } from "./ledger.js";
import { usePages } from "./lists.js";
import { Empty, Loaded } from "./page.js";
import { lengthOf, now, since, Spans, zoneOf } from "./when.js";

/** @typedef {import("../records.d.ts").LedgerRow} LedgerRow */

const WIDTHS = /** @type {Record<string, string>} */ ({ "24h": "1h", "30d": "1d" });
const WORST = ["failed", "missed", "skipped", "cancelled", "succeeded"];

/** @param {Record<string, number> | undefined} counts */
function Cell(counts) {
  const worst = counts && WORST.find((each) => counts[each]);
  if (!worst) return null;
  const label = WORST.filter((each) => counts[each]).map((each) => `${counts[each]} ${each}`).join(", ");
  const look = lookOf(worst);
  return html`<span class=${`cell s-${look.tone} o-${worst}`} role="img" aria-label=${label} title=${label}>${look.glyph}</span>`;
}

/** The beginnings of the periods, as the server writes them.
 * @param {string} span */
function columnsOf(span) {
  const width = lengthOf(WIDTHS[span]);
  const last = Math.floor(now().getTime() / width) * width;
  return Array.from({ length: Math.round(lengthOf(span) / width) + 1 }, (_, n) => last - (Math.round(lengthOf(span) / width) - n) * width);
}

/** Columns that the text `26 Oct` needs. */
const APART = 3;

/** The text above each column: every hour, or every Monday with its month.
 * @param {number[]} columns @param {string} span */
function headsOf(columns, span) {
  const write = new Intl.DateTimeFormat("en-GB", span === "24h" ? { hour: "2-digit", hourCycle: "h23", timeZone: zoneOf() } : { day: "numeric", month: "short", timeZone: "UTC" });
  const isShown = (/** @type {number} */ at, /** @type {number} */ n) => span === "24h" || (new Date(at).getUTCDay() === 1 && n <= columns.length - APART);
  return columns.map((at, n) => (isShown(at, n) ? write.format(at) : ""));
}

export function AllLedgers() {
  const span = place.value.query.get("span") === "24h" ? "24h" : "30d";
  const rows = usePages("/v1/ledger", { since: since(span), bucket: WIDTHS[span], limit: 50 }, (news) => news.more);
  const columns = columnsOf(span);
  return html`<div class="toolbar"><${Spans} chosen=${span} choices=${["24h", "30d"]} /><span class="muted">${span === "30d" ? "days in UTC" : `hours in ${zoneOf()}`}</span></div>
    <${Loaded} of=${rows}>${() => rows.rows.length === 0 ? html`<${Empty}>There are no jobs yet.</${Empty}>` : html`<${All} rows=${rows} columns=${columns} span=${span} />`}</${Loaded}>`;
}

/** @param {{ rows: ReturnType<typeof usePages>, columns: number[], span: string }} given */
function All({ rows, columns, span }) {
  const table = useRef(/** @type {HTMLElement | null} */ (null));
  useScrolledToEnd(table, true);
  const at = (/** @type {LedgerRow} */ row) => new Map(Object.entries(row.cells).map(([begin, counts]) => [Date.parse(begin), counts]));
  return html`<section class="panel"><div class="body"><div class="ledger all"><table ref=${table} aria-label="ledger of all jobs">
      <thead><tr><td></td>${headsOf(columns, span).map((each) => (each ? html`<th scope="col">${each}</th>` : html`<td></td>`))}</tr></thead>
      <tbody>${rows.rows.map((/** @type {LedgerRow} */ row) => {
        const cells = at(row);
        return html`<tr key=${row.job}><th scope="row"><a href=${jobNamed(row.job)}>${row.job}</a></th>${cells.size === 0 ? html`<td class="none muted" colspan=${columns.length}><span>did not fire in this span</span></td>` : columns.map((each) => html`<td>${Cell(cells.get(each))}</td>`)}</tr>`;
      })}</tbody></table></div>${rows.more && html`<button class="more plain" onClick=${rows.more}>Show more</button>`}</div></section>`;
}
