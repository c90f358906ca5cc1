/** Jobs: what there is, when each is due, and how it went lately. */
import { send } from "../api.js";
import { html, useState } from "../html.js";
import { Badge } from "../parts/badge.js";
import { ask, quoted } from "../parts/dialog.js";
import { readWords, Search, usePages } from "../parts/lists.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { When } from "../parts/when.js";
import { place, to } from "../router.js";
import { may } from "../state/me.js";

const FILTERS = ["state", "task", "tag", "app", "name"];

const COLUMNS = [
  { name: "Name", cell: (/** @type {any} */ job) => html`<a href=${jobHref(job)}>${job.name}</a>` },
  { name: "State", tight: true, cell: (/** @type {any} */ job) => html`<${Badge} state=${job.state} />` },
  { name: "Schedule", cell: (/** @type {any} */ job) => html`<span>${job.schedule}</span>` },
  { name: "Next", tight: true, cell: (/** @type {any} */ job) => (job.state === "active" ? html`<${When} at=${job.next_fire_at} plain />` : "–") },
  { name: "Last", tight: true, cell: (/** @type {any} */ job) => lastOf(job) },
  { name: "Task", cell: (/** @type {any} */ job) => html`<span class="mono">${job.task}</span>` },
  { name: "Queue", tight: true, cell: (/** @type {any} */ job) => job.queue },
];

/** @param {any} job */
export function jobHref(job) {
  return to(`/jobs/${encodeURIComponent(job.name.includes("/") ? job.job_id : job.name)}`);
}

/** @param {any} job */
function lastOf(job) {
  if (job.last) return html`<span class="row"><${Badge} state=${job.last.outcome} /><${When} at=${job.last.fire_at} plain /></span>`;
  return html`<span class="muted">never</span>`;
}

/** Pause or resume the chosen jobs, one by one, each with the reason.
 * @param {Set<string>} names @param {"pause" | "resume"} verb @param {() => void} then */
function askFor(names, verb, then) {
  const list = [...names];
  ask({
    title: `${verb === "pause" ? "Pause" : "Resume"} ${list.length} job${list.length === 1 ? "" : "s"}`,
    text: html`<p>${list.slice(0, 10).join(", ")}${list.length > 10 ? ` and ${list.length - 10} more` : ""}</p>`,
    button: `${verb === "pause" ? "Pause" : "Resume"} ${list.length}`,
    command: (reason) => `mainspring job ${verb} ${list.map(quoted).join(" ")}${reason ? ` --reason ${quoted(reason)}` : ""}`,
    act: async (reason) => {
      for (const name of list) await send("POST", `/v1/jobs/${encodeURIComponent(name)}/${verb}`, reason ? { reason } : {});
      then();
    },
    done: `${list.length} ${verb}d`,
  });
}

export default function Jobs() {
  const words = place.value.query.get("q") ?? "";
  const { found, rest } = readWords(words, FILTERS);
  const query = { limit: 200, last: true, ...found, ...(rest ? { name: rest } : {}) };
  const jobs = usePages("/v1/jobs", query, (news) => news.more || news.jobs.size > 0);
  const [chosen, setChosen] = useState(new Set());
  const done = () => {
    setChosen(new Set());
    jobs.reload();
  };
  const operates = may("jobs:operate");
  return html`
    <${Head} title="Jobs" actions=${may("jobs:create") && html`<a class="button" href=${to("/new-job")}>New job</a>`} />
    <div class="toolbar">
      <${Search} value=${words} label="filter jobs" placeholder="state:paused task:etl tag:nightly, or a name" />
      ${chosen.size > 0 && html`<span>${chosen.size} selected</span>
        <button onClick=${() => askFor(chosen, "pause", done)}>Pause</button>
        <button onClick=${() => askFor(chosen, "resume", done)}>Resume</button>`}
    </div>
    <${Loaded} of=${jobs}>${() => jobs.rows.length
      ? html`<${Table} label="jobs" columns=${COLUMNS} rows=${jobs.rows} id=${(/** @type {any} */ job) => job.name} href=${jobHref} more=${jobs.more}
          chosen=${operates ? chosen : undefined} onChoose=${operates ? setChosen : undefined} />`
      : words
        ? html`<${Empty}>No job matches <code>${words}</code>. <a href=${to("/jobs")}>Clear the filter</a></${Empty}>`
        : html`<${Empty} command='mainspring job add hello --every 30s --command "echo hello"'>There are no jobs yet.</${Empty}>`}</${Loaded}>`;
}
