/** A job among its neighbours, in layers from left to right: what it follows, itself, what follows it. */
import { cut, lookOf } from "../draw/text.js";
import { html } from "../html.js";
import { jobNamed } from "../router.js";

/** @typedef {import("../records.d.ts").RelatedJob} RelatedJob */

const [WIDE, HIGH, GAP, ROW] = [290, 26, 70, 34];
/** Beyond this many the list beside it says more than a drawing. */
const MOST = 200;
const LONGEST = 34;

/** Names as there is room for them: those that would read alike show their ends.
 * @param {string[]} names */
function shown(names) {
  const short = names.map((each) => cut(each, LONGEST));
  return short.map((each, n) => (short.indexOf(each) === short.lastIndexOf(each) ? each : `…${names[n].slice(1 - LONGEST)}`));
}

/** @param {{ name: string, text?: string, x: number, y: number, outcome: string | null | undefined, isOwn?: boolean }} given */
function Node({ name, text = cut(name, LONGEST), x, y, outcome, isOwn = false }) {
  const look = outcome ? lookOf(outcome) : null;
  return html`<a href=${jobNamed(name)} aria-label=${`${name}${look ? `, ${look.word}` : ""}`}><rect class=${isOwn ? "own" : ""} x=${x} y=${y} width=${WIDE} height=${HIGH} rx="6" />
    ${look && html`<text class=${`s-${look.tone}`} fill="currentColor" x=${x + 10} y=${y + 17}>${look.glyph}</text>`}
    <text class="name" x=${x + (look ? 28 : 12)} y=${y + 17}>${text}</text><title>${name}</title></a>`;
}

/** @param {{ job: { name: string }, upstream: RelatedJob[], downstream: RelatedJob[] }} given */
export function Neighbours({ job, upstream, downstream }) {
  const count = upstream.length + downstream.length;
  if (count === 0 || count >= MOST) return null;
  const height = Math.max(upstream.length, downstream.length, 1) * ROW;
  const top = (/** @type {number} */ n, /** @type {number} */ of) => (height - of * ROW) / 2 + n * ROW + (ROW - HIGH) / 2;
  const own = upstream.length ? WIDE + GAP : 0;
  const right = own + WIDE + GAP;
  const middle = top(0, 1) + HIGH / 2;
  const curve = (/** @type {number} */ x, /** @type {number} */ from, /** @type {number} */ to) => `M${x},${from} C${x + GAP / 2},${from} ${x + GAP / 2},${to} ${x + GAP},${to}`;
  const [before, after] = [upstream, downstream].map((jobs) => shown(jobs.map((each) => each.name)));
  const width = (downstream.length ? right : own) + WIDE;
  return html`<div class="graph"><svg role="group" aria-label=${`jobs before and after ${job.name}`} width=${width + 2} height=${height + 2} viewBox=${`-1 -1 ${width + 2} ${height + 2}`}>
    ${upstream.map((_, n) => html`<path d=${curve(WIDE, top(n, upstream.length) + HIGH / 2, middle)} />`)}
    ${downstream.map((_, n) => html`<path d=${curve(own + WIDE, middle, top(n, downstream.length) + HIGH / 2)} />`)}
    ${upstream.map((each, n) => Node({ name: each.name, text: before[n], x: 0, y: top(n, upstream.length), outcome: each.latest_outcome }))}
    ${Node({ name: job.name, x: own, y: top(0, 1), outcome: null, isOwn: true })}
    ${downstream.map((each, n) => Node({ name: each.name, text: after[n], x: right, y: top(n, downstream.length), outcome: each.latest_outcome }))}</svg></div>`;
}
