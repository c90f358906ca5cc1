/** States, instants and lengths of time as text. Nothing here computes a fire time. */

/** @typedef {{ glyph: string, word: string, tone: "neutral" | "running" | "succeeded" | "warning" | "failed" | "held" }} Look */

/** Each state and outcome: its glyph, its word and its colour.
 * @type {Record<string, Look>} */
const LOOKS = {
  blocked: { glyph: "◇", word: "blocked", tone: "held" },
  held: { glyph: "◇", word: "held", tone: "held" },
  pending: { glyph: "◔", word: "pending", tone: "neutral" },
  running: { glyph: "▶", word: "running", tone: "running" },
  succeeded: { glyph: "✓", word: "succeeded", tone: "succeeded" },
  failed: { glyph: "✕", word: "failed", tone: "failed" },
  cancelled: { glyph: "⊘", word: "cancelled", tone: "neutral" },
  skipped: { glyph: "↷", word: "skipped", tone: "neutral" },
  missed: { glyph: "!", word: "missed", tone: "warning" },
  late: { glyph: "◷", word: "ran late", tone: "warning" },
  retrying: { glyph: "↻", word: "retrying", tone: "warning" },
  fired: { glyph: "▶", word: "fired", tone: "running" },
  planned: { glyph: "○", word: "planned", tone: "neutral" },
  excluded: { glyph: "·", word: "excluded", tone: "neutral" },
  "clock-change": { glyph: "◐", word: "planned, at a clock change", tone: "neutral" },
  active: { glyph: "●", word: "active", tone: "neutral" },
  paused: { glyph: "‖", word: "paused", tone: "held" },
  draining: { glyph: "↻", word: "draining", tone: "warning" },
  stopped: { glyph: "⊘", word: "stopped", tone: "neutral" },
  dead: { glyph: "✕", word: "dead", tone: "failed" },
  leads: { glyph: "▶", word: "leads", tone: "running" },
  stands_by: { glyph: "◔", word: "stands by", tone: "neutral" },
  timed_out: { glyph: "✕", word: "timed out", tone: "failed" },
  lost: { glyph: "!", word: "lost", tone: "warning" },
  handed_back: { glyph: "↻", word: "handed back", tone: "warning" },
};

/** @param {string} state @returns {Look} */
export function lookOf(state) {
  return LOOKS[state] ?? { glyph: "?", word: state, tone: "neutral" };
}

/** A name that is too long keeps its end: names of one family often differ in it.
 * @param {string} name @param {number} most how many characters there is room for */
export function cut(name, most) {
  if (name.length <= most) return name;
  const end = Math.floor((most - 1) / 3);
  return `${name.slice(0, most - 1 - end)}…${name.slice(name.length - end)}`;
}

export const STATES = Object.keys(LOOKS);

/** @type {Map<string, Intl.DateTimeFormat>} */
const writers = new Map();

/** The clock and the calendar of a zone at an instant.
 * @param {Date} instant @param {string} zone */
function partsOf(instant, zone) {
  const found = writers.get(zone) ?? new Intl.DateTimeFormat("en-GB", {
    weekday: "short", day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23", timeZoneName: "longOffset", timeZone: zone,
  });
  writers.set(zone, found);
  const part = /** @type {Record<string, string>} */ ({});
  for (const { type, value } of found.formatToParts(instant)) part[type] = value;
  return part;
}

/** Today in each zone, as of a minute.
 * @type {Map<string, { minute: number, part: Record<string, string> }>} */
const todays = new Map();

/** @param {string} zone @param {Date} now */
function todayIn(zone, now) {
  const minute = Math.floor(now.getTime() / 60_000);
  const known = todays.get(zone);
  if (known?.minute === minute) return known.part;
  const part = partsOf(now, zone);
  todays.set(zone, { minute, part });
  return part;
}

/** An instant in a zone, with its offset: `Tue 3 Nov 02:00:00 +01:00`. Of the day that it is there now, only the time is written.
 * @param {Date} instant @param {string} zone @param {Date} now */
export function absolute(instant, zone, now) {
  const [part, today] = [partsOf(instant, zone), todayIn(zone, now)];
  const isToday = ["year", "month", "day"].every((name) => part[name] === today[name]);
  const offset = part.timeZoneName === "GMT" ? "Z" : part.timeZoneName.replace("GMT", "");
  const date = isToday ? "" : `${part.weekday} ${part.day} ${part.month} ${part.year === today.year ? "" : `${part.year} `}`;
  return `${date}${part.hour}:${part.minute}:${part.second} ${offset}`;
}

const STEPS = /** @type {const} */ ([[86_400, "d"], [3_600, "h"], [60, "m"], [1, "s"]]);

/** A length of time in at most two units: `3 h 12 m`.
 * @param {number} ms */
export function length(ms) {
  const seconds = Math.abs(ms) / 1000;
  if (seconds < 1) return ms !== 0 && seconds < 0.0005 ? "< 1 ms" : `${Math.round(Math.abs(ms))} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  let left = Math.round(seconds);
  const words = [];
  for (const [size, unit] of STEPS) {
    const count = Math.floor(left / size);
    left -= count * size;
    if (count) words.push(`${count} ${unit}`);
    else if (words.length) break;  // `4 h 51 s` would be read as `4 h 51 m`.
    if (words.length === 2 || (words.length && size === 86_400 && count > 7)) break;
  }
  return words.join(" ");
}

const UNITS_MS = /** @type {Record<string, number>} */ ({ us: 0.001, ms: 1, s: 1e3, m: 6e4, h: 36e5, d: 864e5 });

/** A length as the server writes it, `1h30m` or `1s136ms493us`, as all others are written: `1 h 30 m`, `1.1 s`. Below a millisecond it is exact.
 * @param {string} text */
export function spaced(text) {
  const ms = [...text.matchAll(/(\d+(?:\.\d+)?)(us|ms|[smhd])/g)].reduce((sum, [, count, unit]) => sum + Number(count) * UNITS_MS[unit], 0);
  return ms > 0 && ms < 1 ? `${Math.round(ms * 1000)} µs` : length(ms);
}

/** How far an instant is from now: `in 3 h`, `2 m ago`.
 * @param {Date} instant @param {Date} now */
export function relative(instant, now) {
  const ms = instant.getTime() - now.getTime();
  if (Math.abs(ms) < 1000) return "now";
  const text = length(ms).split(" ").slice(0, Math.abs(ms) >= 36_000_000 ? 2 : 4).join(" ");
  return ms > 0 ? `in ${text}` : `${text} ago`;
}
