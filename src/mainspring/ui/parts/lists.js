/** Lists that come in pages: rows so far, and more by cursor. Filters live in the address. */
import { get } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { refine } from "../router.js";
import { useResource } from "../state/resource.js";

/** The rows of a list, and a function that fetches the next page.
 * @param {string} path @param {Record<string, any>} query @param {(news: import("../live.js").News) => boolean} [concerns] */
export function usePages(path, query, concerns) {
  const first = useResource(path, query, concerns);
  const [rest, setRest] = useState(/** @type {{ rows: any[], next: string | null } | null} */ (null));
  const key = JSON.stringify([path, query]);
  useEffect(() => setRest(null), [key]);
  const next = rest ? rest.next : (first.data?.next ?? null);
  const more = async () => {
    const page = await get(path, { ...query, cursor: next });
    setRest({ rows: [...(rest?.rows ?? []), ...page.items], next: page.next });
  };
  return { ...first, rows: [...(first.data?.items ?? []), ...(rest?.rows ?? [])], more: next ? more : undefined };
}

/** A search field whose words are filters: `state:failed job:etl`. The rest is the text.
 * @param {string} words @param {string[]} names */
export function readWords(words, names) {
  /** @type {Record<string, string>} */
  const found = {};
  const rest = [];
  for (const word of words.split(/\s+/).filter(Boolean)) {
    const [name, ...value] = word.split(":");
    if (names.includes(name) && value.length) found[name] = value.join(":");
    else rest.push(word);
  }
  return { found, rest: rest.join(" ") };
}

/** @param {{ value: string, placeholder: string, label: string }} given */
export function Search({ value, placeholder, label }) {
  const [typed, setTyped] = useState(value);
  useEffect(() => setTyped(value), [value]);
  useEffect(() => {
    if (typed === value) return;
    const timer = setTimeout(() => refine({ q: typed }), 200);
    return () => clearTimeout(timer);
  }, [typed]);
  return html`<input type="search" aria-label=${label} placeholder=${placeholder} value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} />`;
}
