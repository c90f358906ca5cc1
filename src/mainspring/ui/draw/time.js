/** Instants and durations as text. `Intl` only writes an instant in a zone; nothing here computes a fire time. */

/** @param {string} zone @param {boolean} day */
function writer(zone, day) {
  const parts = /** @type {Intl.DateTimeFormatOptions} */ ({
    hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "longOffset", timeZone: zone,
    ...(day ? { weekday: "short", day: "numeric", month: "short" } : {}),
  });
  return new Intl.DateTimeFormat("en-GB", parts);
}

/** @type {Map<string, Intl.DateTimeFormat>} */
const writers = new Map();

/** An instant in a zone, with its offset: `Tue 3 Nov 02:00:00 +01:00`.
 * @param {Date} instant @param {string} zone @param {Date} now */
export function absolute(instant, zone, now) {
  const day = instant.toDateString() !== now.toDateString() || Math.abs(instant.getTime() - now.getTime()) > 86_400_000;
  const name = `${zone} ${day}`;
  const found = writers.get(name) ?? writer(zone, day);
  writers.set(name, found);
  const part = /** @type {Record<string, string>} */ ({});
  for (const { type, value } of found.formatToParts(instant)) part[type] = value;
  const offset = part.timeZoneName === "GMT" ? "Z" : part.timeZoneName.replace("GMT", "");
  const date = day ? `${part.weekday} ${part.day} ${part.month} ${instant.getFullYear() === now.getFullYear() ? "" : `${instant.getFullYear()} `}` : "";
  return `${date}${part.hour}:${part.minute}:${part.second} ${offset}`;
}

const STEPS = /** @type {const} */ ([[86_400, "d"], [3_600, "h"], [60, "m"], [1, "s"]]);

/** A length of time in at most two units: `3 h 12 m`.
 * @param {number} ms */
export function length(ms) {
  const seconds = Math.abs(ms) / 1000;
  if (seconds < 1) return `${Math.round(Math.abs(ms))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  let left = Math.round(seconds);
  const words = [];
  for (const [size, unit] of STEPS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) words.push(`${count} ${unit}`);
    if (words.length === 2 || (words.length && size === 86_400 && count > 7)) break;
  }
  return words.join(" ");
}

/** How far an instant is from now: `in 3 h`, `2 m ago`.
 * @param {Date} instant @param {Date} now */
export function relative(instant, now) {
  const ms = instant.getTime() - now.getTime();
  if (Math.abs(ms) < 1000) return "now";
  const text = length(ms).split(" ").slice(0, Math.abs(ms) >= 36_000_000 ? 2 : 4).join(" ");
  return ms > 0 ? `in ${text}` : `${text} ago`;
}
