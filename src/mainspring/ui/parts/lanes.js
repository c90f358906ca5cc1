/** Lanes on one time axis, as a canvas with a table beside it: past, running and planned. Failures are drawn last, so none is covered. */
import { share, ticks } from "../draw/lanes.js";
import { cut, lookOf } from "../draw/text.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { go } from "../router.js";
import { theme } from "../state/settings.js";
import { Badge } from "./page.js";
import { now, zoneOf } from "./when.js";

const ROW = 22;
const HEAD = 24;
const GUTTER = 190;
const NARROW_GUTTER = 96;
const LEAST = 3;
/** The width that the text of a tick needs. */
const TICK = 68;
const MOST_TICKS = 10;
const LAST = ["failed", "missed", "lost", "timed_out"];

/** @typedef {import("../draw/lanes.js").Lane} Lane */
/** @typedef {import("../draw/lanes.js").Bar} Bar */

/** @param {number} at @param {number} step @param {boolean} isLong whether the axis is longer than a day: hours alone would repeat */
function tickText(at, step, isLong) {
  const parts = /** @type {Intl.DateTimeFormatOptions} */ (step >= 864e5 ? { day: "numeric", month: "short" } : { ...(isLong ? { weekday: "short" } : {}), hour: "2-digit", minute: "2-digit", ...(step < 6e4 ? { second: "2-digit" } : {}), hourCycle: "h23" });
  return new Intl.DateTimeFormat("en-GB", { ...parts, timeZone: zoneOf() }).format(at);
}

/** How far the clocks of a zone are ahead of UTC.
 * @param {string} zone */
function offsetIn(zone) {
  const writer = new Intl.DateTimeFormat("en-GB", { timeZone: zone, year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric", hourCycle: "h23" });
  return (/** @type {number} */ at) => {
    const part = /** @type {Record<string, number>} */ ({});
    for (const { type, value } of writer.formatToParts(at)) part[type] = Number(value);
    return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second) - Math.floor(at / 1000) * 1000;
  };
}

/** @param {HTMLCanvasElement} canvas @param {Lane[]} lanes @param {number} from @param {number} to */
function paint(canvas, lanes, from, to) {
  const width = canvas.clientWidth;
  const height = HEAD + lanes.length * ROW;
  const scale = devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  pen.scale(scale, scale);
  const style = getComputedStyle(document.documentElement);
  const ink = (/** @type {string} */ name) => style.getPropertyValue(`--${name}`).trim();
  const gutter = width < 600 ? NARROW_GUTTER : GUTTER;
  const x = (/** @type {number} */ at) => gutter + share(at, from, to) * (width - gutter - 8);
  pen.font = "12px system-ui, sans-serif";
  axis(pen, x, from, to, Math.min(Math.floor((width - gutter) / TICK), MOST_TICKS), height, ink);
  lanes.forEach((lane, n) => {
    pen.fillStyle = ink("ink");
    pen.fillText(fitted(pen, lane.label, gutter - 12), 0, HEAD + n * ROW + 15);
  });
  bars(pen, lanes, x, ink);
  pen.fillStyle = ink("ink");
  if (now().getTime() >= from && now().getTime() <= to) pen.fillRect(x(now().getTime()), 18, 1.5, height);
}

/** @param {CanvasRenderingContext2D} pen @param {(at: number) => number} x @param {number} from @param {number} to @param {number} most
 * @param {number} height @param {(name: string) => string} ink */
function axis(pen, x, from, to, most, height, ink) {
  const offset = offsetIn(zoneOf());
  const { step, at } = ticks(from, to, most, offset);
  let free = 0;
  for (const each of at) {
    pen.fillStyle = ink("line");
    pen.fillRect(x(each), 18, 1, height);
    pen.fillStyle = ink("muted");
    const isMidnight = (each + offset(each)) % 864e5 === 0;
    const text = tickText(each, isMidnight ? 864e5 : step, to - from > 864e5);
    const width = pen.measureText(text).width;
    const left = x(each) + 3 + width <= pen.canvas.clientWidth ? x(each) + 3 : x(each) - 3 - width;  // The last one stands before its line.
    if (left >= free) pen.fillText(text, left, 12);
    free = left + width + 4;
  }
}

/** @param {CanvasRenderingContext2D} pen @param {Lane[]} lanes @param {(at: number) => number} x @param {(name: string) => string} ink */
function bars(pen, lanes, x, ink) {
  const all = lanes.flatMap((lane, n) => lane.bars.map((bar) => ({ bar, n })));
  const isLast = (/** @type {Bar} */ bar) => LAST.includes(bar.state);
  for (const { bar, n } of [...all.filter((each) => !isLast(each.bar)), ...all.filter((each) => isLast(each.bar))]) {
    const [left, right] = [x(bar.from), x(bar.to)];
    const isBad = isLast(bar);
    const wide = Math.max(right - left, isBad ? LEAST + 2 : LEAST);
    const [top, high] = [HEAD + n * ROW + (isBad ? 2 : 4), isBad ? ROW - 4 : ROW - 8];
    pen.fillStyle = pen.strokeStyle = ink(lookOf(bar.state).tone);
    if (bar.state === "planned") pen.strokeRect(left + 0.5, top + 0.5, wide, high - 1);
    else pen.fillRect(left, top, wide, high);
    if (wide > 14 && bar.state !== "planned") {
      pen.fillStyle = ink("ground");
      pen.fillText(lookOf(bar.state).glyph, left + 3, top + high - 3);
    }
  }
}

/** @param {CanvasRenderingContext2D} pen @param {string} text @param {number} width */
function fitted(pen, text, width) {
  let most = text.length;
  while (most > 4 && pen.measureText(cut(text, most)).width > width) most -= 1;
  return cut(text, most);
}

/** @param {{ lanes: Lane[], from: number, to: number, label: string, href: (id: string) => string }} given */
export function Lanes({ lanes, from, to, label, href }) {
  const canvas = useRef(/** @type {HTMLCanvasElement | null} */ (null));
  const [told, setTold] = useState("");
  const all = lanes.flatMap((lane, n) => lane.bars.map((bar) => ({ bar, n, lane })));
  const [at, setAt] = useState(-1);
  useEffect(() => {
    const draw = () => canvas.current && paint(canvas.current, lanes, from, to);
    if (canvas.current) canvas.current.style.height = `${HEAD + lanes.length * ROW}px`;
    draw();
    const watch = new ResizeObserver(draw);
    if (canvas.current) watch.observe(canvas.current);
    return () => watch.disconnect();
  }, [lanes, from, to, theme.value]);
  const find = (/** @type {MouseEvent} */ event) => {
    const box = /** @type {HTMLCanvasElement} */ (canvas.current).getBoundingClientRect();
    const row = Math.floor((event.clientY - box.top - HEAD) / ROW);
    const gutter = box.width < 600 ? NARROW_GUTTER : GUTTER;
    const when = from + ((event.clientX - box.left - gutter) / (box.width - gutter - 8)) * (to - from);
    const slack = ((to - from) / box.width) * 4;
    return all.find(({ bar, n }) => n === row && when >= bar.from - slack && when <= Math.max(bar.to, bar.from) + slack);
  };
  const press = (/** @type {KeyboardEvent} */ event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -all.length, End: all.length }[event.key];
    if (event.key === "Enter" && all[at]?.bar.id) go(href(all[at].bar.id));
    if (!step) return;
    event.preventDefault();
    const next = Math.min(Math.max(at + step, 0), all.length - 1);
    setAt(next);
    setTold(all[next]?.bar.title ?? "");
  };
  return html`<div class="lanes"><canvas ref=${canvas} tabindex="0" role="img" aria-label=${`${label}: ${all.length} spans in ${lanes.length} rows. Arrows walk along them, Enter opens one.`} onKeyDown=${press}
      onMouseMove=${(/** @type {MouseEvent} */ e) => setTold(find(e)?.bar.title ?? "")} onClick=${(/** @type {MouseEvent} */ e) => { const found = find(e); if (found?.bar.id) go(href(found.bar.id)); }}></canvas>
    <div class="spread"><p class="told" role="status">${told || html`<span class="muted">${all.length.toLocaleString("en-GB")} ${all.length === 1 ? "span" : "spans"}, ${zoneOf()}</span>`}</p>
      <ul class="legend">${[...new Set(all.map(({ bar }) => bar.state))].map((state) => html`<li>${Badge({ state })}</li>`)}</ul></div></div>`;
}
