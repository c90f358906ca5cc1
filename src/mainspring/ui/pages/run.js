/** One run: why it is not running, its story, its output, its data. */
import { html, useEffect, useState } from "../html.js";
import { Badge, Meter } from "../parts/badge.js";
import { copy } from "../parts/dialog.js";
import { Json } from "../parts/json.js";
import { Output } from "../parts/log.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { When } from "../parts/when.js";
import { go, place, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";
import { askForRuns, runHref, stateOf } from "./runs.js";

const TABS = [["", "Story"], ["output", "Output"], ["data", "Data"]];
const ENDED = ["succeeded", "failed", "cancelled", "skipped"];

/** @param {{ run: any, reload: () => void }} given */
function Actions({ run, reload }) {
  const one = new Set([run.run_id]);
  const ended = ENDED.includes(run.state);
  const why = may("runs:control") ? "" : "needs runs:control";
  return html`
    <button onClick=${() => copy(run.run_id)}>Copy id</button>
    ${ended
      ? html`<button disabled=${!!why} title=${why} onClick=${() => askForRuns(one, "retry", reload)}>Retry</button>`
      : html`<button class="danger" disabled=${!!why} title=${why} onClick=${() => askForRuns(one, "cancel", reload)}>Cancel</button>`}`;
}

/** @param {{ run: any }} given */
function Why({ run }) {
  const causes = run.causes ?? (run.why ?? []).map((/** @type {string} */ text) => ({ text }));
  if (!causes.length) return null;
  return html`<section class="panel"><header><h2>${run.state === "running" ? "What it does" : "Why it is not running"}</h2></header>
    <div class="body"><ol class="why">${causes.map((/** @type {any} */ cause) => html`<li><span>${cause.text}${cause.remedy && html` <span class="muted">${cause.remedy}</span>`}</span></li>`)}</ol></div></section>`;
}

/** @param {{ run: any }} given */
function Facts({ run }) {
  const job = run.job && html`<a href=${to(`/jobs/${encodeURIComponent(run.job)}`)}>${run.job}</a>`;
  const facts = [
    ["Job", job || "none: submitted directly"], ["Task", html`<span class="mono">${run.task}</span>`], ["Due", html`<${When} at=${run.due_at} />`],
    ["Started", html`<${When} at=${run.started_at} />`], ["Ended", html`<${When} at=${run.finished_at} />`], ["Took", run.duration ?? "–"],
    ["Worker", run.worker ?? "–"], ["Queue", `${run.queue} · region ${run.region} · priority ${run.priority}`], ["Key", run.key ?? "–"],
    ["Retries", `${run.retries} at most · ${run.losses} lost`], ["Timeout", run.timeout ?? "none"], ["Tags", run.tags.join(", ") || "–"],
    ["Submitted by", run.submitted_by ?? "–"], ["Id", html`<span class="mono">${run.run_id}</span>`],
  ];
  return html`<section class="panel"><div class="body"><dl class="facts">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl></div></section>`;
}

/** @param {{ run: any }} given */
function Story({ run }) {
  const attempts = useResource(`/v1/runs/${run.run_id}/attempts`, undefined, (news) => news.runs.has(run.run_id));
  return html`<div class="columns"><div class="stack"><${Why} run=${run} />
    <section class="panel"><header><h2>Attempts</h2></header><div class="body"><${Loaded} of=${attempts}>${(/** @type {any} */ found) => found.items.length
      ? html`<ol class="stack">${found.items.map((/** @type {any} */ each) => html`<${Attempt} attempt=${each} />`)}</ol>`
      : html`<${Empty}>It has not ended an attempt yet.</${Empty}>`}</${Loaded}></div></section></div>
    <${Facts} run=${run} /></div>`;
}

/** @param {{ attempt: any }} given */
function Attempt({ attempt }) {
  const error = attempt.error;
  const [open, setOpen] = useState(true);
  return html`<li class="stack">
    <div class="row"><strong>${attempt.attempt}</strong><${Badge} state=${attempt.outcome} /><${When} at=${attempt.started_at ?? attempt.finished_at} /><span class="muted">${attempt.worker}</span></div>
    ${attempt.reason && html`<p>${attempt.reason}</p>`}
    ${error && html`<div class="stack"><strong class="s-failed">${error.type ?? "error"}: ${error.message ?? ""}</strong>
      ${error.traceback && html`<button class="plain" aria-expanded=${open} onClick=${() => setOpen(!open)}>${open ? "hide" : "show"} the traceback</button>`}
      ${open && error.traceback && html`<pre class="code" tabindex="0" aria-label="traceback">${error.traceback}</pre>`}</div>`}
  </li>`;
}

/** @param {{ run: any }} given */
function Data({ run }) {
  return html`<div class="columns">
    <section class="stack"><h2>Arguments</h2><${Json} value=${run.args} label="arguments" /></section>
    <section class="stack"><h2>${run.error ? "Error" : "Result"}</h2><${Json} value=${run.error ?? run.result} label="result" /></section></div>`;
}

const ID_LENGTH = 26;

/** The run whose id ends or begins like this, if there is one.
 * @param {{ part: string }} given */
function Short({ part }) {
  const found = useResource("/v1/runs", { id: part, limit: 20 });
  const items = found.data?.items ?? [];
  useEffect(() => {
    if (items.length === 1) go(to(`/runs/${items[0].run_id}`), { replace: true });
  }, [items.length]);
  return html`<${Head} title=${`Run …${part}`} /><${Loaded} of=${found}>${() => items.length === 0
    ? html`<${Empty}>No run that is kept has an id like <code>${part}</code>.</${Empty}>`
    : html`<ul class="lines">${items.map((/** @type {any} */ run) => html`<li><a class="mono" href=${runHref(run)}>${run.run_id}</a><span>${run.job ?? run.task}</span></li>`)}</ul>`}</${Loaded}>`;
}

/** @param {{ argument: string }} given */
export default function Run({ argument }) {
  return argument.length < ID_LENGTH ? html`<${Short} part=${argument} />` : html`<${Whole} argument=${argument} />`;
}

/** @param {{ argument: string }} given */
function Whole({ argument }) {
  const run = useResource(`/v1/runs/${encodeURIComponent(argument)}`, undefined, (news) => news.more || news.runs.has(argument));
  const tab = place.value.query.get("tab") ?? (place.value.hash.startsWith("#L") ? "output" : "");
  return html`<${Loaded} of=${run}>${(/** @type {any} */ it) => html`
    <${Head} title=${`${it.job ?? it.task} …${it.run_id.slice(-8)}`} actions=${html`<${Actions} run=${it} reload=${run.reload} />`}>
      <${Badge} state=${stateOf(it)} />${it.reason && html`<span class="muted">${it.reason}</span>`}
      ${it.state === "running" && it.progress !== null && html`<${Meter} used=${Math.round(it.progress * 100)} of=${100} /><span>${Math.round(it.progress * 100)} % ${it.progress_note}</span>`}
    </${Head}>
    <nav class="tabs" aria-label="parts">${TABS.map(([name, word]) => html`<a href=${to(`/runs/${argument}`, { tab: name })} aria-current=${name === tab ? "page" : null}>${word}</a>`)}</nav>
    ${tab === "output" ? html`<${Output} run=${it} />` : tab === "data" ? html`<${Data} run=${it} />` : html`<${Story} run=${it} />`}`}</${Loaded}>`;
}
