/** An action on many runs or jobs: a dry run, then page after page. It is kept with the page's entry of the history, so that a reload can continue it. */
import { send } from "../api.js";
import { signal } from "../html.js";
import { place } from "../router.js";

/** @typedef {{ kind: "runs" | "jobs", action: string, filter: Record<string, any>, later?: Record<string, any>[], reason: string, cursor: string | null,
 *   total: number, looked: number, done: number, refusals: number, refused: Record<string, string>, ns: string | null }} Bulk `later`: other choices */

/** Refusals are counted; so many are kept with their reasons. */
const MOST_REFUSALS = 50;
/** The server takes at most this many names at a time. */
const MOST_NAMED = 1_000;

/** The action under way, or one that a reload interrupted. */
export const bulk = signal(/** @type {Bulk | null} */ (history.state?.bulk ?? null));
export const isActing = signal(false);

/** @param {Bulk | null} next */
function keep(next) {
  bulk.value = next;
  history.replaceState({ ...history.state, bulk: next }, "");
}

/** A choice of names as choices that the server takes; a filter as it is.
 * @param {Record<string, any>} filter @returns {Record<string, any>[]} */
function portions(filter) {
  const name = ["run_ids", "jobs"].find((each) => filter[each]?.length > MOST_NAMED);
  if (!name) return [filter];
  return Array.from({ length: Math.ceil(filter[name].length / MOST_NAMED) }, (_, n) => ({ [name]: filter[name].slice(n * MOST_NAMED, (n + 1) * MOST_NAMED) }));
}

/** How many match, with a sample of the runs, or the names of all the jobs.
 * @param {"runs" | "jobs"} kind @param {string} action @param {Record<string, any>} filter */
export async function look(kind, action, filter) {
  const found = { matched: 0, runs: /** @type {Record<string, string>} */ ({}), jobs: /** @type {string[]} */ ([]) };
  for (const each of portions(filter)) {
    for (let cursor = ""; cursor !== null; ) {
      const page = await send("POST", `/v1/${kind}:act`, { action, ...each, ...(cursor ? { cursor } : {}), dry_run: true });
      found.matched += page.matched;
      Object.assign(found.runs, page.runs);
      found.jobs.push(...(page.jobs ?? []));
      cursor = page.next;
    }
  }
  return found;
}

/** @param {"runs" | "jobs"} kind @param {string} action @param {Record<string, any>} filter @param {string} reason @param {number} total */
export function begin(kind, action, filter, reason, total) {
  const [first, ...later] = portions(filter);
  keep({ kind, action, filter: first, later, reason, total, cursor: null, looked: 0, done: 0, refusals: 0, refused: {}, ns: place.value.query.get("ns") });
  return proceed();
}

/** Act on page after page until none is left. What is done is never done again: a retried run refuses a second retry. */
export async function proceed() {
  isActing.value = true;
  try {
    for (;;) {
      const now = bulk.value;
      if (!now) return null;
      const words = { action: now.action, ...now.filter, ...(now.reason ? { reason: now.reason } : {}), ...(now.cursor ? { cursor: now.cursor } : {}) };
      const page = await send("POST", `/v1/${now.kind}:act`, words);
      const refused = Object.fromEntries(Object.entries({ ...now.refused, ...page.refused }).slice(0, MOST_REFUSALS));
      const next = { ...now, cursor: page.next, looked: now.looked + page.matched, done: now.done + page.done, refusals: now.refusals + Object.keys(page.refused).length, refused };
      const [following, ...later] = now.later ?? [];
      if (page.next === null && !following) {
        keep(null);
        return next;
      }
      keep(page.next === null ? { ...next, filter: following, later } : next);
    }
  } finally {
    isActing.value = false;
  }
}

export function drop() {
  keep(null);
}
