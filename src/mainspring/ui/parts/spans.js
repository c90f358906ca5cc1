/** The span of time that a page shows: one of a few, kept in the address. */
import { html } from "../html.js";
import { place, to } from "../router.js";
import { now } from "./when.js";

const MS = /** @type {Record<string, number>} */ ({ m: 60_000, h: 3_600_000, d: 86_400_000 });
const NAMES = /** @type {Record<string, string>} */ ({ "15m": "15 minutes", "1h": "1 hour", "6h": "6 hours", "24h": "24 hours", "7d": "7 days", "30d": "30 days" });

/** The length of `24h` in milliseconds.
 * @param {string} span */
export function lengthOf(span) {
  const found = /^(\d+)([mhd])$/.exec(span);
  return found ? Number(found[1]) * MS[found[2]] : MS.d;
}

/** The instant that a span ago was, to the minute, so that equal questions have equal addresses.
 * @param {string} span */
export function since(span) {
  return new Date(Math.floor((now().getTime() - lengthOf(span)) / 60_000) * 60_000).toISOString();
}

/** @param {{ chosen: string, choices?: string[] }} given */
export function Spans({ chosen, choices = ["1h", "24h", "7d", "30d"] }) {
  const words = Object.fromEntries(place.value.query);
  return html`<nav class="spans" aria-label="span">${choices.map((each) => html`<a href=${to(place.value.path, { ...words, span: each })} aria-current=${each === chosen ? "true" : null}>${NAMES[each] ?? each}</a>`)}</nav>`;
}
