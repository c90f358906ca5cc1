/** One job: what each due instant came to, its runs, its next fire times, its definition. */
import { Problem } from "../api.js";
import { html, useEffect } from "../html.js";
import { askForJob } from "../parts/actions.js";
import { Difference } from "../parts/difference.js";
import { Neighbours } from "../parts/graph.js";
import { Json } from "../parts/json.js";
import { Ledger } from "../parts/ledger.js";
import { usePages } from "../parts/lists.js";
import { Badge, Empty, Head, Loaded, Sentence } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { jobHref, jobNamed, place, runHref, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";
import { Editor } from "./editor.js";
import { RUN_COLUMNS } from "./runs.js";

/** @typedef {import("../records.d.ts").RelatedJob} RelatedJob */

const TABS = [["", "Ledger"], ["runs", "Runs"], ["next", "Next"], ["relations", "Relations"], ["edit", "Edit"], ["definition", "Definition"], ["versions", "Versions"]];

/** @param {{ job: any, reload: () => void }} given */
function Actions({ job, reload }) {
  const operate = may("jobs:operate") ? "" : "needs jobs:operate";
  const write = may("jobs:write") ? "" : "needs jobs:write";
  const toggle = job.state === "paused" ? "resume" : "pause";
  return html`
    <button disabled=${!!operate} title=${operate} onClick=${() => askForJob(job, "trigger", reload)}>Trigger</button>
    ${write ? html`<button disabled title=${write}>Edit</button>` : html`<a class="button" href=${jobHref(job, { tab: "edit" })}>Edit</a>`}
    <button disabled=${!!operate} title=${operate} onClick=${() => askForJob(job, toggle, reload)}>${toggle === "pause" ? "Pause" : "Resume"}</button>
    <button class="danger" disabled=${!!write} title=${write} onClick=${() => askForJob(job, "remove", reload)}>Remove</button>`;
}

/** @param {{ job: any }} given */
function JobRuns({ job }) {
  const runs = usePages(`/v1/jobs/${job.job_id}/runs`, { limit: 100 }, (news) => news.jobs.has(job.job_id) || news.more);
  return html`<${Loaded} of=${runs}>${() => runs.rows.length
    ? html`<${Table} label="runs" columns=${RUN_COLUMNS.filter((each) => each.name !== "Task")} rows=${runs.rows} id=${(/** @type {any} */ run) => run.run_id} href=${runHref} more=${runs.more} />`
    : html`<${Empty}>It has no runs.</${Empty}>`}</${Loaded}>`;
}

/** The calendars that take instants from a schedule.
 * @param {{ names: string[] }} given */
function Calendars({ names }) {
  return names.map((name, n) => html`${n > 0 && ", "}<a href=${to(`/calendars/${encodeURIComponent(name)}`)}>${name}</a>`);
}

/** @param {{ job: any }} given */
function Next({ job }) {
  const times = useResource(`/v1/jobs/${job.job_id}/next`, { count: 50 });
  const columns = [
    { name: "When", cell: (/** @type {any} */ each) => html`<${When} at=${each.fire_at} zone=${job.trigger.tz} job />` },
    { name: "UTC", tight: true, cell: (/** @type {any} */ each) => html`<span class="mono">${each.fire_at}</span>` },
    { name: "Note", cell: (/** @type {any} */ each) => each.note },
  ];
  const { calendars, on_excluded: moves } = job.policy;
  const left = html`<p class="below-text muted">What these calendars exclude ${moves === "next_day" ? "moves to the next day that they do not" : "is left out"}: <${Calendars} names=${calendars} /></p>`;
  return html`${calendars.length > 0 && left}<${Loaded} of=${times}>${(/** @type {any} */ found) => found.items.length
    ? html`<${Table} label="next fire times" columns=${found.items.some((/** @type {any} */ each) => each.note) ? columns : columns.slice(0, 2)} rows=${found.items} id=${(/** @type {any} */ each) => each.fire_at} />`
    : html`<${Empty}>It will not fire by itself.</${Empty}>`}</${Loaded}>`;
}

/** How a job before this one is tied to it, and one after it. */
const BEFORE = { after: "this job fires after it has ended", dependency: "this job's runs wait for it" };
const AFTER = { after: "fires after this job has ended", dependency: "its runs wait for this job" };

/** @param {{ title: string, jobs: RelatedJob[], how: typeof BEFORE }} given */
function Related({ title, jobs, how }) {
  return html`<section class="panel"><header><h2>${title}</h2></header><div class="body">${jobs.length
    ? html`<ul class="lines">${jobs.map((each) => html`<li><span><a href=${jobNamed(each.name)}>${each.name}</a> <span class="muted">${how[each.how]}</span></span>
        <span>${each.latest_outcome ? html`<${Badge} state=${each.latest_outcome} /> <${When} at=${each.latest_at} />` : html`<span class="muted nowrap">has not fired</span>`}</span></li>`)}</ul>`
    : html`<p class="muted">None.</p>`}</div></section>`;
}

/** @param {{ job: any }} given */
function Relations({ job }) {
  const found = useResource(`/v1/jobs/${encodeURIComponent(job.job_id)}/relations`);
  return html`<${Loaded} of=${found}>${(/** @type {any} */ it) => html`<${Neighbours} job=${job} upstream=${it.upstream} downstream=${it.downstream} /><div class="columns first"><${Related} title="Before it" jobs=${it.upstream} how=${BEFORE} /><${Related} title="After it" jobs=${it.downstream} how=${AFTER} /></div>`}</${Loaded}>`;
}

const VERSIONS = [
  { name: "When", tight: true, cell: (/** @type {any} */ it) => html`<${When} at=${it.at} />` },
  { name: "Subject", tight: true, cell: (/** @type {any} */ it) => it.subject },
  { name: "Action", tight: true, cell: (/** @type {any} */ it) => html`<span class="mono">${it.action}</span>` },
  { name: "Difference", cell: (/** @type {any} */ it) => html`<${Difference} before=${it.before} after=${it.after} />` },
];

/** The editor; with an earlier definition in it, if the address names one of the changes.
 * @param {{ job: any, done: () => void }} given */
function Edit({ job, done }) {
  const number = place.value.query.get("version");
  const changes = useResource(number ? `/v1/jobs/${encodeURIComponent(job.job_id)}/versions` : null, { limit: 200 });
  if (!number) return html`<${Editor} job=${job} done=${done} />`;
  return html`<${Loaded} of=${changes}>${(/** @type {any} */ found) => {
    const change = found.items.find((/** @type {any} */ each) => `${each.number}` === number);
    return change ? html`<p class="below-text">This is the definition of <${When} at=${change.at} />. Saving replaces what is stored now.</p><${Editor} job=${job} first=${{ ...job, ...change.after }} done=${done} />`
      : html`<${Empty}>This change is not among the newest. <a href=${to(place.value.path, { tab: "versions" })}>All changes</a></${Empty}>`;
  }}</${Loaded}>`;
}

/** @param {any} job */
function versionColumns(job) {
  const back = { name: "", tight: true, cell: (/** @type {any} */ it) => may("jobs:write") && it.after?.trigger && html`<a href=${jobHref(job, { tab: "edit", version: it.number })}>Edit from this</a>` };
  return [...VERSIONS, back];
}

/** @param {{ job: any }} given */
function Versions({ job }) {
  const changes = usePages(`/v1/jobs/${encodeURIComponent(job.job_id)}/versions`, { limit: 50 }, (news) => news.more || news.jobs.has(job.job_id));
  return html`<${Loaded} of=${changes}>${() => changes.rows.length
    ? html`<${Table} label="versions" columns=${versionColumns(job)} rows=${changes.rows} id=${(/** @type {any} */ it) => `${it.number}`} more=${changes.more} />`
    : html`<${Empty}>It was not changed over the API. What its code declares is not recorded here.</${Empty}>`}</${Loaded}>`;
}

/** @param {{ argument: string }} given */
export default function Job({ argument }) {
  const job = useResource(`/v1/jobs/${encodeURIComponent(argument)}`, undefined, (news) => news.more || news.jobs.has(argument) || news.jobs.has(job.data?.job_id));
  const tab = place.value.query.get("tab") ?? "";
  useEffect(() => document.querySelector(".tabs a[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [tab, job.data === null]);  // On a small screen the tabs scroll.
  const parts = /** @type {Record<string, any>} */ ({ "": Ledger, runs: JobRuns, next: Next, relations: Relations, edit: Edit, versions: Versions });
  const tabs = TABS.filter(([name]) => name !== "edit" || may("jobs:write"));
  const isGone = job.error instanceof Problem && job.error.status === 404;
  return html`${job.error && !job.data && html`<${Head} title=${argument} />`}<${Loaded} of=${job}>${(/** @type {any} */ it) => html`
    <${Head} title=${it.name} actions=${html`<${Actions} job=${it} reload=${job.reload} />`}>
      <${Badge} state=${it.state} /><span title=${it.schedule}>${it.schedule_text || it.schedule}</span>${it.policy.calendars.length > 0 && html`<span>except as in <${Calendars} names=${it.policy.calendars} /></span>`}${it.state === "active" && it.next_fire_at && html`<span><span class="muted">next</span> <${When} at=${it.next_fire_at} zone=${it.trigger.tz} job /></span>`}
    </${Head}>
    ${it.why?.length > 0 && tab === "" && html`<ul class="why-job">${it.why.map((/** @type {string} */ each) => html`<li><${Sentence} text=${each} zone=${it.trigger.tz} job /></li>`)}</ul>`}
    <nav class="tabs" aria-label="parts">${tabs.map(([name, word]) => html`<a href=${to(`/jobs/${encodeURIComponent(argument)}`, { tab: name })} aria-current=${name === tab ? "page" : null}>${word}</a>`)}</nav>
    ${parts[tab] ? html`<${parts[tab]} job=${it} key=${tab} done=${job.reload} />` : html`<${Json} value=${it} label="definition" />`}`}</${Loaded}>
    ${isGone && html`<p class="below">It may have been removed or renamed. <a href=${to("/jobs", { q: argument })}>Jobs with a name like it</a>${may("audit:read") && html` · <a href=${to("/audit", { q: "action:job.remove" })}>Jobs that were removed</a>`}</p>`}`;
}
