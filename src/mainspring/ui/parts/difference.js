/** What differs between two versions of something, field by field. */
import { html } from "../html.js";
import { write } from "./json.js";

/** Every change changes these. */
const BOOKKEEPING = ["job_id", "version", "created_at", "updated_at", "next_fire_at", "state"];

/** @param {any} before @param {any} after */
export function difference(before, after) {
  const names = new Set([...Object.keys(before ?? {}), ...Object.keys(after ?? {})]);
  return [...names].filter((name) => !BOOKKEEPING.includes(name)).filter((name) => write(before?.[name]) !== write(after?.[name])).map((name) => ({ name, before: before?.[name], after: after?.[name] }));
}

const FEW = 6;
const LONGEST = 80;

/** @param {{ before: any, after: any }} given */
export function Difference({ before, after }) {
  const found = difference(before, after);
  if (!found.length) return html`<span class="muted">–</span>`;
  const text = (/** @type {any} */ value) => {
    const line = value === undefined ? "–" : write(value).replace(/\s+/g, " ");
    return line.length > LONGEST ? `${line.slice(0, LONGEST)}…` : line;
  };
  const isNew = !before;
  return html`<ul class=${isNew ? "difference row" : "difference"}>${found.slice(0, FEW).map((each) => html`<li><span class="muted">${each.name}</span> <span class="mono">${isNew ? text(each.after) : `${text(each.before)} → ${text(each.after)}`}</span></li>`)}${found.length > FEW ? html`<li class="muted">and ${found.length - FEW} more</li>` : null}</ul>`;
}
