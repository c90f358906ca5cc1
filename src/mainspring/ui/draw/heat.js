/** The heat map of a load, by the clock of a zone: rows of hours, or of days if a period is an hour. A day of a clock change has 23 or 25 hours. */

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

/** Rows of hours with columns of shorter periods; of hours, rows of days.
 * @param {Bucket[]} buckets in order @param {number} width of a bucket in milliseconds @param {string} zone @returns {{ columns: string[], rows: HeatRow[] }} */
export function heatOf(buckets, width, zone) {
  return width < HOUR ? hoursOf(buckets, width, zone) : daysOf(buckets, zone);
}

/** One row per day. An hour that the clock shows twice has two columns, of which the second names its offset; one that it skips has an empty cell.
 * @param {Bucket[]} buckets in order, each of an hour @param {string} zone @returns {{ columns: string[], rows: HeatRow[] }} */
function daysOf(buckets, zone) {
  const days = /** @type {{ label: string, cells: Map<string, Bucket> }[]} */ ([]);
  const columns = new Map(Array.from({ length: 24 }, (_, n) => [String(n).padStart(2, "0"), String(n).padStart(2, "0")]));
  for (const bucket of buckets) {
    const text = hourText(Date.parse(bucket.at), zone, true);
    if (days.at(-1)?.label !== text.day) days.push({ label: text.day, cells: new Map() });
    const { cells } = days[days.length - 1];
    const column = cells.has(text.hour) ? `${text.hour} again` : text.hour;
    if (column !== text.hour) columns.set(column, `${text.hour} ${text.offset}`);
    cells.set(column, bucket);
  }
  const names = [...columns.keys()].sort();
  return { columns: names.map((name) => columns.get(name) ?? name), rows: days.map(({ label, cells }) => ({ label, cells: names.map((name) => cells.get(name) ?? null) })) };
}

/** One row per hour that passes, so that an hour that the clock shows twice has two rows. A row whose offset differs from the one before says so.
 * @param {Bucket[]} buckets in order @param {number} width of a bucket in milliseconds @param {string} zone @returns {{ columns: string[], rows: HeatRow[] }} */
function hoursOf(buckets, width, zone) {
  const perRow = Math.round(HOUR / width);
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
