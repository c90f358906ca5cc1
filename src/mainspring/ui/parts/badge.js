/** A state, as glyph and word. */
import { lookOf } from "../draw/states.js";
import { html } from "../html.js";

/** @param {{ state: string, word?: string }} given */
export function Badge({ state, word }) {
  const look = lookOf(state);
  return html`<span class=${`badge s-${look.tone}`}><span class="glyph" aria-hidden="true">${look.glyph}</span>${word ?? look.word}</span>`;
}

/** How much of a capacity is used.
 * @param {{ used: number, of: number }} given */
export function Meter({ used, of }) {
  const share = of ? Math.min(used / of, 1) : 0;
  const fill = (/** @type {HTMLElement | null} */ bar) => bar && (bar.style.width = `${share * 100}%`);
  return html`<span class="meter" role="meter" aria-valuenow=${used} aria-valuemin="0" aria-valuemax=${of} aria-label=${`${used} of ${of}`}><i ref=${fill}></i></span>`;
}
