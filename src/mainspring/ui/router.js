/** Where we are: a path below `/ui/`, and a query. Every page, filter and tab has an address; Back always works. */
import { signal } from "./html.js";

/** What a proxy puts before `/ui/`; the server writes it into the page. */
export const base = document.documentElement.dataset.base ?? "";

/** @typedef {{ path: string, query: URLSearchParams, hash: string }} Place */

/** @returns {Place} */
function here() {
  const path = location.pathname.slice(base.length).replace(/^\/ui\/?/, "/");
  return { path, query: new URLSearchParams(location.search), hash: location.hash };
}

export const place = signal(here());

/** The address of a page. Empty values are left out, and the namespace is kept.
 * @param {string} path
 * @param {Record<string, string | number | undefined | null | false>} [query] */
export function to(path, query = {}) {
  const words = new URLSearchParams();
  const namespace = place.value.query.get("ns");
  if (namespace) words.set("ns", namespace);
  for (const [name, value] of Object.entries(query)) if (value !== undefined && value !== null && value !== "" && value !== false) words.set(name, String(value));
  const text = words.toString();
  return `${base}/ui${path}${text ? `?${text}` : ""}`;
}

/** The page of a job. A path has no room for a slash: such a name is replaced by the id.
 * @param {{ name: string, job_id: string }} job @param {Record<string, string | number>} [query] */
export function jobHref(job, query) {
  return to(`/jobs/${encodeURIComponent(job.name.includes("/") ? job.job_id : job.name)}`, query);
}

/** The page of a job of which only the name is known. With a slash in it, `/job` finds the id.
 * @param {string} name */
export function jobNamed(name) {
  return name.includes("/") ? to("/job", { name }) : to(`/jobs/${encodeURIComponent(name)}`);
}

/** The page of a run.
 * @param {{ run_id: string }} run */
export function runHref(run) {
  return to(`/runs/${run.run_id}`);
}

/** The objects of the list that was shown last, in its order: keys step from one to the next. */
export let siblings = /** @type {string[]} */ ([]);

/** @param {string[]} hrefs */
export function remember(hrefs) {
  siblings = hrefs;
}

/** Go to an address of ours.
 * @param {string} url
 * @param {{ replace?: boolean }} [how] */
export function go(url, { replace = false } = {}) {
  const row = document.activeElement?.closest("[data-row]");
  history.replaceState({ ...history.state, scroll: scrollY, row: row instanceof HTMLElement ? row.dataset.row : undefined }, "");
  history[replace ? "replaceState" : "pushState"]({}, "", url);
  place.value = here();
  if (!replace) scrollTo(0, 0);
}

/** Change words of the query, and stay on the page.
 * @param {Record<string, string | undefined>} words */
export function refine(words) {
  const query = new URLSearchParams(place.value.query);
  for (const [name, value] of Object.entries(words)) value ? query.set(name, value) : query.delete(name);
  const text = query.toString();
  go(`${location.pathname}${text ? `?${text}` : ""}`, { replace: true });
}

/** Restoring stops after this time: what was shown may not exist any more. */
const RESTORING_MS = 3_000;
let restoring = 0;

/** Scroll to where the page was left, and focus the row that was opened, once both are there.
 * @param {{ scroll?: number, row?: string } | null} state */
function restore(state) {
  cancelAnimationFrame(restoring);
  if (!state?.scroll && !state?.row) return;
  const [scroll, until] = [state.scroll ?? 0, performance.now() + RESTORING_MS];
  const look = () => {
    const isThere = document.documentElement.scrollHeight >= scroll + innerHeight;
    if (isThere && Math.abs(scrollY - scroll) > 1) scrollTo(0, scroll);
    const link = isThere && state.row ? document.querySelector(`[data-row="${CSS.escape(state.row)}"] a`) : null;
    if (link instanceof HTMLElement) link.focus({ preventScroll: true });
    if ((!isThere || (state.row && !link)) && performance.now() < until) restoring = requestAnimationFrame(look);
  };
  restoring = requestAnimationFrame(look);
}

history.scrollRestoration = "manual";
addEventListener("popstate", (event) => {
  place.value = here();
  restore(event.state);
});
addEventListener("pagehide", () => history.replaceState({ ...history.state, scroll: scrollY }, ""));
for (const kind of ["wheel", "touchstart", "keydown"]) addEventListener(kind, () => cancelAnimationFrame(restoring), { passive: true });
restore(history.state);

document.addEventListener("click", (event) => {
  if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
  const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
  if (link.origin !== location.origin || !link.pathname.startsWith(`${base}/ui/`) || link.pathname.includes("/assets/")) return;
  if (link.hash && link.pathname === location.pathname && link.search === location.search) return;
  event.preventDefault();
  go(link.href);
});
