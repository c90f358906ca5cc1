/** One run: why it is not running, its story, its output, its data. */
import { Problem } from "../api.js";
import { html, useEffect } from "../html.js";
import { askForRun } from "../parts/actions.js";
import { copy } from "../parts/dialog.js";
import { Json } from "../parts/json.js";
import { Output } from "../parts/log.js";
import { Badge, Empty, Head, Loaded, Meter, Sentence } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { length, lookOf, spaced } from "../draw/text.js";
import { go, jobNamed, place, runHref, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";
import { RUN_COLUMNS, stateOf } from "./runs.js";

/** @typedef {import("../records.d.ts").RunRelations} RunRelations */
/** @typedef {import("../records.d.ts").Spent} Part */

const TABS = [["", "Story"], ["output", "Output"], ["data", "Data"], ["relations", "Relations"]];
const ENDED = ["succeeded", "failed", "cancelled", "skipped"];

/** @param {{ run: any, reload: () => void }} given */
function Actions({ run, reload }) {
  const ended = ENDED.includes(run.state);
  const why = may("runs:control") ? "" : "needs runs:control";
  const again = run.state === "succeeded" ? "Run again" : "Copy as new run";  // The server retries what did not succeed.
  return html`
    <button onClick=${() => copy(run.run_id)}>Copy id</button>
    ${may("runs:submit") ? html`<a class="button" href=${to("/new-run", { from: run.run_id })}>${again}</a>` : html`<button disabled title="needs runs:submit">${again}</button>`}
    ${run.state !== "succeeded" && (ended
      ? html`<button class=${run.state === "failed" ? "primary" : ""} disabled=${!!why} title=${why} onClick=${() => askForRun(run.run_id, "retry", reload)}>Retry</button>`
      : html`<button class="danger" disabled=${!!why} title=${why} onClick=${() => askForRun(run.run_id, "cancel", reload)}>Cancel</button>`)}`;
}

/** @param {{ run: any }} given */
function Why({ run }) {
  const causes = run.causes ?? (run.why ?? []).map((/** @type {string} */ text) => ({ text }));
  if (!causes.length) return null;
  return html`<section class="panel"><header><h2>${run.state === "running" ? "What it does" : "Why it is not running"}</h2></header>
    <div class="body"><ol class="why">${causes.map((/** @type {any} */ cause) => html`<li><span>${said(cause)}${cause.remedy && html` <span class="muted"><${Sentence} text=${cause.remedy} /></span>`} <${Named} cause=${cause} /></span></li>`)}</ol></div></section>`;
}

/** The sentence of a cause, with the run that it names as a link.
 * @param {any} cause */
function said(cause) {
  return cause.text.split(cause.run_id ?? undefined).map((/** @type {string} */ part, /** @type {number} */ n) => html`${n > 0 && html`<a class="nowrap" href=${to(`/runs/${cause.run_id}`)}>…${cause.run_id.slice(-8)}</a>`}<${Sentence} text=${part} />`);
}

/** Links to what else a cause names.
 * @param {{ cause: any }} given */
function Named({ cause }) {
  const links = [
    cause.run_id && !cause.text.includes(cause.run_id) && [to(`/runs/${cause.run_id}`), `run …${cause.run_id.slice(-8)}`], cause.job && [jobNamed(cause.job), `job ${cause.job}`],
    cause.queue && [to("/queues"), `queue ${cause.queue}`], cause.gate && [to("/queues"), `gate ${cause.gate}`], cause.workers?.length && [to("/workers"), `${cause.workers.length} ${cause.workers.length === 1 ? "worker" : "workers"}`],
  ].filter(Boolean);
  return links.map(([href, text]) => html`<a class="nowrap" href=${href}>${text} →</a> `);
}

/** How the time from its due instant was spent: the parts add up to the whole.
 * @param {{ parts: Part[] }} given */
function Spent({ parts }) {
  const total = parts.reduce((sum, each) => sum + each.seconds, 0);
  return total > 0 && html`<section class="panel"><header><h2>Where the time went</h2><span class="muted">${length(total * 1000)} in all</span></header><div class="body">
    <ol class="spent">${parts.map((each) => html`<li data-seconds=${each.seconds}><span>${each.text}</span><${Badge} state=${each.state} /><span class="number">${length(each.seconds * 1000)}</span>
      <svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true" class=${`s-${lookOf(each.state).tone}`}><rect width=${Math.max(each.share * 100, 0.5)} height="6" fill="currentColor" /></svg></li>`)}</ol></div></section>`;
}

/** @param {{ title: string, runs: any[] }} given */
function Group({ title, runs }) {
  return runs.length > 0 && html`<section class="stack"><h2>${title}</h2><${Table} label=${title} columns=${RUN_COLUMNS} rows=${runs} id=${(/** @type {any} */ it) => it.run_id} href=${runHref} /></section>`;
}

/** @param {{ run: any }} given */
function Relations({ run }) {
  const found = useResource(`/v1/runs/${run.run_id}/relations`, undefined, (news) => news.more || news.runs.size > 0);
  return html`<${Loaded} of=${found}>${(/** @type {RunRelations} */ it) => {
    const groups = /** @type {[string, any[]][]} */ ([["It waits for", it.upstream], ["Wait for it", it.downstream], ["The same firing", it.siblings], ["Before and after: the same work again", it.retries]]);
    const isAlone = !it.lines.length && !it.gate && groups.every(([, runs]) => !runs.length);
    return isAlone ? html`<${Empty}>${ENDED.includes(run.state) ? "No run waits for it, and it repeats none. What it waited for itself is not kept once it has ended." : "It stands alone: it waits for no run, none waits for it, and it repeats none."}</${Empty}>` : html`<div class="stack">
      ${it.gate && html`<p>It waits at gate <span class="mono">${it.gate}</span>.</p>`}
      ${it.lines.map((line) => html`<p>It stands in line <span class="mono">${line.name}</span>: ${line.before} before it, the first is <a class="mono" href=${to(`/runs/${line.head}`)}>…${line.head.slice(-8)}</a>.</p>`)}
      ${groups.map(([title, runs]) => html`<${Group} title=${title} runs=${runs} />`)}</div>`;
  }}</${Loaded}>`;
}

/** @param {{ run: any }} given */
function Facts({ run }) {
  const job = run.job && html`<a href=${jobNamed(run.job)}>${run.job}</a>`;
  const facts = [
    ["Job", job || "none: submitted directly"], ["Task", html`<span class="mono">${run.task}</span>`], ["Due", html`<${When} at=${run.due_at} />`],
    ["Started", html`<${When} at=${run.started_at} />`], ["Ended", html`<${When} at=${run.finished_at} />`], ["Took", run.duration ? spaced(run.duration) : "–"],
    ["Worker", run.worker ?? "–"], ["Queue", html`${run.queue}, <span class="nowrap">region ${run.region},</span> <span class="nowrap">priority ${run.priority}</span>`], ["Key", run.key ?? "–"],
    ["Retries", `${run.retries ? `${run.retries} at most` : "none"}${run.losses ? ` · ${run.losses} ${run.losses === 1 ? "attempt" : "attempts"} lost` : ""}`], ["Timeout", run.timeout ?? "none"], ["Tags", run.tags.join(", ") || "–"],
    ["Submitted by", run.submitted_by ?? "–"], ["Id", html`<span class="mono">${run.run_id}</span>`],
  ];
  return html`<section class="panel"><div class="body"><dl class="facts">${facts.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl></div></section>`;
}

/** @param {{ run: any }} given */
function Story({ run }) {
  const attempts = useResource(`/v1/runs/${run.run_id}/attempts`, undefined, (news) => news.runs.has(run.run_id));
  const isUntried = ENDED.includes(run.state) && run.attempt === 0;
  const isAwaited = !ENDED.includes(run.state) && run.state !== "running" && run.attempt === 0;
  const tries = !isAwaited && html`<section class="panel"><header><h2>${isUntried ? "Why it did not run" : run.state === "failed" ? "Why it failed" : "Attempts"}</h2>${run.state === "failed" && html`<a class="muted" href=${to("/failures", run.job ? { job: run.job } : { task: run.task })}>all failures of this ${run.job ? "job" : "task"}</a>`}</header><div class="body"><${Loaded} of=${attempts}>${(/** @type {any} */ found) => found.items.length
    ? html`<ol class="stack">${[...found.items].reverse().map((/** @type {any} */ each, /** @type {number} */ n) => html`<${Attempt} attempt=${each} isLast=${n === 0} />`)}</ol>`
    : isUntried ? html`<p><${Sentence} text=${run.reason || "It ended before its first attempt."} /></p>` : html`<p class="muted">${run.state === "running" ? html`Attempt ${run.attempt + 1} runs since <${When} at=${run.started_at} />.` : "None of its attempts is kept."}</p>`}</${Loaded}></div></section>`;
  const spent = html`<${Spent} parts=${run.spent ?? []} />`;
  return html`<div class="columns first"><div class="stack"><${Why} run=${run} />${run.state === "failed" ? [tries, spent] : [spent, tries]}</div><${Facts} run=${run} /></div>`;
}

/** The last attempt comes first: it says why the run failed. Of those before it the traceback is folded.
 * @param {{ attempt: any, isLast: boolean }} given */
function Attempt({ attempt, isLast }) {
  const error = attempt.error;
  return html`<li class="stack">
    <div class="row"><strong>${attempt.attempt}</strong><${Badge} state=${attempt.outcome} /><${When} at=${attempt.started_at ?? attempt.finished_at} /><span class="muted">${attempt.worker}</span></div>
    ${attempt.reason && html`<p class=${error ? `s-failed clamp four ${isLast ? "sentence" : ""}` : ""} title=${error ? attempt.reason : null}>${error ? attempt.reason : html`<${Sentence} text=${attempt.reason} />`}</p>`}
    ${error && html`<div class="stack">${!attempt.reason && html`<strong class="s-failed">${error.type ?? "error"}: ${error.message ?? ""}</strong>`}
      ${error.traceback && html`<details class="folded" open=${isLast}><summary>Traceback</summary><pre class="code" tabindex="0" aria-label="traceback">${error.traceback}</pre></details>`}</div>`}
  </li>`;
}

/** @param {{ run: any }} given */
function Data({ run }) {
  return html`<div class="columns first">
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

/** What the ledger still knows of a run that was removed.
 * @param {{ firing: import("../records.d.ts").GoneFiring }} given */
function Gone({ firing }) {
  return html`<section class="panel below" aria-label="what the ledger knows"><header><h2>What the ledger still knows</h2></header><div class="body stack">
    <dl class="facts"><dt>job</dt><dd><a href=${jobNamed(firing.job)}>${firing.job}</a></dd><dt>instant</dt><dd><${When} at=${firing.fire_at} /></dd>
      <dt>outcome</dt><dd><${Badge} state=${firing.outcome} /></dd>${firing.reason && html`<dt>reason</dt><dd>${firing.reason}</dd>`}</dl>
    <p class="muted">Runs that have ended are kept for a time (the setting <code>keep_runs</code>); the ledger is kept for longer.</p></div></section>`;
}

/** @param {{ argument: string }} given */
function Whole({ argument }) {
  const run = useResource(`/v1/runs/${encodeURIComponent(argument)}`, undefined, (news) => news.more || news.runs.has(argument));
  const tab = place.value.query.get("tab") ?? (place.value.hash.startsWith("#L") ? "output" : "");
  const gone = run.error instanceof Problem && run.error.status === 404 ? run.error : null;
  return html`${run.error && !run.data && html`<${Head} title=${`Run …${argument.slice(-8)}`} />`}<${Loaded} of=${run}>${(/** @type {any} */ it) => html`
    <${Head} title=${`${it.job ?? it.task} …${it.run_id.slice(-8)}`} actions=${html`<${Actions} run=${it} reload=${run.reload} />`}>
      <${Badge} state=${stateOf(it)} />${it.reason && !(it.state === "failed" && tab === "") && html`<span class="muted clamp" title=${it.reason}><${Sentence} text=${it.reason} /></span>`}
      ${it.state === "running" && it.progress !== null && html`<${Meter} used=${Math.round(it.progress * 100)} of=${100} /><span>${Math.round(it.progress * 100)} % ${it.progress_note}</span>`}
    </${Head}>
    <nav class="tabs" aria-label="parts">${TABS.map(([name, word]) => html`<a href=${to(`/runs/${argument}`, { tab: name })} aria-current=${name === tab ? "page" : null}>${word}</a>`)}</nav>
    ${tab === "output" ? html`<${Output} run=${it} />` : tab === "data" ? html`<${Data} run=${it} />` : tab === "relations" ? html`<${Relations} run=${it} />` : html`<${Story} run=${it} />`}`}</${Loaded}>
    ${gone?.firing && html`<${Gone} firing=${gone.firing} />`}
    ${gone && !gone.firing && html`<p class="below-text below">Runs that have ended are kept for a time (the setting <code>keep_runs</code>). If it was removed, the ledger of its job still says what became of its instant. <a href=${to("/jobs")}>Jobs</a> · <a href=${to("/runs")}>Runs</a></p>`}`;
}
