/** Acting on all that match: the count and a sample first, then a reason, progress, and what was refused and why. */
import { html, mount } from "../html.js";
import { begin, bulk, drop, isActing, look, proceed } from "../state/bulk.js";
import { ask, quoted, say } from "./dialog.js";

const WORDS = /** @type {Record<string, [string, string]>} */ ({
  cancel: ["Cancel", "Waiting runs end at once; running ones are asked to stop."],
  retry: ["Retry", "Each failed run is submitted again with the same arguments, at most once."],
  pause: ["Pause", "They do not fire until they are resumed. Instants that pass meanwhile are recorded as skipped."],
  resume: ["Resume", "They continue with their next instant."],
  trigger: ["Trigger", "Each fires once, besides its schedule."],
});
const BOUND = 10_000;

/** @param {number} count */
function said(count) {
  return count.toLocaleString("en-GB");
}

/** @param {number} count */
export function bounded(count) {
  return `${said(count)}${count >= BOUND ? "+" : ""}`;
}

/** Ask before acting on all that a filter fits.
 * @param {"runs" | "jobs"} kind @param {string} action @param {Record<string, any>} filter @param {string} what as a person would say it
 * @param {() => void} then */
export async function askForAll(kind, action, filter, what, then) {
  const found = await look(kind, action, filter).catch((problem) => say(problem.message));
  if (!found) return;
  const [word, text] = WORDS[action];
  const named = found.matched === 1 ? kind.slice(0, -1) : kind;
  const sample = kind === "runs" ? Object.keys(found.runs).map((id) => id.slice(-8)) : found.jobs;
  ask({
    title: `${word} ${bounded(found.matched)} ${named}`, button: `${word} ${bounded(found.matched)}`, danger: action === "cancel", reason: action !== "trigger",
    text: html`<p>${text}</p><p>${found.matched === 0 ? "Nothing matches." : html`${what.slice(0, 1).toUpperCase()}${what.slice(1)}: <span class="mono">${sample.slice(0, 8).join(", ")}</span>${found.matched > 8 ? " …" : ""}`}</p><${Progress} />`,
    command: (reason) => commandOf(kind, action, filter, found.jobs ?? [], reason),
    act: async (reason) => {
      const ended = await begin(kind, action, filter, reason, found.matched);
      then();
      if (ended?.refusals) throw new Error(`${said(ended.done)} of ${said(ended.looked)} done, ${said(ended.refusals)} refused, such as: ${Object.values(ended.refused)[0]}`);
    },
    done: `${word}: done`,
  });
}

/** The command that does the same: by names and ids, or by a filter of runs. Commands select jobs by name, so those that match are named.
 * @param {string} kind @param {string} action @param {Record<string, any>} filter @param {string[]} names @param {string} reason */
function commandOf(kind, action, filter, names, reason) {
  const why = reason ? ` --reason ${quoted(reason)}` : "";
  if (kind === "jobs") return `mainspring job ${action} ${names.map(quoted).join(" ")}${why}`;
  if (filter.run_ids) return `mainspring run ${action} ${filter.run_ids.map((/** @type {string} */ id) => id.slice(-8)).join(" ")}${why}`;
  const flags = Object.entries(filter).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((each) => `--${name.replaceAll("_", "-")} ${quoted(String(each))}`));
  return `mainspring run act ${action} ${flags.join(" ")} --yes${why}`;
}

/** How far an action on many has come; with a button if a reload has interrupted it. */
export function Progress() {
  const now = bulk.value;
  if (!now) return null;
  return html`<p role="status">${said(now.looked)} of ${bounded(now.total)} looked at, ${said(now.done)} done${now.refusals ? `, ${said(now.refusals)} refused` : ""}</p>`;
}

/** An action that was interrupted can be continued. */
function Interrupted() {
  const now = bulk.value;
  if (!now || isActing.value) return null;
  const go = () => proceed().then((ended) => ended && say(`${said(ended.done)} done${ended.refusals ? `, ${said(ended.refusals)} refused` : ""}`), (problem) => say(problem.message));
  return html`<div class="banner interrupted" role="status"><span class="glyph" aria-hidden="true">↻</span><span>${WORDS[now.action][0]} of ${bounded(now.total)} ${now.kind} was interrupted after ${said(now.looked)}.</span>
    <button class="plain" onClick=${go}>Continue</button><button class="plain" onClick=${drop}>Leave it</button></div>`;
}

mount(html`<${Interrupted} />`);
