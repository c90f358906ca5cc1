/** Data of a page: what was there stays until the new has come, an older answer never replaces a newer one. */
import { get } from "../api.js";
import { useEffect, useState } from "../html.js";
import { changed } from "../live.js";

/** @template T @typedef {{ data: T | null, error: Error | null, loading: boolean, reload: () => void }} Resource */

/** Fetch again whenever `path`, `query` or what is live changes.
 * @param {string | null} path @param {Record<string, any>} [query] @param {(news: import("../live.js").News) => boolean} [concerns]
 * @returns {Resource<any>} */
export function useResource(path, query, concerns) {
  const [state, set] = useState({ data: /** @type {any} */ (null), error: /** @type {Error | null} */ (null), loading: true, key: "" });
  const [turn, again] = useState(0);
  const key = path === null ? "" : JSON.stringify([path, query]);
  useEffect(() => {
    if (path === null) return;
    const abort = new AbortController();
    set((old) => ({ ...old, data: samePath(old.key, path) ? old.data : null, loading: true }));
    get(path, query, abort.signal).then(
      (data) => set({ data, error: null, loading: false, key }),
      (error) => abort.signal.aborted || set((old) => ({ ...old, error, loading: false, key })),
    );
    return () => abort.abort();
  }, [key, turn]);
  useEffect(() => changed.subscribe((news) => news && (!concerns || concerns(news)) && again((n) => n + 1)), [key]);
  return { data: state.data, error: state.error, loading: state.loading, reload: () => again((n) => n + 1) };
}

/** @param {string} key @param {string} path */
function samePath(key, path) {
  return key.startsWith(JSON.stringify([path]).slice(0, -1));
}
