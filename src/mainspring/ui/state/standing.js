/** How the namespace stands: for the header of every page, and more often for the page that shows all of it. */
import { get } from "../api.js";
import { signal, useEffect } from "../html.js";
import { changed, paused } from "../live.js";
import { place } from "../router.js";
import { me } from "./me.js";

const CLOSELY_MS = 2_000;
/** How old the answer may be on pages that show a part of it. */
const OLDEST_MS = 4_500;
/** A request that takes longer has failed. */
const LONGEST_MS = 30_000;

/** @typedef {{ data: import("../records.d.ts").Overview | null, error: Error | null, loading: boolean }} Standing */

const NOTHING = /** @type {Standing} */ ({ data: null, error: null, loading: true });
export const standing = signal(NOTHING);

/** A sentence for those who hear the page: how many runs failed since the last one. */
export const failedSince = signal("");
const ANNOUNCED_MS = 10_000;
let announced = { at: 0, failed: /** @type {number | null} */ (null) };

/** Say how many more runs have failed, at most every ten seconds. Runs that are older than a day leave the count.
 * @param {number} failed */
function announce(failed) {
  const more = failed - (announced.failed ?? failed);
  if (more > 0 && performance.now() - announced.at < ANNOUNCED_MS) return;
  if (more > 0) failedSince.value = `${more} ${more === 1 ? "run" : "runs"} failed`;
  announced = { at: more > 0 ? performance.now() : announced.at, failed };
}

let watchers = 0;
let asked = 0;
let isBusy = false;
let isStale = false;

async function ask() {
  isStale = isBusy;
  if (isBusy || !me.value) return;
  isBusy = true;
  asked = performance.now();
  const asking = namespace;
  const next = await get("/v1/overview", undefined, AbortSignal.timeout(LONGEST_MS)).then((data) => ({ data, error: null }), (error) => ({ error }));
  isBusy = false;
  if (asking === namespace) standing.value = { ...standing.value, ...next, loading: false };
  if (asking === namespace && standing.value.data) announce(standing.value.data.counts.failed);
  if (isStale || asking !== namespace) ask();
}

/** All of it, for a page that shows it as it changes. */
export function useStanding() {
  useEffect(() => {
    watchers += 1;
    return () => void (watchers -= 1);
  }, []);
  return { ...standing.value, current: true, reload: ask };
}

setInterval(() => document.hidden || paused.value || (!watchers && performance.now() - asked < OLDEST_MS) || ask(), CLOSELY_MS);
me.subscribe(() => void ask());
// News cause no question besides those that the timer asks anyway, unless it stood still: in a hidden tab, or while the page was paused.
changed.subscribe((news) => void (news && watchers && performance.now() - asked > CLOSELY_MS && ask()));
let namespace = place.value.query.get("ns");
place.subscribe((now) => {
  if (now.query.get("ns") === namespace) return;
  namespace = now.query.get("ns");
  standing.value = NOTHING;
  announced = { ...announced, failed: null };
  ask();
});
