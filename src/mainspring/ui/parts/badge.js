/** A state, as glyph and word. */
import { lookOf } from "../draw/states.js";
import { html } from "../html.js";

/** @param {{ state: string, word?: string }} given */
export function Badge({ state, word }) {
  const look = lookOf(state);
  return html`<span class=${`badge s-${look.tone}`}><span class="glyph" aria-hidden="true">${look.glyph}</span>${word ?? look.word}</span>`;
}

/** The last outcomes of a job, oldest first, one glyph each.
 * @param {{ outcomes: string[] }} given */
export function Strip({ outcomes }) {
  const words = outcomes.map((each) => lookOf(each).word).join(", ");
  return html`<svg class="strip" width=${Math.max(outcomes.length, 1) * 10} height="16" role="img" aria-label=${`last outcomes: ${words || "none"}`}>
    ${outcomes.map((each, n) => {
      const look = lookOf(each);
      return html`<text x=${n * 10 + 5} y="12" text-anchor="middle" class=${`s-${look.tone}`} fill="currentColor">${look.glyph}</text>`;
    })}
  </svg>`;
}

/** How much of a capacity is used.
 * @param {{ used: number, of: number }} given */
export function Meter({ used, of }) {
  const share = of ? Math.min(used / of, 1) : 0;
  const fill = (/** @type {HTMLElement | null} */ bar) => bar && (bar.style.width = `${share * 100}%`);
  return html`<span class="meter" role="meter" aria-valuenow=${used} aria-valuemin="0" aria-valuemax=${of} aria-label=${`${used} of ${of}`}><i ref=${fill}></i></span>`;
}
