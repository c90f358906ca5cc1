/** The audit trail: who changed what. */
import { html } from "../html.js";
import { write } from "../parts/json.js";
import { readWords, Search, usePages } from "../parts/lists.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { place } from "../router.js";

/** What differs between before and after, by field.
 * @param {any} before @param {any} after */
export function difference(before, after) {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  return [...names].filter((name) => write(before?.[name]) !== write(after?.[name])).map((name) => ({ name, before: before?.[name], after: after?.[name] }));
}

/** @param {{ change: any }} given */
function Difference({ change }) {
  const found = difference(change.before, change.after);
  if (!found.length) return html`<span class="muted">–</span>`;
  return html`<ul>${found.slice(0, 6).map((each) => html`<li><span class="muted">${each.name}</span> <span class="mono">${write(each.before).slice(0, 60)} → ${write(each.after).slice(0, 60)}</span></li>`)}${found.length > 6 ? html`<li class="muted">and ${found.length - 6} more</li>` : null}</ul>`;
}

const COLUMNS = [
  { name: "When", tight: true, cell: (/** @type {any} */ it) => html`<${When} at=${it.at} />` },
  { name: "Subject", tight: true, cell: (/** @type {any} */ it) => it.subject },
  { name: "Action", tight: true, cell: (/** @type {any} */ it) => html`<span class="mono">${it.action}</span>` },
  { name: "Target", cell: (/** @type {any} */ it) => it.target },
  { name: "Difference", cell: (/** @type {any} */ it) => html`<${Difference} change=${it} />` },
];

export default function Audit() {
  const words = place.value.query.get("q") ?? "";
  const { found, rest } = readWords(words, ["subject", "target"]);
  const changes = usePages("/v1/audit", { limit: 100, ...found, ...(rest ? { target: rest } : {}) });
  return html`<${Head} title="Audit" />
    <div class="toolbar"><${Search} value=${words} label="filter the audit trail" placeholder="subject:ann target:etl-nightly" /></div>
    <${Loaded} of=${changes}>${() => changes.rows.length
      ? html`<${Table} label="changes" columns=${COLUMNS} rows=${changes.rows} id=${(/** @type {any} */ it) => `${it.number}`} more=${changes.more} />`
      : html`<${Empty}>Nothing was changed.</${Empty}>`}</${Loaded}>`;
}
