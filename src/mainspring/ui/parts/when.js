/** Instants in the zone that the viewer chose, the span that a page shows, and up to when counts are complete. */
import { skew } from "../api.js";
import { absolute, relative } from "../draw/text.js";
import { html, signal, useEffect } from "../html.js";
import { paused } from "../live.js";
import { place, to } from "../router.js";
import { clock } from "../state/settings.js";

/** Asked once: every instant on a page needs it, and to ask takes as long as to draw a row. */
const BROWSERS_ZONE = Intl.DateTimeFormat().resolvedOptions().timeZone;
const tick = signal(0);
setInterval(() => document.hidden || (tick.value += 1), 1000);

export function now() {
  tick.value;
  return new Date(Date.now() + skew.value);
}

/** @param {string} [zone] the job's @param {boolean} [isOfJob] whether the page is that of a job, whose zone then comes first */
export function zoneOf(zone, isOfJob = false) {
  if (clock.value === "utc") return "UTC";
  if ((clock.value === "job" || isOfJob) && zone) return zone;
  return BROWSERS_ZONE;
}

/** @param {{ at: string | null | undefined, zone?: string, plain?: boolean, job?: boolean, none?: string }} given */
export function When({ at, zone, plain = false, job = false, none = "–" }) {
  if (!at) return html`<span class="muted">${none}</span>`;
  const instant = new Date(at);
  const shown = zoneOf(zone, job);
  const text = absolute(instant, shown, now());
  const title = `${text} (${shown}) · ${at}`;
  if (plain) return html`<time datetime=${at} title=${title} class="nowrap">${relative(instant, now())}</time>`;
  return html`<time datetime=${at} title=${title}><span class="nowrap">${text}</span> <span class="muted nowrap">· ${relative(instant, now())}</span></time>`;
}

const MS = /** @type {Record<string, number>} */ ({ m: 60_000, h: 3_600_000, d: 86_400_000 });
const NAMES = /** @type {Record<string, string>} */ ({ "1m": "1 minute", "15m": "15 minutes", "1h": "1 hour", "6h": "6 hours", "24h": "24 hours", "7d": "7 days", "30d": "30 days" });

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

/** `24h` as the instant that long ago; anything else stays for the server to judge.
 * @param {string | undefined} text */
export function instantOf(text) {
  const found = /^(\d+)(s|m|h|d)$/.exec(text ?? "");
  if (!found) return text;
  const ms = Number(found[1]) * { s: 1e3, m: 6e4, h: 3.6e6, d: 8.64e7 }[/** @type {"s"} */ (found[2])];
  return new Date(Math.floor((now().getTime() - ms) / 6e4) * 6e4).toISOString();
}

/** Events of the last moment are always to be counted still: a lag of more than this is said. */
const LAG_MS = 5_000;
/** That counting has gone on is no news of a job or a run, so the page asks. */
const AGAIN_MS = 2_000;

/** The instant up to which the counts of an answer are complete; null if they do not lag. The server keeps them by reading events.
 * @param {import("../state/resource.js").Resource<any>} of @returns {string | null} */
export function useCounting(of) {
  const until = of.data?.counted_until ?? null;
  useEffect(() => {
    if (until === null || paused.value) return;
    const timer = setTimeout(of.reload, AGAIN_MS);
    return () => clearTimeout(timer);
  }, [of.data, of.error, paused.value]);
  return until !== null && now().getTime() - Date.parse(until) > LAG_MS ? until : null;
}

/** @param {{ until: string | null }} given */
export function Counting({ until }) {
  return until && html`<p class="s-warning">Still counting, as of <${When} at=${until} />: what failed or ended later is not shown yet.</p>`;
}
