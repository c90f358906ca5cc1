/** What changed: by one stream per visible tab; by a request every five seconds where a proxy holds streams back. */
import { get, Problem, stream } from "./api.js";
import { signal } from "./html.js";
import { place } from "./router.js";

/** Jobs and runs by id; `more` if anything else may have changed, too.
 * @typedef {{ jobs: Set<string>, runs: Set<string>, more: boolean }} News */

/** The newest news. Pages subscribe, and fetch what they show of it. */
export const changed = signal(/** @type {News | null} */ (null));
/** `connecting`, `on`, `polling` or `away`, and since when it is so. */
export const mark = signal({ state: "connecting", since: new Date() });
export const paused = signal(false);
/** Whether a person can see this tab. Streams are open only while it is so. */
export const visible = signal(!document.hidden);
/** The version of the server that answered last. A page of another version offers to reload. */
export const version = signal(document.documentElement.dataset.version ?? "");

const POLL_MS = 5_000;
const LONGEST_PAUSE_MS = 30_000;
/** A stream begins with a line at once, and has one at least every 15 s. */
const OPEN_MS = 4_000;
const SILENT_MS = 40_000;
/** What a page asked while its first stream began may lack a change of that moment. It is asked again after this time, and not while the page is
 * being loaded. */
const SETTLED_MS = 3_000;

/** @param {string} state */
function set(state) {
  if (mark.value.state !== state) mark.value = { state, since: new Date() };
}

/** Everything may have changed. */
function refresh() {
  if (!paused.value) changed.value = { jobs: new Set(), runs: new Set(), more: true };
}

/** @param {any} news as the server gathers them, at most twice a second */
function publish(news) {
  if (!paused.value) changed.value = { jobs: new Set(news.jobs), runs: new Set(news.runs), more: news.more };
}

/** Whether the server answers. It may have been upgraded since the page was loaded. */
function askVersion() {
  return get("/v1/me").then((me) => ((version.value = me.version), true), () => false);
}

let turn = 0;
let timer = 0;
let isFirst = true;
let abort = new AbortController();

/** Listen until the stream ends. Whether it had begun.
 * @param {number} mine */
async function listen(mine) {
  abort = new AbortController();
  const own = abort;
  let began = false;
  let isOpening = isFirst;
  let limit = setTimeout(() => own.abort(), OPEN_MS);
  const heard = () => {
    clearTimeout(limit);
    limit = setTimeout(() => own.abort(), SILENT_MS);
    if (!began && mine === turn) {
      set("on");
      if (!isFirst) askVersion();  // The page has just asked who the caller is: the answer names the version.
      isFirst = false;
    }
    began = true;
  };
  try {
    await stream("/v1/live", {}, own.signal, (event) => {
      if (isOpening) setTimeout(refresh, SETTLED_MS);
      else publish(event.data);
      isOpening = false;
    }, heard);
  } catch (error) {
    if (error instanceof Problem && error.status === 401) throw error;
  } finally {
    clearTimeout(limit);
  }
  return began;
}

/** @param {number} mine */
async function watch(mine) {
  for (let failures = 0; mine === turn; ) {
    const began = await listen(mine).catch(() => null);
    if (mine !== turn || began === null) return;
    const answers = await askVersion();
    if (mine !== turn) return;
    failures = answers ? 0 : failures + 1;
    if (!answers) set("away");
    else if (!began) set("polling");
    if (answers) refresh();
    const pause = began && answers ? 100 : Math.min(POLL_MS * 2 ** Math.max(failures - 2, 0), LONGEST_PAUSE_MS);
    await new Promise((wake) => (timer = setTimeout(wake, pause * (0.8 + 0.4 * Math.random()))));
  }
}

export function start() {
  stop();
  if (visible.value) watch(turn);
}

export function stop() {
  turn += 1;
  clearTimeout(timer);
  abort.abort();
}

paused.subscribe((now) => now || refresh());

/** Browsers allow six connections to a host: a hidden tab holds none, so that any number of tabs can be open. */
document.addEventListener("visibilitychange", () => {
  visible.value = !document.hidden;
  if (document.hidden) return stop();
  start();
  refresh();
});

let namespace = place.value.query.get("ns");
place.subscribe((now) => {
  if (now.query.get("ns") === namespace) return;
  namespace = now.query.get("ns");
  start();
});
