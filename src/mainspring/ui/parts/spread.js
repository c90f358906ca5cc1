/** A proposal that flattens the peak of a load: which jobs to move and why, and applying it, each edit guarded by the job's version. */
import { Problem, send } from "../api.js";
import { spaced } from "../draw/text.js";
import { html, useState } from "../html.js";
import { jobNamed, to } from "../router.js";
import { may } from "../state/me.js";
import { keyOf } from "./actions.js";
import { ask, Command } from "./dialog.js";
import { Sentence, Trouble } from "./page.js";
import { Table } from "./table.js";
import { When } from "./when.js";

/** @typedef {import("../records.d.ts").Spread} Proposal */
/** @typedef {import("../records.d.ts").SpreadEdit} Edit */

const SPANS = ["5m", "15m", "30m", "1h"];
const SHOWN = 20;
const MOST_REFUSALS = 5;

const EDITS = [
  { name: "Job", cell: (/** @type {Edit} */ it) => html`<a href=${jobNamed(it.job)}>${it.job}</a>` },
  { name: "Now", cell: (/** @type {Edit} */ it) => html`<span class="mono">${it.schedule}</span>` },
  { name: "Then", cell: (/** @type {Edit} */ it) => html`<span class="mono">${it.to}</span>` },
  { name: "Moves by", tight: true, number: true, cell: (/** @type {Edit} */ it) => `${Math.abs(it.minutes)} m ${it.minutes < 0 ? "earlier" : "later"}` },
  { name: "Why it may move", cell: (/** @type {Edit} */ it) => html`<span class="muted"><${Sentence} text=${it.reason} /></span>` },
];

/** Write each edit unless its job has changed meanwhile.
 * @param {Edit[]} edits */
async function apply(edits) {
  const refused = /** @type {string[]} */ ([]);
  for (const edit of edits) {
    await send("PATCH", `/v1/jobs/${await keyOf({ name: edit.job })}`, edit.change, { "If-Match": `"${edit.version}"` }).catch((problem) => {
      if (!(problem instanceof Problem) || problem.status >= 500 || problem.status === 401) throw problem;
      refused.push(`${edit.job}: ${problem.message}`);
    });
  }
  return refused;
}

/** @param {{ body: Record<string, any>, done: () => void }} given */
export function SpreadPanel({ body, done }) {
  const [within, setWithin] = useState("15m");
  const [found, setFound] = useState(/** @type {Proposal | null} */ (null));
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const [busy, setBusy] = useState(false);
  const look = async () => {
    setBusy(true);
    setProblem(null);
    await send("POST", "/v1/load:spread", { ...body, within }).then(setFound, setProblem);
    setBusy(false);
  };
  const confirm = (/** @type {Proposal} */ it) =>
    ask({
      title: `Move ${it.edits.length} jobs`, button: `Move ${it.edits.length}`, done: `${it.edits.length} moved`, reason: false,
      text: html`<p>Each job gets its new schedule, unless it has changed meanwhile. The peak falls from ${it.before?.starts} to ${it.after?.starts} starts in a minute.</p>`,
      command: () => `mainspring load --spread --within ${within} --apply`,
      act: async () => {
        const refused = await apply(it.edits);
        setFound(null);
        done();
        if (refused.length) throw new Error(`${it.edits.length - refused.length} of ${it.edits.length} moved. Refused: ${refused.slice(0, MOST_REFUSALS).join("; ")}${refused.length > MOST_REFUSALS ? " …" : ""}`);
      },
    });
  const isSame = found !== null && found.edits.length > 1 && found.edits.every((each) => each.reason && each.reason === found.edits[0].reason);
  return html`<section class="panel" aria-label="spread"><header><h2>Flatten the peak</h2></header><div class="body stack">
    <div class="row"><label for="within">Jobs may move by up to</label><select id="within" value=${within} onChange=${(/** @type {any} */ e) => (setFound(null), setWithin(e.target.value))}>${SPANS.map((each) => html`<option value=${each}>${spaced(each)}</option>`)}</select><button disabled=${busy} onClick=${look}>Propose</button></div>
    ${problem && html`<${Trouble} error=${problem} />`}
    ${found && (found.edits.length === 0 ? html`<p>${found.staying.length ? "None of the jobs at the peak may move." : "No job needs to move: the starts are spread well."}</p>` : html`<p class="sentence">${found.edits.length.toLocaleString("en-GB")} jobs move: the fullest minute falls from ${found.before?.starts.toLocaleString("en-GB")} to ${found.after?.starts.toLocaleString("en-GB")} starts.</p>
      ${found.before && html`<p class="muted">The fullest minute is <${When} at=${found.before.at} />.${found.partial ? " There are too many jobs to look at each: this is a part." : ""}</p>`}
      ${isSame && html`<p class="muted">Why they may move: <${Sentence} text=${found.edits[0].reason} /></p>`}
      <${Table} label="proposed edits" columns=${isSame ? EDITS.slice(0, -1) : EDITS} rows=${found.edits.slice(0, SHOWN)} id=${(/** @type {Edit} */ it) => it.job} />
      ${found.edits.length > SHOWN && html`<p class="muted">and ${(found.edits.length - SHOWN).toLocaleString("en-GB")} more</p>`}
      ${may("jobs:write") ? html`<div class="row"><button class="primary" onClick=${() => confirm(found)}>Apply to ${found.edits.length.toLocaleString("en-GB")}</button></div>` : html`<${Command} line=${`mainspring load --spread --within ${within} --apply`} />`}`)}
    ${found && found.staying.length > 0 && html`<p class="muted">${found.staying.length.toLocaleString("en-GB")} of the peak stay, for instance ${found.staying.slice(0, 3).map((each, n) => html`${n ? "; " : ""}${each.job}: ${each.reason}`)}.</p>`}</div></section>`;
}
