/** Spans on a time axis: which lane each gets, where it begins and ends, and ticks that read well. Pure geometry. */

/** @typedef {{ from: number, to: number, id: string, state: string, title: string }} Bar */
/** @typedef {{ label: string, href?: string, bars: Bar[] }} Lane */

const STEPS_MS = [1e3, 5e3, 15e3, 3e4, 6e4, 3e5, 9e5, 18e5, 36e5, 108e5, 216e5, 432e5, 864e5, 1728e5, 2592e5, 6048e5, 12096e5];

/** Ticks between two instants, on times that are round where the clocks are.
 * @param {number} from @param {number} to @param {number} most as many as there is room for @param {(at: number) => number} [offset] how far these clocks are ahead of UTC */
export function ticks(from, to, most, offset = () => 0) {
  const step = STEPS_MS.find((each) => (to - from) / each <= most) ?? STEPS_MS[STEPS_MS.length - 1];
  const found = /** @type {number[]} */ ([]);
  for (let local = Math.ceil((from + offset(from)) / step) * step; ; local += step) {
    const at = local - offset(local - offset(from));  // The clocks may have changed since `from`.
    if (!(at <= to)) break;
    if (at >= from && at !== found.at(-1)) found.push(at);
  }
  return { step, at: found };
}

/** Bars that overlap get rows of their own; each goes to the first row that is free.
 * @param {Bar[]} bars @param {number} most @returns {Bar[][]} */
export function packed(bars, most) {
  /** @type {Bar[][]} */
  const rows = [];
  for (const bar of [...bars].sort((one, other) => one.from - other.from)) {
    const free = rows.find((row) => row[row.length - 1].to <= bar.from);
    if (free) free.push(bar);
    else if (rows.length < most) rows.push([bar]);
    else rows[rows.length - 1].push(bar);
  }
  return rows;
}

/** @param {number} at @param {number} from @param {number} to share of the width from 0 to 1 */
export function share(at, from, to) {
  return Math.min(Math.max((at - from) / (to - from || 1), 0), 1);
}
