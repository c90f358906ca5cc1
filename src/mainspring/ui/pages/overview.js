/** Overview: is it well, what needs attention, what runs, what comes next. */
import { html, useState } from "../html.js";
import { lookOf } from "../draw/states.js";
import { Badge, Meter } from "../parts/badge.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { When } from "../parts/when.js";
import { to } from "../router.js";
import { useOverview } from "../state/overview.js";
import { jobHref } from "./jobs.js";
import { runHref } from "./runs.js";

const FEW = 8;

/** @param {{ title: string, href: string, figure: any, children?: any }} given */
function Card({ title, href, figure, children }) {
  return html`<section class="panel"><header><h2>${title}</h2><a class="muted" href=${href}>open</a></header><div class="body"><div class="figure">${figure}</div><div class="muted">${children}</div></div></section>`;
}

/** @param {{ count: number, more: boolean }} counted */
function written({ count, more }) {
  return `${count.toLocaleString("en-GB")}${more ? "+" : ""}`;
}

/** @param {{ all: any }} given */
function Cards({ all }) {
  const { ready, workers, counts } = all;
  const active = workers.filter((/** @type {any} */ each) => each.state === "active");
  const sum = (/** @type {string} */ name) => active.reduce((/** @type {number} */ total, /** @type {any} */ each) => total + each[name], 0);
  return html`<div class="cards">
    <${Card} title="Server" href=${to("/events")} figure=${html`<${Badge} state=${ready.status === "ready" ? "active" : "failed"} word=${ready.status} />`}>
      ${ready.degradation === "normal" ? "under no pressure" : `${ready.degradation}, pressure ${ready.pressure}`}</${Card}>
    <${Card} title="Workers" href=${to("/workers")} figure=${`${active.length} of ${workers.length}`}>
      <${Meter} used=${sum("running")} of=${sum("concurrency")} /> ${sum("running")} of ${sum("concurrency")} slots</${Card}>
    <${Card} title="Runs" href=${to("/runs", { state: "running" })} figure=${`${written(counts.running)} running`}>
      ${written(counts.pending)} pending · ${written(counts.blocked)} blocked</${Card}>
    <${Card} title="Failed for good" href=${to("/failures")} figure=${html`<${Badge} state=${counts.failed.count ? "failed" : "succeeded"} word=${written(counts.failed)} />`}>
      ${written(counts.active)} jobs active · ${written(counts.paused)} paused</${Card}>
  </div>`;
}

/** @param {any} cause */
function hrefOf(cause) {
  if (cause.state === "failed" && cause.run_id) return to("/failures", { q: cause.job ? `job:${cause.job}` : "" });
  if (cause.job) return to(`/jobs/${encodeURIComponent(cause.job)}`);
  if (cause.jobs) return to("/jobs", { q: "state:paused" });
  if (cause.queue) return to("/runs", { state: "pending", q: `queue:${cause.queue}` });
  return to("/workers");
}

/** @param {{ causes: any[] }} given */
function Attention({ causes }) {
  const [all, setAll] = useState(false);
  const shown = all ? causes : causes.slice(0, 2 * FEW);
  return html`<section class="panel"><header><h2>Needs attention</h2></header><div class="body">
    ${causes.length === 0
      ? html`<${Empty}>Nothing needs you.</${Empty}>`
      : html`<ul class="attention">${shown.map((cause) => html`<${Cause} cause=${cause} />`)}</ul>
        ${shown.length < causes.length && html`<button class="plain" onClick=${() => setAll(true)}>Show ${causes.length - shown.length} more</button>`}`}</div></section>`;
}

/** @param {{ cause: any }} given */
function Cause({ cause }) {
  const look = lookOf(cause.state);
  return html`<li><span class=${`glyph s-${look.tone}`} aria-hidden="true">${look.glyph}</span>
    <span><a href=${hrefOf(cause)}><strong>${cause.name}</strong></a> ${cause.text}${cause.remedy && html`<br /><code class="muted">${cause.remedy}</code>`}</span>
    <span class="muted"><${When} at=${cause.since} plain none="" /></span></li>`;
}

/** @param {{ all: any }} given */
function Now({ all }) {
  return html`<section class="panel"><header><h2>Running now</h2><a class="muted" href=${to("/runs", { state: "running" })}>all</a></header><div class="body">
      ${all.running.length === 0 ? html`<${Empty}>Nothing runs.</${Empty}>` : html`<ul class="lines">${all.running.slice(0, FEW).map((/** @type {any} */ run) => html`<li>
        <a href=${runHref(run)}>${run.job ?? run.task}</a><span class="muted">${run.progress !== null ? `${Math.round(run.progress * 100)} % · ` : ""}<${When} at=${run.started_at} plain /></span></li>`)}</ul>`}</div></section>
    ${all.next && html`<section class="panel"><header><h2>Next due</h2><a class="muted" href=${to("/jobs")}>all jobs</a></header><div class="body">
      ${all.next.length === 0 ? html`<${Empty} command='mainspring job add hello --every 30s --command "echo hello"'>Nothing is scheduled.</${Empty}>` : html`<ul class="lines">${all.next.slice(0, FEW).map((/** @type {any} */ job) => html`<li>
        <a href=${jobHref(job)}>${job.name}</a><span class="muted"><${When} at=${job.next_fire_at} plain /></span></li>`)}</ul>`}</div></section>`}`;
}

export default function Overview() {
  const all = useOverview();
  return html`<${Head} title="Overview" /><${Loaded} of=${all}>${(/** @type {any} */ it) => html`
    <${Cards} all=${it} />
    <div class="columns"><${Attention} causes=${it.attention} /><div class="stack"><${Now} all=${it} /></div></div>`}</${Loaded}>`;
}
