/** The page: who asks, the header, and the page that the address names. */
import "./keys.js";
import { html, render, useEffect, useState } from "./html.js";
import { mark, paused, start } from "./live.js";
import { Dialog, toast } from "./parts/dialog.js";
import { Palette } from "./parts/palette.js";
import { Trouble } from "./parts/page.js";
import { place, to } from "./router.js";
import { may, me, namespace, signedOut, whoAmI } from "./state/me.js";
import "./state/settings.js";
import { Login } from "./pages/login.js";

/** @type {[RegExp, () => Promise<any>, string][]} */
const PAGES = [
  [/^\/(login)?$/, () => import("./pages/overview.js"), "Overview"],
  [/^\/jobs$/, () => import("./pages/jobs.js"), "Jobs"],
  [/^\/new-job$/, () => import("./pages/editor.js"), "Jobs"],
  [/^\/jobs\/([^/]+)$/, () => import("./pages/job.js"), "Jobs"],
  [/^\/runs$/, () => import("./pages/runs.js"), "Runs"],
  [/^\/runs\/([^/]+)$/, () => import("./pages/run.js"), "Runs"],
  [/^\/failures$/, () => import("./pages/failures.js"), "Failures"],
  [/^\/workers$/, () => import("./pages/workers.js"), "Workers"],
  [/^\/calendars$/, () => import("./pages/calendars.js"), "Calendars"],
  [/^\/events$/, () => import("./pages/events.js"), "Events"],
  [/^\/audit$/, () => import("./pages/audit.js"), "Audit"],
  [/^\/settings$/, () => import("./pages/settings.js"), "Settings"],
];

const LINKS = [
  ["/", "Overview"], ["/jobs", "Jobs"], ["/runs", "Runs"], ["/failures", "Failures"], ["/workers", "Workers"],
  ["/calendars", "Calendars"], ["/events", "Events"], ["/audit", "Audit"], ["/settings", "Settings"],
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

/** @param {{ current: string }} given */
function Header({ current }) {
  const links = LINKS.filter(([path]) => path !== "/audit" || may("audit:read"));
  return html`<header class="header">
    <a class="brand" href=${to("/")}>Mainspring</a>
    <nav aria-label="pages">${links.map(([path, name]) => html`<a href=${to(path)} aria-current=${name === current ? "page" : null}>${name}</a>`)}</nav>
    <span class="muted nowrap">${namespace.value}</span>
    <${Live} />
    <span class="muted nowrap">${me.value?.subject === "local" ? "open on this machine" : me.value?.subject ?? ""}</span>
  </header>`;
}

/** @param {string} path */
function find(path) {
  for (const [pattern, load, name] of PAGES) {
    const found = pattern.exec(path);
    if (found) return { load, name, argument: found[1] && decodeURIComponent(found[1]) };
  }
  return null;
}

function App() {
  const found = find(place.value.path);
  const [page, setPage] = useState({ key: "", view: /** @type {any} */ (null) });
  const key = found?.load.toString() ?? "";
  const [error, setError] = useState(/** @type {Error | null} */ (null));
  useEffect(() => {
    let current = true;
    found?.load().then((module) => current && setPage({ key, view: module.default }), setError);
    return () => void (current = false);
  }, [key]);
  if (!me.value) return signedOut.value ? html`<main><${Login} /></main>` : null;
  const Page = page.key === key ? page.view : null;  // Never the page before with an argument that is not its own.
  return html`<${Header} current=${found?.name ?? ""} />
    <main>
      ${error && html`<${Trouble} error=${error} />`}
      ${found === null ? html`<h1>Not there</h1><p>This page does not exist. <a href=${to("/")}>Overview</a></p>` : Page && html`<${Page} key=${`${place.value.path} ${namespace.value}`} argument=${found.argument} />`}
    </main>
    ${signedOut.value && html`<${Login} over=${true} />`}
    <${Dialog} /><${Palette} />
    <div role="status" aria-live="polite">${toast.value && html`<div class="toast">${toast.value}</div>`}</div>`;
}

const root = /** @type {HTMLElement} */ (document.getElementById("app"));
render(html`<${App} />`, root);
whoAmI().then(start, () => {});
