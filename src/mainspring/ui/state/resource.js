/** Data of a page: the old answer stays until the new one has arrived, and an older answer never replaces a newer one. */
import { get } from "../api.js";
import { useEffect, useEffectAtOnce, useRef, useState } from "../html.js";
import { changed, paused } from "../live.js";

/** `current` says whether the data answer the present question, and not the one before.
 * @template T @typedef {{ data: T | null, error: Error | null, loading: boolean, current: boolean, reload: () => void }} Resource */

/** A request that takes longer has failed: the page says so, and offers another try. */
const LONGEST_MS = 30_000;
/** News make a page ask again at most this often: to draw a list of a hundred runs takes 50 ms or more. */
const APART_MS = 1_000;

/** Fetch again whenever `path` or `query` changes, when news concern it, and every `everyMs` while the page is visible: heartbeats and elections
 * are no events. News during a request cause one more request after it, so that a slow answer is never starved.
 * @param {string | null} path @param {Record<string, any>} [query] @param {(news: import("../live.js").News) => boolean} [concerns]
 * @param {number} [everyMs] @returns {Resource<any>} */
export function useResource(path, query, concerns, everyMs) {
  const [state, set] = useState({ data: /** @type {any} */ (null), error: /** @type {Error | null} */ (null), loading: true, key: "" });
  const key = path === null ? "" : JSON.stringify([path, query]);
  const ask = useRef(() => {});
  useEffectAtOnce(() => {
    if (path === null) return;
    const abort = new AbortController();
    let isBusy = false;
    let isStale = false;
    const own = async () => {
      isStale = isBusy;
      if (isBusy) return;
      isBusy = true;
      set((old) => ({ ...old, data: samePath(old.key, path) ? old.data : null, loading: true }));
      const signal = AbortSignal.any([abort.signal, AbortSignal.timeout(LONGEST_MS)]);
      const next = await get(path, query, signal).then((data) => ({ data, error: null }), (error) => ({ error }));
      isBusy = false;
      if (abort.signal.aborted) return;
      set((old) => ({ ...old, ...next, loading: false, key }));
      if (isStale) own();
    };
    ask.current = own;
    own();
    return () => abort.abort();
  }, [key]);
  const isConcerned = useRef(concerns);
  isConcerned.current = concerns;
  useEffect(() => {
    const known = changed.value;
    let last = -APART_MS;
    let timer = 0;
    const soon = () => {
      clearTimeout(timer);
      timer = setTimeout(() => ((last = performance.now()), ask.current()), Math.max(last + APART_MS - performance.now(), 0));
    };
    const end = changed.subscribe((news) => news && news !== known && (!isConcerned.current || isConcerned.current(news)) && soon());
    return () => (clearTimeout(timer), end());
  }, []);
  useEffect(() => {
    if (!everyMs) return;
    const timer = setInterval(() => document.hidden || paused.value || ask.current(), everyMs);
    return () => clearInterval(timer);
  }, [everyMs]);
  return { data: state.data, error: state.error, loading: state.loading, current: state.key === key, reload: () => ask.current() };
}

/** @param {string} key @param {string} path */
function samePath(key, path) {
  return key.startsWith(JSON.stringify([path]).slice(0, -1));
}
