/** Tables: one description of the columns, cards on small screens, rows by keyboard, and more by cursor. */
import { html, useEffect, useRef, useState } from "../html.js";
import { go } from "../router.js";

/** @typedef {{ name: string, cell: (row: any) => any, number?: boolean, tight?: boolean }} Column */

/** @param {{ columns: Column[], rows: any[], href?: (row: any) => string, id: (row: any) => string, label: string, more?: () => void,
 *   chosen?: Set<string>, onChoose?: (ids: Set<string>) => void }} given */
export function Table({ columns, rows, href, id, label, more, chosen, onChoose }) {
  const [focused, setFocused] = useState(-1);
  const body = useRef(/** @type {HTMLElement | null} */ (null));
  useRowKeys(rows, focused, setFocused, href, (row) => onChoose?.(toggled(chosen, id(row))));
  useEffect(() => {
    body.current?.querySelectorAll("tr")[focused]?.scrollIntoView({ block: "nearest" });
  }, [focused]);
  const all = rows.length > 0 && rows.every((row) => chosen?.has(id(row)));
  const chooseAll = () => onChoose?.(all ? new Set() : new Set(rows.map(id)));
  return html`<div class="table">
    <table aria-label=${label}>
      <thead><tr>
        ${onChoose && html`<th class="tight"><input type="checkbox" aria-label="select all shown" checked=${all} onChange=${chooseAll} /></th>`}
        ${columns.map((each) => (each.name ? html`<th scope="col" class=${each.number ? "number" : ""}>${each.name}</th>` : html`<td></td>`))}
      </tr></thead>
      <tbody ref=${body}>
        ${rows.map((row, n) => html`<tr key=${id(row)} class=${`${n === focused ? "focused" : ""} ${chosen?.has(id(row)) ? "chosen" : ""}`}>
          ${onChoose && html`<td class="tight" data-label=""><input type="checkbox" aria-label=${`select ${id(row)}`} checked=${chosen?.has(id(row))}
            onChange=${() => onChoose(toggled(chosen, id(row)))} /></td>`}
          ${columns.map((each) => html`<td data-label=${each.name} class=${`${each.number ? "number" : ""} ${each.tight ? "tight" : ""}`}>${each.cell(row)}</td>`)}
        </tr>`)}
      </tbody>
    </table>
    ${more && html`<button class="more plain" onClick=${more}>Show more</button>`}
  </div>`;
}

/** @param {Set<string> | undefined} chosen @param {string} id */
function toggled(chosen, id) {
  const next = new Set(chosen);
  next.has(id) ? next.delete(id) : next.add(id);
  return next;
}

/** `j` and `k` move, Enter opens, `x` selects.
 * @param {any[]} rows @param {number} focused @param {(n: number) => void} setFocused
 * @param {((row: any) => string) | undefined} href @param {(row: any) => void} choose */
function useRowKeys(rows, focused, setFocused, href, choose) {
  useEffect(() => {
    const press = (/** @type {CustomEvent} */ event) => {
      const key = event.detail;
      if (key === "j") setFocused(Math.min(focused + 1, rows.length - 1));
      else if (key === "k") setFocused(Math.max(focused - 1, 0));
      else if (key === "Enter" && href && rows[focused]) go(href(rows[focused]));
      else if (key === "x" && rows[focused]) choose(rows[focused]);
    };
    addEventListener("mainspring-key", /** @type {EventListener} */ (press));
    return () => removeEventListener("mainspring-key", /** @type {EventListener} */ (press));
  });
}
