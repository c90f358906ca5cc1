/** Tables: one description of the columns, cards on small screens, rows by keyboard, and more by cursor. Of a long table only the rows near the
 * screen are in the document. */
import { html, useEffect, useRef, useState } from "../html.js";
import { go, remember } from "../router.js";
import { MOST_ROWS } from "./lists.js";

/** @typedef {{ name: string, cell: (row: any) => any, number?: boolean, tight?: boolean, lead?: boolean }} Column `lead`: names the row, and is not broken */

/** Up to this many rows a table is whole in the document. */
const WHOLE = 120;
/** Rows above and below the screen that are drawn, too, so that scrolling never shows a gap. */
const BEYOND = 24;

/** @typedef {{ from: number, to: number, height: number }} Range */

/** Which rows are near the screen, and how high each is.
 * @param {HTMLElement} body @param {number} count @param {Range} old @returns {Range} */
function rangeOf(body, count, old) {
  const [one, other] = body.querySelectorAll("tr[data-row]");
  const height = one instanceof HTMLElement && other instanceof HTMLElement ? other.offsetTop - one.offsetTop : old.height;
  if (count <= WHOLE || !height) return { from: 0, to: Math.min(count, WHOLE), height };
  const above = Math.floor(-body.getBoundingClientRect().top / height) - BEYOND;
  const shown = Math.ceil(innerHeight / height) + 2 * BEYOND;
  const from = Math.max(Math.min(above, count - shown), 0);
  return { from, to: Math.min(from + shown, count), height };
}

/** The rows to draw. It asks for more before the last one is reached.
 * @param {{ current: HTMLElement | null }} body @param {number} count @param {(() => void) | undefined} more @returns {Range} */
function useRange(body, count, more) {
  const [range, set] = useState({ from: 0, to: WHOLE, height: 0 });
  useEffect(() => {
    let frame = 0;
    const look = () => {
      frame = 0;
      if (!body.current) return;
      set((old) => {
        const next = rangeOf(/** @type {HTMLElement} */ (body.current), count, old);
        return next.from === old.from && next.to === old.to && next.height === old.height ? old : next;
      });
      const left = body.current.getBoundingClientRect().bottom - innerHeight;
      if (more && scrollY > 0 && left < innerHeight) more();
    };
    const soon = () => (frame ||= requestAnimationFrame(look));
    look();
    addEventListener("scroll", soon, { passive: true });
    addEventListener("resize", soon);
    return () => {
      cancelAnimationFrame(frame);
      removeEventListener("scroll", soon);
      removeEventListener("resize", soon);
    };
  }, [count, more === undefined]);
  return range;
}

/** Rows to come may be a little longer than those that were measured: `9 ms`, then `10 m 12 s`. */
const SLACK_PX = 24;

/** Columns of a long table keep the widths of its first rows: they must not move while it is scrolled. The widest gives the others room to grow.
 * @param {{ current: HTMLElement | null }} body @param {boolean} isLong */
function useFixedColumns(body, isLong) {
  useEffect(() => {
    const table = body.current?.closest("table");
    if (!table || !isLong) return;
    const fix = () => {
      const heads = [...table.querySelectorAll("th")];
      table.classList.remove("fixed");
      for (const head of heads) head.style.width = "";
      const widths = heads.map((head) => Math.ceil(head.getBoundingClientRect().width));
      const widest = widths.indexOf(Math.max(...widths));
      const slack = Math.min(SLACK_PX, Math.floor(widths[widest] / 2 / heads.length));
      heads.forEach((head, n) => n !== widest && (head.style.width = `${widths[n] + slack}px`));
      table.classList.add("fixed");
    };
    fix();
    addEventListener("resize", fix);
    return () => (removeEventListener("resize", fix), table.classList.remove("fixed"));
  }, [isLong]);
}

/** @param {Column} column */
function classOf(column) {
  return ["number", "tight", "lead"].filter((name) => column[/** @type {"tight"} */ (name)]).join(" ");
}

/** Room for rows that are not drawn.
 * @param {number} height */
function space(height) {
  const size = (/** @type {HTMLElement | null} */ cell) => cell && (cell.style.height = `${height}px`);
  return height > 0 && html`<tr class="space" aria-hidden="true"><td ref=${size}></td></tr>`;
}

/** @param {{ columns: Column[], rows: any[], href?: (row: any) => string, id: (row: any) => string, label: string, more?: () => void,
 *   chosen?: Set<string>, onChoose?: (ids: Set<string>) => void }} given */
export function Table({ columns, rows, href, id, label, more, chosen, onChoose }) {
  const [focused, setFocused] = useState(-1);
  const body = useRef(/** @type {HTMLElement | null} */ (null));
  useRowKeys(rows, focused, setFocused, href, (row) => onChoose?.(toggled(chosen, id(row))));
  const { from, to, height } = useRange(body, rows.length, more);
  const isLong = rows.length > WHOLE;
  useFixedColumns(body, isLong);
  useEffect(() => {
    body.current?.querySelector("tr.focused")?.scrollIntoView({ block: "nearest" });
  }, [focused]);
  useRemembered(rows, href);
  const all = rows.length > 0 && rows.every((row) => chosen?.has(id(row)));
  const chooseAll = () => onChoose?.(all ? new Set() : new Set(rows.map(id)));
  const drawn = (/** @type {any} */ row, /** @type {number} */ n) => html`<tr key=${id(row)} data-row=${id(row)} aria-rowindex=${isLong ? n + 2 : null} class=${`${n === focused ? "focused" : ""} ${chosen?.has(id(row)) ? "chosen" : ""}`}>
    ${onChoose && html`<td class="tight" data-label=""><input type="checkbox" aria-label=${`select ${id(row)}`} checked=${chosen?.has(id(row))}
      onChange=${() => onChoose(toggled(chosen, id(row)))} /></td>`}
    ${columns.map((each) => html`<td data-label=${each.name} class=${classOf(each)}>${each.cell(row)}</td>`)}
  </tr>`;
  return html`<div class="table">
    <table aria-label=${label} aria-rowcount=${isLong ? rows.length + 1 : null}>
      <thead><tr>
        ${onChoose && html`<th class="tight" data-label="select all shown"><input type="checkbox" aria-label="select all shown" checked=${all} onChange=${chooseAll} /></th>`}
        ${columns.map((each) => (each.name ? html`<th scope="col" class=${classOf(each)}>${each.name}</th>` : html`<td></td>`))}
      </tr></thead>
      <tbody ref=${body}>
        ${isLong && space(from * height)}
        ${(isLong ? rows.slice(from, to) : rows).map((row, k) => drawn(row, isLong ? from + k : k))}
        ${isLong && space((rows.length - to) * height)}
      </tbody>
    </table>
    ${more && html`<button class="more plain" onClick=${more}>Show more</button>`}
    ${!more && rows.length >= MOST_ROWS && html`<p class="more muted">These are the first ${rows.length.toLocaleString("en-GB")}: a filter finds the others.</p>`}
  </div>`;
}

/** A table that is left for one of its rows stays the list along which keys step.
 * @param {any[]} rows @param {((row: any) => string) | undefined} href */
function useRemembered(rows, href) {
  const shown = useRef({ rows, href });
  shown.current = { rows, href };
  useEffect(() => () => {
    const hrefs = shown.current.href ? shown.current.rows.map(shown.current.href) : [];
    if (hrefs.some((each) => each.split("?")[0] === location.pathname)) remember(hrefs);
  }, []);
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
