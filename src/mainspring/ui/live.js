/** What changed, as the server says it: by one stream per visible tab, by polling where streams do not pass, or not at all. */
import { Problem, stream } from "./api.js";
import { signal } from "./html.js";
import { place } from "./router.js";

/** @typedef {{ jobs: Set<string>, runs: Set<string>, more: boolean }} News */

/** The newest news. Pages subscribe, and fetch what they show of it. */
export const changed = signal(/** @type {News | null} */ (null));
/** `on`, `polling`, `paused` or `away`, and since when. */
export const mark = signal({ state: "polling", since: new Date() });
export const paused = signal(false);

const POLL_MS = 5_000;
const LONGEST_PAUSE_MS = 30_000;
const HIDDEN_MS = 5_000;

/** @param {string} state */
function set(state) {
  if (mark.value.state !== state) mark.value = { state, since: new Date() };
}

/** @param {any} data @returns {News} */
function news(data) {
  return { jobs: new Set(data?.jobs ?? []), runs: new Set(data?.runs ?? []), more: data?.more ?? true };
}

let failures = 0;
let abort = /** @type {AbortController | null} */ (null);
let timer = 0;

async function listen() {
  abort = new AbortController();
  const mine = abort;
  try {
    await stream("/v1/live", {}, mine.signal, (event) => {
      failures = 0;
      set("on");
      if (!paused.value) changed.value = news(event.data);
    });
  } catch (error) {
    if (mine.signal.aborted) return;
    failures += 1;
    if (error instanceof Problem && error.status === 401) return;
  }
  if (mine.signal.aborted) return;
  const quiet = failures > 2;
  set(quiet ? "away" : "polling");
  if (!paused.value) changed.value = news(null);
  const pause = Math.min(POLL_MS * 2 ** Math.max(failures - 2, 0), LONGEST_PAUSE_MS);
  timer = setTimeout(listen, pause * (0.8 + 0.4 * Math.random()));
}

export function start() {
  stop();
  failures = 0;
  listen();
}

export function stop() {
  clearTimeout(timer);
  abort?.abort();
}

let hiding = 0;
document.addEventListener("visibilitychange", () => {
  clearTimeout(hiding);
  if (document.hidden) hiding = setTimeout(stop, HIDDEN_MS);
  else {
    start();
    changed.value = news(null);
  }
});

let namespace = place.value.query.get("ns");
place.subscribe((now) => {
  if (now.query.get("ns") !== namespace) {
    namespace = now.query.get("ns");
    start();
  }
});
