/** Small drawings as SVG: a strip of outcomes, a trend, bars of outcomes over time. Colour comes from the class of the state. */
import { length, lookOf } from "../draw/text.js";
import { html } from "../html.js";

const CELL = 11;
const BAR_HEIGHT = 72;
const STACK = ["failed", "missed", "skipped", "cancelled", "succeeded"];

/** The outcomes of the latest firings, oldest first; one glyph each, and all of them as text. Strips end at the newest, so those of a table are aligned.
 * @param {{ outcomes: string[] }} given */
export function Strip({ outcomes }) {
  if (!outcomes.length) return html`<span class="muted">never</span>`;
  const bad = STACK.slice(0, 2).map((state) => [state, outcomes.filter((each) => each === state).length]).filter(([, count]) => count);
  const label = `last ${outcomes.length}: ${bad.length ? bad.map(([state, count]) => `${count} ${state}`).join(", ") : "all well"}`;
  return html`<svg class="strip" role="img" aria-label=${label} width=${outcomes.length * CELL} height="16" viewBox=${`0 0 ${outcomes.length * CELL} 16`}>
    <title>${label}</title>
    ${outcomes.map((each, n) => mark(each, n))}</svg>`;
}

/** @param {string} outcome @param {number} n */
function mark(outcome, n) {
  const look = lookOf(outcome);
  const isBad = outcome === "failed" || outcome === "missed";
  return html`<g class=${`s-${look.tone}`}>
    ${isBad && html`<rect x=${n * CELL} y="1" width=${CELL - 1} height="14" rx="2" fill="currentColor" />`}
    <text x=${n * CELL + CELL / 2 - 0.5} y="12" text-anchor="middle" class=${isBad ? "on-state" : ""} fill=${isBad ? null : "currentColor"}>${look.glyph}</text></g>`;
}

/** Counts over time as bars of one tone.
 * @param {{ counts: number[], label: string, tone?: string }} given */
export function Trend({ counts, label, tone = "failed" }) {
  const most = Math.max(...counts, 1);
  return html`<svg class=${`trend s-${tone}`} role="img" aria-label=${label} width=${counts.length * 5} height="20" viewBox=${`0 0 ${counts.length * 5} 20`}><title>${label}</title>
    ${counts.map((count, n) => {
      const height = count ? Math.max((count / most) * 18, 2) : 1;
      return html`<rect x=${n * 5} y=${20 - height} width="4" height=${height} fill="currentColor" opacity=${count ? 1 : 0.25} />`;
    })}</svg>`;
}

/** What an axis begins and ends with, and what the highest bar stands for.
 * @param {[string, string] | undefined} ends @param {string | false} [most] */
function axisOf(ends, most) {
  return ends && html`<p class="ends muted" aria-hidden="true"><span>${ends[0]}</span>${most && html`<span>${most}</span>`}<span>${ends[1]}</span></p>`;
}

/** Counts over time, in ink: they are no state.
 * @param {{ counts: number[], label: string, ends?: [string, string] }} given */
export function Columns({ counts, label, ends }) {
  const most = Math.max(...counts, 1);
  const step = 100 / Math.max(counts.length, 1);
  return html`<svg class="ahead" role="img" aria-label=${label} viewBox="0 0 100 40" preserveAspectRatio="none" width="100%" height="40"><line class="axis" x1="0" x2="100" y1="39.5" y2="39.5" />
    ${counts.map((count, n) => count > 0 && html`<rect x=${n * step + step * 0.12} y=${39 - Math.max((count / most) * 36, 1.5)} width=${step * 0.76} height=${Math.max((count / most) * 36, 1.5)} />`)}</svg>${axisOf(ends)}`;
}

/** Outcomes by period as stacked bars.
 * @param {{ buckets: Record<string, any>[], label: string, words: (bucket: any) => string, ends?: [string, string], each?: string }} given `each`: how long a bar is */
export function Bars({ buckets, label, words, ends, each: width }) {
  const totals = buckets.map((each) => STACK.reduce((sum, state) => sum + (each[state] ?? 0), 0));
  const most = Math.max(...totals, 1);
  const step = 100 / Math.max(buckets.length, 1);
  return html`<figure class="bars"><svg role="img" aria-label=${label} viewBox=${`0 0 100 ${BAR_HEIGHT}`} preserveAspectRatio="none" width="100%" height=${BAR_HEIGHT}>
      <line class="axis" x1="0" x2="100" y1=${BAR_HEIGHT - 0.5} y2=${BAR_HEIGHT - 0.5} />
      ${buckets.map((bucket, n) => stack(bucket, n * step, step, most, words(bucket)))}</svg>${axisOf(ends, width && totals.some(Boolean) && `at most ${most.toLocaleString("en-GB")} in ${width}`)}</figure>`;
}

/** @param {Record<string, any>} bucket @param {number} x @param {number} step @param {number} most @param {string} title */
function stack(bucket, x, step, most, title) {
  let y = BAR_HEIGHT;
  const parts = STACK.filter((state) => bucket[state]).map((state) => {
    const height = Math.max((bucket[state] / most) * (BAR_HEIGHT - 6), 1.5);
    y -= height;
    return html`<rect class=${`s-${lookOf(state).tone}`} x=${x + step * 0.12} y=${y} width=${step * 0.76} height=${height} fill="currentColor" />`;
  });
  return html`<g><title>${title}</title><rect x=${x} y="0" width=${step} height=${BAR_HEIGHT} fill="transparent" />${parts}</g>`;
}

/** Half the width of the dash that stands for a value without neighbours: a line needs two. */
const DASH = 1.2;

/** The path of a series: a gap where a value is missing.
 * @param {(number | null)[]} values @param {(n: number) => number} x @param {number} most */
export function pathOf(values, x, most) {
  const y = (/** @type {number} */ value) => (BAR_HEIGHT - 2 - (value / most) * (BAR_HEIGHT - 8)).toFixed(2);
  const has = (/** @type {number} */ n) => (values[n] ?? null) !== null;
  return values.map((value, n) => {
    if (value === null) return "";
    if (!has(n - 1) && !has(n + 1)) return `M${Math.max(x(n) - DASH, 0).toFixed(2)} ${y(value)}H${Math.min(x(n) + DASH, 100).toFixed(2)}`;
    return `${has(n - 1) ? "L" : "M"}${x(n).toFixed(2)} ${y(value)}`;
  }).join("");
}

/** A few series over a span that ends now as lines, from zero up; the newest values stand beside their names.
 * @param {{ label: string, at: string[], span: number, ends: [string, string], series: { name: string, values: (number | null)[] }[] }} given `span` in milliseconds */
export function Lines({ label, at, span, ends, series }) {
  const most = Math.max(...series.flatMap((each) => each.values.map((value) => value ?? 0)), 0.001);
  const last = Date.parse(at[at.length - 1]);
  const x = (/** @type {number} */ n) => Math.max(100 - ((last - Date.parse(at[n])) / span) * 100, 0);
  const newest = (/** @type {(number | null)[]} */ values) => values.findLast((value) => value !== null);
  return html`<figure class="plot"><div class="frame"><p class="high muted" aria-hidden="true"><span>${seconds(most)}</span><span>0</span></p><svg role="img" aria-label=${`${label}, at most ${seconds(most)}`} viewBox=${`0 0 100 ${BAR_HEIGHT}`} preserveAspectRatio="none" width="100%" height=${BAR_HEIGHT}>
      <line class="axis" x1="0" x2="100" y1=${BAR_HEIGHT - 0.5} y2=${BAR_HEIGHT - 0.5} />
      ${series.map((each, n) => html`<path d=${pathOf(each.values, x, most)} class=${`line-${n}`} vector-effect="non-scaling-stroke" />`)}</svg>${axisOf(ends)}</div>
    <figcaption class="muted">${series.map((each, n) => html`<span class=${`key-${n}`}>${each.name} ${seconds(newest(each.values) ?? 0)}</span>`)}<span>on the newest day; peak ${seconds(most)}</span></figcaption></figure>`;
}

/** @param {number} value */
function seconds(value) {
  return value === 0 ? "0 s" : length(value * 1000);
}
