/** The grid of a ledger: which cell each due instant has, by the clock of its zone. Pure geometry; no fire time is computed here. */

/** @typedef {{ fire_at: string, last_at?: string | null, count?: number, outcome: string, reason?: string, run_id?: string | null, note?: string, late_s?: number | null,
 *   took_s?: number | null, attempts?: number | null }} Firing */
/** @typedef {{ firings: Firing[], outcome: string, count: number, band: boolean }} Cell */
/** @typedef {{ label: string, cells: (Cell | null)[] }} Row */
/** @typedef {{ shape: Shape, columns: string[], rows: Row[] }} Grid */
/** @typedef {"days" | "hours" | "minutes" | "seconds" | "order"} Shape */

const DAY = 86_400_000;
/** A year of days would be empty but for a few: what fires less often has its instants in order. */
const RARE = 60 * DAY;
const MOST_ROWS = 100;
/** A year back and a year ahead. */
const MOST_WEEKS = 106;
/** A grid of days has a year, also where nothing has fired for so long. */
const LEAST_WEEKS = 52;
const IN_ORDER = 30;
/** Beyond so many rows, a cell of the grid of seconds stands for three: 3,600 cells would be slow, and too small to meet. */
const MOST_ROWS_OF_SECONDS = 25;
/** How far back the grid of each shape reaches. */
export const SPANS_MS = { days: 366 * DAY, hours: 31 * DAY, minutes: DAY, seconds: 3_600_000, order: 0 };
const WEEKDAYS = ["Mo", "Tu", "We", "Th", "Fr", "Sa", "Su"];
const MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
/** The worst first: a cell of several instants shows its worst. */
const WORST = ["failed", "missed", "cancelled", "skipped", "late", "fired", "clock-change", "succeeded", "planned", "excluded"];

/** The shape that fits the distance between instants.
 * @param {string} kind of the trigger @param {number[]} instants in order @returns {Shape} */
export function shapeOf(kind, instants) {
  if (!["cron", "every"].includes(kind) || instants.length < 2) return kind === "cron" ? "days" : "order";  // One instant has no distance.
  const distances = instants.slice(1).map((each, n) => each - instants[n]).sort((one, other) => one - other);
  const usual = distances[Math.floor(distances.length / 2)];
  if (usual >= RARE) return "order";
  if (usual >= 0.8 * DAY) return "days";
  if (usual >= 1_200_000) return "hours";
  return usual >= 20_000 ? "minutes" : "seconds";
}

/** @type {Map<string, Intl.DateTimeFormat>} */
const clocks = new Map();

/** What the clock of a zone shows at an instant, as if that were UTC.
 * @param {number} instant @param {string} zone */
export function wall(instant, zone) {
  const found = clocks.get(zone) ?? new Intl.DateTimeFormat("en-GB", {
    timeZone: zone, hourCycle: "h23", year: "numeric", month: "numeric", day: "numeric", hour: "numeric", minute: "numeric", second: "numeric",
  });
  clocks.set(zone, found);
  /** @type {Record<string, number>} */
  const part = {};
  for (const { type, value } of found.formatToParts(instant)) part[type] = Number(value);
  return Date.UTC(part.year, part.month - 1, part.day, part.hour, part.minute, part.second);
}

/** @param {Firing[]} firings @returns {Cell} */
function cellOf(firings) {
  const ranks = firings.map((each) => WORST.indexOf(each.outcome)).filter((rank) => rank >= 0);
  const outcome = ranks.length ? WORST[Math.min(...ranks)] : firings[0].outcome;
  return { firings, outcome, count: firings.reduce((sum, each) => sum + (each.count ?? 1), 0), band: false };
}

/** Row and column of a wall time.
 * @param {Shape} shape @param {number} at @param {number} step seconds of a cell in a grid of seconds */
function placeOf(shape, at, step) {
  const day = Math.floor(at / DAY);
  if (shape === "days") return { row: (day + 3) % 7, column: Math.floor((day + 3) / 7) };
  if (shape === "hours") return { row: day, column: Math.floor((at % DAY) / 3_600_000) };
  if (shape === "minutes") return { row: Math.floor(at / 3_600_000), column: Math.floor((at % 3_600_000) / 60_000) };
  return { row: Math.floor(at / 60_000), column: Math.floor((at % 60_000) / 1000 / step) };
}

/** @param {number} row @param {Shape} shape */
function labelOf(row, shape) {
  const text = new Date(row * (shape === "hours" ? DAY : shape === "minutes" ? 3_600_000 : 60_000)).toISOString();
  const date = `${Number(text.slice(8, 10))} ${MONTHS[Number(text.slice(5, 7)) - 1]}`;
  return shape === "hours" ? date : `${date} ${text.slice(11, 16)}`;
}

/** @param {number} from @param {number} to */
function weeks(from, to) {
  let month = -1;
  return Array.from({ length: to - from + 1 }, (_, n) => {
    const monday = new Date(((from + n) * 7 - 3) * DAY);
    if (monday.getUTCMonth() === month) return "";
    month = monday.getUTCMonth();
    return MONTHS[month];
  });
}

/** Instants that have a cell each, in order: for jobs that no clock fires.
 * @param {Firing[]} firings @returns {Grid} */
function inOrder(firings) {
  const rows = [];
  for (let from = 0; from < firings.length; from += IN_ORDER) {
    const some = firings.slice(from, from + IN_ORDER);
    rows.push({ label: some[0].fire_at.slice(0, 10), cells: some.map((each) => cellOf([each])) });
  }
  return { shape: "order", columns: [], rows: rows.reverse().slice(0, MOST_ROWS) };
}

/** Cells between the first and the last instant of a missed stretch, where there is nothing else.
 * @param {Firing} firing @param {Shape} shape @param {number} step @param {string} zone @param {(row: number, column: number) => void} mark */
function eachOfBand(firing, shape, step, zone, mark) {
  if (!firing.last_at) return;
  const cell = { days: DAY, hours: 3_600_000, minutes: 60_000, seconds: 1000 * step, order: DAY }[shape];
  const [from, to] = [wall(Date.parse(firing.fire_at), zone), wall(Date.parse(firing.last_at), zone)];
  for (let at = from, n = 0; at <= to && n < 2_000; at += cell, n += 1) {
    const { row, column } = placeOf(shape, at, step);
    mark(row, column);
  }
}

/** @param {Firing[]} firings oldest first @param {string} kind of the trigger @param {string} zone @returns {Grid} */
export function gridOf(firings, kind, zone) {
  const instants = firings.map((each) => Date.parse(each.fire_at));
  const shape = shapeOf(kind, instants);
  if (shape === "order") return inOrder(firings);
  const step = shape === "seconds" && instants[instants.length - 1] - instants[0] > MOST_ROWS_OF_SECONDS * 60_000 ? 3 : 1;
  /** @type {Map<string, Firing[]>} */
  const found = new Map();
  const bands = new Map();
  const rows = new Set();
  const columns = new Set();
  const note = (/** @type {number} */ row, /** @type {number} */ column) => (rows.add(row), columns.add(column));
  for (const each of firings) {
    const { row, column } = placeOf(shape, wall(Date.parse(each.fire_at), zone), step);
    note(row, column);
    found.set(`${row} ${column}`, [...(found.get(`${row} ${column}`) ?? []), each]);
    eachOfBand(each, shape, step, zone, (r, c) => (note(r, c), bands.set(`${r} ${c}`, each)));
  }
  const at = (/** @type {number} */ row, /** @type {number} */ column) => {
    const here = found.get(`${row} ${column}`);
    const band = bands.get(`${row} ${column}`);
    return here ? cellOf(here) : band ? { ...cellOf([band]), band: true } : null;
  };
  return shape === "days" ? byWeeks(columns, at) : byRows(shape, step, rows, at);
}

/** @param {Set<number>} columns @param {(row: number, column: number) => Cell | null} at @returns {Grid} */
function byWeeks(columns, at) {
  const last = Math.max(...columns);
  const first = Math.max(Math.min(...columns, last - LEAST_WEEKS), last - MOST_WEEKS);
  const rows = WEEKDAYS.map((label, row) => ({ label, cells: Array.from({ length: last - first + 1 }, (_, n) => at(row, first + n)) }));
  return { shape: "days", columns: weeks(first, last), rows };
}

/** @param {Shape} shape @param {number} step @param {Set<number>} rows @param {(row: number, column: number) => Cell | null} at @returns {Grid} */
function byRows(shape, step, rows, at) {
  const width = shape === "hours" ? 24 : 60 / step;
  const last = Math.max(...rows);
  const first = Math.max(Math.min(...rows), last - MOST_ROWS + 1);
  const columns = Array.from({ length: width }, (_, n) => (width === 24 || n % 5 === 0 ? String(n * step).padStart(2, "0") : ""));
  const drawn = Array.from({ length: last - first + 1 }, (_, n) => last - n);
  return { shape, columns, rows: drawn.map((row) => ({ label: labelOf(row, shape), cells: columns.map((_, column) => at(row, column)) })) };
}
