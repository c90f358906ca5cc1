/** The page: the caller, the header, and the page that the address names. */
import { Problem } from "./api.js";
import { html, render, signal, useEffect, useEffectAtOnce, useRef, useState } from "./html.js";
import { openPalette } from "./keys.js";
import { mark, paused, start, version } from "./live.js";
import { Head, Trouble } from "./parts/page.js";
import { base, go, place, to } from "./router.js";
import { may, me, namespace, signedOut, whoAmI } from "./state/me.js";
import "./state/settings.js";
import { failedSince, standing } from "./state/standing.js";
import { now as clockNow } from "./parts/when.js";

/** @type {[RegExp, () => Promise<any>, string][]} */
const PAGES = [
  [/^\/(login)?$/, () => import("./pages/overview.js"), "Overview"],
  [/^\/jobs$/, () => import("./pages/jobs.js"), "Jobs"],
  [/^\/new-job$/, () => import("./pages/editor.js"), "Jobs"],
  [/^\/job$/, () => import("./pages/named_job.js"), "Jobs"],
  [/^\/jobs\/([^/]+)$/, () => import("./pages/job.js"), "Jobs"],
  [/^\/runs$/, () => import("./pages/runs.js"), "Runs"],
  [/^\/new-run$/, () => import("./pages/new_run.js"), "Runs"],
  [/^\/runs\/([^/]+)$/, () => import("./pages/run.js"), "Runs"],
  [/^\/failures(?:\/([^/]+))?$/, () => import("./pages/failures.js"), "Failures"],
  [/^\/load$/, () => import("./pages/load.js"), "Load"],
  [/^\/timeline$/, () => import("./pages/timeline.js"), "Timeline"],
  [/^\/queues$/, () => import("./pages/queues.js"), "Queues"],
  [/^\/workers(?:\/([^/]+))?$/, () => import("./pages/workers.js"), "Workers"],
  [/^\/cluster$/, () => import("./pages/cluster.js"), "Cluster"],
  [/^\/calendars(?:\/([^/]+))?$/, () => import("./pages/calendars.js"), "Calendars"],
  [/^\/events$/, () => import("./pages/events.js"), "Events"],
  [/^\/audit$/, () => import("./pages/audit.js"), "Audit"],
  [/^\/settings$/, () => import("./pages/settings.js"), "Settings"],
];

const LINKS = [
  ["/", "Overview"], ["/jobs", "Jobs"], ["/runs", "Runs"], ["/failures", "Failures"], ["/load", "Load"], ["/timeline", "Timeline"], ["/queues", "Queues"],
  ["/workers", "Workers"], ["/cluster", "Cluster"], ["/calendars", "Calendars"], ["/events", "Events"], ["/audit", "Audit"],
];

const LIVE = /** @type {Record<string, [string, string]>} */ ({
  on: ["on", "live"], polling: ["on", "every 5 s"], away: ["away", "no answer"],
});

function Live() {
  const [tone, word] = LIVE[mark.value.state] ?? ["", mark.value.state];
  if (paused.value) return html`<button class="plain live" onClick=${() => (paused.value = false)}>paused</button>`;
  const since = mark.value.state === "away" ? ` since ${mark.value.since.toLocaleTimeString("en-GB")}` : "";
  return html`<button class=${`plain live ${tone}`} title="pause (p)" onClick=${() => (paused.value = true)}>${word}${since}</button>`;
}

/** Another namespace: the page stays, its filter does not.
 * @param {string} name */
function change(name) {
  const path = place.value.path.split("/").slice(0, 2).join("/");
  go(`${base}/ui${path}${name === me.value?.home ? "" : `?ns=${encodeURIComponent(name)}`}`);
}

function Namespaces() {
  const field = useRef(/** @type {any} */ (null));
  useEffect(() => {
    const focus = () => field.current?.focus();
    addEventListener("mainspring-namespace", focus);
    return () => removeEventListener("mainspring-namespace", focus);
  }, []);
  const names = [...new Set([...(me.value?.namespaces ?? []), namespace.value])];
  const isOpen = me.value?.permissions?.["*"] !== undefined;
  if (!isOpen && names.length < 2) return html`<span class="muted nowrap">${namespace.value}</span>`;
  if (!isOpen) return html`<select class="namespace" ref=${field} aria-label="namespace" value=${namespace.value} onChange=${(/** @type {any} */ e) => change(e.target.value)}>${names.map((each) => html`<option>${each}</option>`)}</select>`;
  return html`<input class="namespace" ref=${field} aria-label="namespace" list="namespaces" value=${namespace.value} onChange=${(/** @type {any} */ e) => e.target.value.trim() && change(e.target.value.trim())} /><datalist id="namespaces">${names.map((each) => html`<option value=${each}></option>`)}</datalist>`;
}

/** @param {{ current: string }} given */
function Header({ current }) {
  const links = LINKS.filter(([path]) => path !== "/audit" || may("audit:read"));
  const count = standing.value.data?.attention.length ?? 0;
  useEffect(() => document.querySelector("nav a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [current]);  // On a small screen the links scroll.
  return html`<header class="header">
    <a class="brand" href=${to("/")}>Mainspring</a>
    <nav aria-label="pages">${links.map(([path, name]) => html`<a href=${to(path)} aria-current=${name === current ? "page" : null}>${name}${path === "/" && count > 0 && html`<span class="count" aria-label=${`, ${count} need attention`}>${count}</span>`}</a>`)}</nav>
    <div class="tools"><button class="plain search" onClick=${openPalette}>Search <kbd>⌘K</kbd></button>
    <${Namespaces} /><${Live} />
    <a class="muted nowrap" href=${to("/settings")} aria-current=${current === "Settings" ? "page" : null}><span class="wide">${me.value?.subject === "local" ? "open on this machine" : me.value?.subject ?? ""}</span><span class="narrow">settings</span></a></div>
  </header>`;
}

/** A session that ends within this time is announced. */
const ENDING_MS = 300_000;

/** One thing to say; a narrow screen shows two lines of it first.
 * @param {{ text: string, path: string, name: string }} given */
function Banner({ text, path, name }) {
  const [isWhole, setWhole] = useState(false);
  return html`<div class="banner" role="status"><span class="glyph" aria-hidden="true">▲</span><span class=${isWhole ? "" : "first"}>${text}</span>${path && html`<a href=${to(path)}>${name}</a>`}${!isWhole && text.length > LONG_BANNER && html`<button class="plain rest" onClick=${() => setWhole(true)}>more</button>`}</div>`;
}

/** More than two lines of a narrow screen. */
const LONG_BANNER = 90;

/** What every page has to say first: no leader, no worker, degradation, an open breaker, a new version, an action that was interrupted. */
function Banners() {
  const now = standing.value.data;
  const texts = /** @type {[string, string, string][]} */ ([]);
  if (now && !now.leader && now.attention.some((/** @type {any} */ each) => each.kind === "no-leader")) texts.push(["No node leads: no job fires.", "/cluster", "cluster"]);
  if (now && now.workers.active === 0) texts.push(["No worker is running: no run starts.", "/workers", "workers"]);
  if (now && now.degradation !== "normal") texts.push([`Under pressure, load is ${(now.pressure ?? 0).toFixed(1)} times its limit: ${now.given_up}.`, "", ""]);
  for (const [name, meanwhile] of Object.entries(now?.breakers ?? {})) texts.push([`The circuit breaker of the ${name} is open: ${meanwhile}.`, "/cluster", "cluster"]);
  if (now && standing.value.error instanceof Problem && standing.value.error.status === 503) texts.push([standing.value.error.message, "/cluster", "cluster"]);
  const left = me.value?.expires_at ? Date.parse(me.value.expires_at) - clockNow().getTime() : Infinity;
  const isOld = version.value !== (document.documentElement.dataset.version ?? "");
  return html`${texts.map(([text, path, name]) => html`<${Banner} text=${text} path=${path} name=${name} />`)}
    ${left > 0 && left < ENDING_MS && html`<div class="banner" role="status"><span class="glyph" aria-hidden="true">◷</span><span>Your session ends in ${Math.ceil(left / 60_000)} m. What you typed stays when you sign in again.</span><button class="plain" onClick=${() => (signedOut.value = true)}>Sign in now</button></div>`}
    ${isOld && html`<div class="banner" role="status"><span class="glyph" aria-hidden="true">↻</span><span>The server has another version (${version.value}). What you typed stays until you reload.</span><button class="plain" onClick=${() => location.reload()}>Reload</button></div>`}`;
}

/** @param {string} path */
function find(path) {
  for (const [pattern, load, name] of PAGES) {
    const found = pattern.exec(path);
    if (found) return { load, name, argument: found[1] && decodeURIComponent(found[1]) };
  }
  return null;
}

/** The way back in. It is loaded when it is first needed.
 * @param {{ over?: boolean }} given */
function Login({ over = false }) {
  const [Form, setForm] = useState({ view: /** @type {any} */ (null) });
  useEffect(() => void import("./pages/login.js").then(({ Login: view }) => setForm({ view })), []);
  return Form.view && html`<${Form.view} over=${over} />`;
}

const AGAIN_MS = 5_000;
const away = signal(/** @type {Error | null} */ (null));

/** A page that is opened while the server is away says so, and asks again. */
function begin() {
  whoAmI().then(start, (error) => {
    away.value = error;
    if (!signedOut.value) setTimeout(begin, AGAIN_MS);
  });
}

function App() {
  const found = find(place.value.path);
  const [page, setPage] = useState({ key: "", view: /** @type {any} */ (null) });
  const key = found?.load.toString() ?? "";
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  const [tries, setTries] = useState(0);
  useEffectAtOnce(() => {
    let current = true;
    setError(null);
    found?.load().then((module) => current && setPage({ key, view: module.default }), (problem) => current && setError(problem));
    return () => void (current = false);
  }, [key, tries]);
  const isAway = mark.value.state === "away";
  useEffect(() => {
    if (error && !isAway) setTries((n) => n + 1);  // The server is back, and the page can be loaded.
  }, [isAway]);
  if (!me.value) return signedOut.value ? html`<main><${Login} /></main>` : away.value && html`<main><${Trouble} error=${away.value} /></main>`;
  const Page = page.key === key ? page.view : null;  // Never the page before with an argument that is not its own.
  return html`<${Header} current=${found?.name ?? ""} />
    <${Banners} />
    <p class="hidden-text" role="status">${failedSince.value}</p>
    <main>
      ${error && html`<${Head} title=${found?.name ?? ""} /><${Trouble} error=${error} retry=${() => setTries((n) => n + 1)} />`}
      ${found === null ? html`<${Head} title="Not there" /><p>This page does not exist. <a href=${to("/")}>Overview</a> · <button class="plain" onClick=${openPalette}>Search</button></p>` : Page && html`<${Page} key=${`${place.value.path} ${namespace.value}`} argument=${found.argument} />`}
    </main>
    ${signedOut.value && html`<${Login} over=${true} />`}`;
}

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
render(html`<${App} />`, root);
if (history.state?.bulk) import("./parts/bulk.js");  // A reload has interrupted an action: it can be continued.
begin();
