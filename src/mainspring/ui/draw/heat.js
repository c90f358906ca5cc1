/** The heat map of a load: rows of hours by the clock of a zone, columns of periods. A day of a clock change has 23 or 25 rows. */

/** @typedef {{ at: string, starts: number, busy: number }} Bucket */
/** @typedef {{ label: string, cells: (Bucket | null)[] }} HeatRow */

const HOUR = 3_600_000;
const STEPS = 5;

/** @type {Map<string, Intl.DateTimeFormat>} */
const writers = new Map();

/** @param {number} at @param {string} zone @param {boolean} withDay */
function hourText(at, zone, withDay) {
  const key = `${zone} ${withDay}`;
  const found = writers.get(key) ?? new Intl.DateTimeFormat("en-GB", {
    timeZone: zone, hour: "2-digit", hourCycle: "h23", timeZoneName: "shortOffset", ...(withDay ? { weekday: "short", day: "numeric" } : {}),
  });
  writers.set(key, found);
  const part = /** @type {Record<string, string>} */ ({});
  for (const { type, value } of found.formatToParts(at)) part[type] = value;
  return { hour: part.hour, day: withDay ? `${part.weekday} ${part.day}` : "", offset: part.timeZoneName };
}

/** By how many milliseconds the clock of a zone is beyond a whole hour when that of UTC shows one: half an hour in India.
 * @param {string} offset such as `GMT+5:30` */
function shiftOf(offset) {
  const [, sign, minutes] = /^GMT([+-])\d+:(\d+)$/.exec(offset) ?? ["", "+", "0"];
  return ((sign === "-" ? 60 - Number(minutes) : Number(minutes)) % 60) * 60_000;
}

/** One row per hour that passes, so that an hour that the clock shows twice has two rows. A row whose offset differs from the one before says so.
 * @param {Bucket[]} buckets in order @param {number} width of a bucket in milliseconds @param {string} zone @returns {{ columns: string[], rows: HeatRow[] }} */
export function heatOf(buckets, width, zone) {
  const perRow = Math.max(Math.round(HOUR / width), 1);
  /** @type {Map<string, HeatRow>} */
  const rows = new Map();
  let offset = "";
  for (const bucket of buckets) {
    const at = Date.parse(bucket.at);
    const text = hourText(at, zone, true);
    const shifted = at + shiftOf(text.offset);
    const key = `${Math.floor(shifted / HOUR)} ${text.offset}`;
    let row = rows.get(key);
    if (!row) {
      const isChange = offset && text.offset !== offset;
      const isFirst = rows.size === 0 || text.hour === "00";
      offset = text.offset;
      row = { label: `${isFirst || isChange ? `${text.day}, ` : ""}${text.hour}${isChange ? ` ${text.offset}` : ""}`, cells: Array(perRow).fill(null) };
      rows.set(key, row);
    }
    row.cells[Math.floor((shifted % HOUR) / width)] = bucket;
  }
  const columns = Array.from({ length: perRow }, (_, n) => `:${String(Math.round((n * width) / 60_000)).padStart(2, "0")}`);
  return { columns, rows: [...rows.values()] };
}

/** The step of the scale, from 0 for nothing to 5 for the most. It follows the square root: one midnight must not make the rest of the day look empty.
 * @param {number} value @param {number} most */
export function stepOf(value, most) {
  return value <= 0 ? 0 : Math.min(Math.max(Math.ceil(Math.sqrt(value / (most || 1)) * STEPS), 1), STEPS);
}
