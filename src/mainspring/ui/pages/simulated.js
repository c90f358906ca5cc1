/** What a draft of a job would have done, or will do: the server plays its planner over a span, if wanted with an outage. Nothing is saved. */
import { send } from "../api.js";
import { gridOf } from "../draw/ledger.js";
import { length, lookOf } from "../draw/text.js";
import { html, useState } from "../html.js";
import { GridTable } from "../parts/ledger.js";
import { Badge, Trouble } from "../parts/page.js";
import { now, When, zoneOf } from "../parts/when.js";
import { bodyOf, FIRST, formOf } from "./draft.js";

/** @typedef {import("../records.d.ts").Simulation} Simulation */
/** @typedef {import("./draft.js").Form} Form */

const WEEK_MS = 7 * 86_400_000;
const TOOK = { given: "Each run takes as long as you say", history: "Each run takes as long as those before it", unknown: "No run is known, so each takes no time" };

/** The outcomes of what has not happened. @type {Record<string, string>} */
const WOULD = { succeeded: "would run", missed: "would be missed", skipped: "would be skipped", cancelled: "would be cancelled", late: "would run late" };

/** An hour of a night in the span, as it is to be written.
 * @param {string} span @param {number} hour */
function exampleAt(span, hour) {
  const day = new Date(now().getTime() + (span === "past" ? -2 : 2) * 86_400_000);
  return `${new Date(Date.UTC(day.getUTCFullYear(), day.getUTCMonth(), day.getUTCDate(), hour)).toISOString().slice(0, 19)}Z`;
}

/** @param {{ form: Form, job?: any }} given */
export function Simulated({ form, job }) {
  const [words, set] = useState({ span: "past", from: "", to: "", took: "" });
  const [state, setState] = useState({ found: /** @type {Simulation | null} */ (null), problem: /** @type {Error | null} */ (null), busy: false });
  const change = (/** @type {any} */ event) => set({ ...words, [event.target.name]: event.target.value });
  const simulate = async () => {
    setState({ ...state, busy: true });
    const begin = now().getTime() - (words.span === "past" ? WEEK_MS : 0);
    const span = { from: new Date(begin).toISOString(), to: new Date(begin + WEEK_MS).toISOString() };
    const body = {
      ...(job ? { job: job.job_id } : {}), change: bodyOf(form, { isDraft: !!job || !form.work, before: job ? formOf(job) : FIRST }), ...span,
      ...(words.from && words.to ? { outages: [{ from: words.from, to: words.to }] } : {}), ...(words.took ? { took: words.took } : {}),
    };
    setState(await send("POST", "/v1/jobs:simulate", body).then((found) => ({ found, problem: null, busy: false }), (problem) => ({ found: null, problem, busy: false })));
  };
  const field = (/** @type {"from" | "to" | "took"} */ name, /** @type {string} */ label, /** @type {string} */ hint) =>
    html`<div class="field"><label for=${`simulate-${name}`}>${label}</label><input id=${`simulate-${name}`} name=${name} value=${words[name]} placeholder=${hint} onInput=${change} /></div>`;
  return html`<section class="panel" aria-label="simulation"><header><h2>If it were so (simulated)</h2></header><div class="body stack">
    <div class="two"><div class="field"><label for="simulate-span">Over</label><select id="simulate-span" name="span" value=${words.span} onChange=${change}><option value="past">the last week</option><option value="coming">the coming week</option></select></div>
      ${field("took", "Each run takes", "as its runs did")}${field("from", "No scheduler from", exampleAt(words.span, 22))}${field("to", "until", exampleAt(words.span, 30))}</div>
    <div class="row"><button type="button" disabled=${state.busy} onClick=${simulate}>Simulate</button></div>
    ${state.problem && html`<${Trouble} error=${state.problem} />`}
    ${state.found && html`<${Outcome} found=${state.found} kind=${form.kind === "run_at" ? "at" : form.kind} zone=${form.kind === "cron" ? form.timezone : zoneOf()} />`}</div></section>`;
}

/** @param {{ found: Simulation, kind: string, zone: string }} given */
function Outcome({ found, kind, zone }) {
  const [at, choose] = useState("");
  const counts = Object.entries(found.counts).filter(([, count]) => count > 0);
  if (!found.items.length) return html`<p>It would not fire in this span.</p>`;
  const grid = gridOf([...found.items].sort((one, other) => Date.parse(one.fire_at) - Date.parse(other.fire_at)), kind, zone);
  const chosen = grid.rows.flatMap((row) => row.cells).find((cell) => cell && !cell.band && cell.firings.some((each) => each.fire_at === at)) ?? null;
  return html`<p class="row">${counts.map(([outcome, count]) => html`<${Badge} state=${outcome} word=${`${count.toLocaleString("en-GB")} ${WOULD[outcome] ?? lookOf(outcome).word}`} />`)}</p>
    <${GridTable} grid=${grid} chosen=${chosen} choose=${(/** @type {any} */ cell) => choose(cell.firings[0].fire_at)} label="simulated ledger" />
    ${chosen && html`<ul class="lines" aria-label="the simulated instant">${chosen.firings.slice(0, 5).map((each) => html`<li><span><${When} at=${each.fire_at} zone=${zone} job /> <${Badge} state=${each.outcome} word=${WOULD[each.outcome]} /></span><span>${each.reason}</span></li>`)}</ul>`}
    <p class="muted">${TOOK[found.took]}${found.took_s !== null ? `, usually ${length(found.took_s * 1000)}` : ""}. At most ${found.most_at_once} at once${found.longest_wait_s > 0 ? `, the longest wait is ${length(found.longest_wait_s * 1000)}` : ""}.
      ${found.load && html` Where most start beside it, <${When} at=${found.load.at} />: ${found.load.others + found.load.starts} starts instead of ${found.load.others}; ${found.load.busy.toFixed(1)} of ${found.load.capacity} slots busy.`}${found.partial && " Only a part is shown: the span has too many instants."}</p>`;
}
