/** Lists that come in pages: rows so far, and more by cursor. Filters live in the address. */
import { get } from "../api.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { refine } from "../router.js";
import { me, namespace } from "../state/me.js";
import { useResource } from "../state/resource.js";

/** @typedef {{ items: any[], next: string | null, shown: any }} Kept `shown` is the answer that the rows hold */

/** This many rows of a list are kept; a filter finds the others. */
export const MOST_ROWS = 10_000;
/** Lists that Back restores at once, the oldest first. */
const kept = /** @type {Map<string, Kept>} */ (new Map());
const MOST_LISTS = 5;
/** A reader who has scrolled this far looks at rows, and not at what is new. */
const AWAY_PX = 200;

/** @param {string} key @param {Kept} list */
function keep(key, list) {
  kept.delete(key);
  kept.set(key, list);
  for (const oldest of kept.keys()) if (kept.size > MOST_LISTS) kept.delete(oldest);
}

/** What names a row.
 * @param {any} row */
function idOf(row) {
  return row.run_id ?? row.job_id ?? row.error ?? row.number ?? row.job;
}

/** Rows that are shown stay where they are, with what is new of each. How many the answer has besides is counted.
 * @param {Kept} list @param {any} answer */
function updated(list, answer) {
  const newer = new Map(answer.items.map((/** @type {any} */ row) => [idOf(row), row]));
  const items = list.items.map((row) => newer.get(idOf(row)) ?? row);
  return { ...list, items, shown: answer };
}

/** The rows of a list, and a function that fetches the next page. While a reader is further down, rows do not move: new ones are counted, and
 * `show` puts them in.
 * @param {string} path @param {Record<string, any>} query @param {(news: import("../live.js").News) => boolean} [concerns] */
export function usePages(path, query, concerns) {
  const first = useResource(path, query, concerns);
  const key = JSON.stringify([namespace.value, path, query]);
  const [, redraw] = useState(0);
  useMemo(() => history.state?.scroll === undefined && kept.delete(key), []);  // Only Back returns to a list as it was.
  const isAsking = useRef(false);
  const list = listOf(key, first);
  const put = (/** @type {Kept} */ next) => (keep(key, next), redraw((n) => n + 1));
  const more = async () => {
    const from = kept.get(key) ?? list;  // More than what is drawn: an answer may just have arrived.
    if (isAsking.current || !from?.next) return;
    isAsking.current = true;
    try {
      const page = await get(path, { ...query, cursor: from.next });
      const now = kept.get(key) ?? from;
      const known = new Set(now.items.map(idOf));
      put({ ...now, items: [...now.items, ...page.items.filter((/** @type {any} */ row) => !known.has(idOf(row)))], next: page.next });
    } finally {
      isAsking.current = false;
    }
  };
  const rows = list?.items ?? [];
  const known = new Set(rows.map(idOf));
  const fresh = list?.shown.items.filter((/** @type {any} */ row) => !known.has(idOf(row))).length ?? 0;
  const show = () => (scrollTo(0, 0), list && put({ items: list.shown.items, next: list.shown.next, shown: list.shown }));
  return { ...first, data: first.data ?? list?.shown ?? null, rows, more: list?.next && rows.length < MOST_ROWS ? more : undefined, fresh, show };
}

/** The rows to show for the newest answer.
 * @param {string} key @param {import("../state/resource.js").Resource<any>} first @returns {Kept | null} */
function listOf(key, first) {
  const old = kept.get(key) ?? null;
  if (!first.data || !first.current || old?.shown === first.data) return old ?? (first.data && { items: first.data.items, next: null, shown: first.data });
  const isRead = old !== null && (scrollY > AWAY_PX || old.items.length > old.shown.items.length);
  const list = isRead ? updated(old, first.data) : { items: first.data.items, next: first.data.next, shown: first.data };
  keep(key, list);
  return list;
}

/** How many rows are new, as a button that shows them.
 * @param {{ of: { fresh: number, show: () => void } }} given */
export function Fresh({ of }) {
  return of.fresh > 0 && html`<button class="fresh" onClick=${of.show}>${of.fresh} new</button>`;
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

/** What a list without rows says of words that look like filters and are none.
 * @param {string} rest @param {string[]} names */
export function notFilters(rest, names) {
  const wrong = rest.split(" ").flatMap((word) => /^[a-z_]+(?=:)/.exec(word)?.[0] ?? []);
  return wrong.length > 0 && html`There is no filter ${wrong.map((name, at) => html`${at > 0 && ", "}<code>${name}:</code>`)}. Filters are ${names.join(", ")}. `;
}

/** Values that the API can complete, and those that are few. */
const FACETS = ["job", "task", "queue", "tag", "app", "region", "worker"];
const STATES = ["pending", "running", "blocked", "succeeded", "failed", "cancelled", "skipped"];
const DELAYS = ["1m", "10m", "1h", "1d"];
const VALUES = /** @type {Record<string, string[]>} */ ({ state: STATES, late: DELAYS, took: DELAYS, since: ["1h", "24h", "7d"] });

/** The texts that what was typed may become: its last word as the name of a filter, or as one of a filter's values.
 * @param {string} typed @param {string[]} names */
function useCompletion(typed, names) {
  const last = typed.split(/\s+/).at(-1) ?? "";
  const [name, prefix] = last.includes(":") ? [last.slice(0, last.indexOf(":")), last.slice(last.indexOf(":") + 1)] : ["", last];
  const isAsked = names.includes(name) && FACETS.includes(name);
  const [found, setFound] = useState({ last: "", values: /** @type {string[]} */ ([]) });
  useEffect(() => {
    if (!isAsked) return;
    const timer = setTimeout(() => get("/v1/facets", { of: name, ...(prefix ? { prefix } : {}) }).then((it) => setFound({ last, values: it.items }), () => {}), 150);
    return () => clearTimeout(timer);
  }, [last]);
  const own = name === "submitted_by" && me.value?.subject ? [me.value.subject] : VALUES[name] ?? [];
  const values = !name ? names.map((each) => `${each}:`) : isAsked ? (found.last === last ? found.values : []) : names.includes(name) ? own : [];
  const head = typed.slice(0, typed.length - prefix.length);
  return values.filter((each) => prefix.length + name.length > 0 && each.startsWith(prefix) && !/\s/.test(each)).map((each) => head + each);
}

/** @param {{ value: string, placeholder: string, label: string, names: string[] }} given */
export function Search({ value, placeholder, label, names }) {
  const [typed, setTyped] = useState(value);
  const sent = useRef(value);
  useEffect(() => {
    if (value !== sent.current) setTyped(value);  // A link or Back changed it. What this field sent must not replace what was typed since.
    sent.current = value;
  }, [value]);
  useEffect(() => {
    if (typed === value) return;
    const timer = setTimeout(() => refine({ q: (sent.current = typed) }), 200);
    return () => clearTimeout(timer);
  }, [typed]);
  const completed = useCompletion(typed, names);
  return html`<datalist id="completed">${completed.map((each) => html`<option value=${each}></option>`)}</datalist>
    <input type="search" list="completed" autocomplete="off" aria-label=${label} placeholder=${placeholder} value=${typed} onInput=${(/** @type {any} */ e) => setTyped(e.target.value)} />`;
}
