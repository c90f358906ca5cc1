/** An instant: always absolute and relative, in the zone that the viewer chose. */
import { skew } from "../api.js";
import { absolute, relative } from "../draw/time.js";
import { html, signal } from "../html.js";
import { clock } from "../state/settings.js";

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
  return Intl.DateTimeFormat().resolvedOptions().timeZone;
}

/** @param {{ at: string | null | undefined, zone?: string, plain?: boolean, job?: boolean, none?: string }} given */
export function When({ at, zone, plain = false, job = false, none = "–" }) {
  if (!at) return html`<span class="muted">${none}</span>`;
  const instant = new Date(at);
  const text = absolute(instant, zoneOf(zone, job), now());
  const title = `${text} (${zoneOf(zone, job)}) · ${at}`;
  if (plain) return html`<time datetime=${at} title=${title} class="nowrap">${relative(instant, now())}</time>`;
  return html`<time datetime=${at} title=${title}><span class="nowrap">${text}</span> <span class="muted nowrap">· ${relative(instant, now())}</span></time>`;
}
