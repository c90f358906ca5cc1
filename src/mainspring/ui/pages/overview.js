/** Overview: is it well, what needs attention, what runs, what comes next. */
import { html } from "../html.js";
import { lookOf } from "../draw/states.js";
import { Badge, Meter } from "../parts/badge.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { When } from "../parts/when.js";
import { to } from "../router.js";
import { useResource } from "../state/resource.js";
import { jobHref } from "./jobs.js";
import { runHref } from "./runs.js";

/** @param {{ title: string, figure: any, children?: any }} given */
function Card({ title, figure, children }) {
  return html`<section class="panel"><header><h2>${title}</h2></header><div class="body"><div class="figure">${figure}</div><div class="muted">${children}</div></div></section>`;
}

/** @param {number} count */
function written(count) {
  return count.toLocaleString("en-GB");
}

/** @param {{ all: any }} given */
function Cards({ all }) {
  const { leader, workers, counts } = all;
  return html`<div class="cards">
    <${Card} title="Leader" figure=${leader ? leader.owner : html`<${Badge} state="failed" word="none" />`}>
      ${leader ? html`term ${leader.term}, since <${When} at=${leader.since} plain />` : "No node plans firings. Start one: mainspring server"}</${Card}>
    <${Card} title="Workers" figure=${`${workers.active} of ${workers.known}`}>
      <${Meter} used=${workers.running} of=${workers.slots} /> ${written(workers.running)} of ${written(workers.slots)} slots</${Card}>
    <${Card} title="Waiting" figure=${`${written(counts.due)} due`}>
      ${all.oldest_due ? html`oldest <${When} at=${all.oldest_due} plain /> · ` : ""}${written(counts.blocked)} blocked · ${written(counts.later)} later</${Card}>
    <${Card} title="Last 24 hours" figure=${html`<span class="row"><${Badge} state="succeeded" word=${written(counts.succeeded)} /><${Badge} state="failed" word=${written(counts.failed)} /><${Badge} state="missed" word=${written(counts.missed ?? 0)} /></span>`}>
      succeeded, failed, missed</${Card}>
  </div>`;
}

/** @param {any} cause */
function hrefOf(cause) {
  if (cause.job) return to(`/jobs/${encodeURIComponent(cause.job)}`);
  if (cause.run_id) return to(`/runs/${cause.run_id}`);
  if (cause.queue) return to("/queues");
  return cause.kind === "no-leader" ? to("/cluster") : to("/workers");
}

/** @param {{ causes: any[] }} given */
function Attention({ causes }) {
  return html`<section class="panel"><header><h2>Needs attention</h2></header><div class="body">
    ${causes.length === 0
      ? html`<${Empty}>Nothing needs you.</${Empty}>`
      : html`<ul class="attention">${causes.map((cause) => {
          const look = lookOf(cause.state);
          return html`<li><span class=${`glyph s-${look.tone}`} aria-hidden="true">${look.glyph}</span>
            <span><a href=${hrefOf(cause)}><strong>${cause.name}</strong></a> ${cause.text}${cause.remedy && html`<br /><span class="muted">${cause.remedy}</span>`}</span>
            <span class="muted"><${When} at=${cause.since} plain none="" /></span></li>`;
        })}</ul>`}</div></section>`;
}

/** @param {{ all: any }} given */
function Now({ all }) {
  return html`<section class="panel"><header><h2>Running now</h2><a href=${to("/runs", { state: "running" })}>all</a></header><div class="body">
      ${all.running.length === 0 ? html`<${Empty}>Nothing runs.</${Empty}>` : html`<ul class="lines">${all.running.map((/** @type {any} */ run) => html`<li>
        <a href=${runHref(run)}>${run.job ?? run.task}</a><span class="muted">${run.progress !== null && run.progress !== undefined ? `${Math.round(run.progress * 100)} % · ` : ""}<${When} at=${run.started_at} plain /></span></li>`)}</ul>`}</div></section>
    <section class="panel"><header><h2>Next due</h2><a href=${to("/jobs")}>all jobs</a></header><div class="body">
      ${all.next.length === 0 ? html`<${Empty} command='mainspring job add hello --every 30s --command "echo hello"'>Nothing is scheduled.</${Empty}>` : html`<ul class="lines">${all.next.map((/** @type {any} */ job) => html`<li>
        <a href=${jobHref(job)}>${job.name}</a><span class="muted"><${When} at=${job.next_fire_at} plain /></span></li>`)}</ul>`}</div></section>`;
}

export default function Overview() {
  const all = useResource("/v1/overview");
  return html`<${Head} title="Overview" /><${Loaded} of=${all}>${(/** @type {any} */ it) => html`
    <${Cards} all=${it} />
    <div class="columns"><${Attention} causes=${it.attention} /><div class="stack"><${Now} all=${it} /></div></div>`}</${Loaded}>`;
}
