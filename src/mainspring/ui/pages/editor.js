/** The editor of a job: what a draft means is shown while it is typed, by the server; each fault stands at its field. */
import { Problem, send } from "../api.js";
import { html, useEffect, useRef, useState } from "../html.js";
import { difference } from "../parts/difference.js";
import { Command, quoted, say } from "../parts/dialog.js";
import { write } from "../parts/json.js";
import { Head, Trouble } from "../parts/page.js";
import { When } from "../parts/when.js";
import { go, jobHref } from "../router.js";
import { may } from "../state/me.js";
import { Simulated } from "./simulated.js";
import { bodyOf, commandOf, FIRST, formOf, MORE, TIMEOUTS } from "./draft.js";

/** @typedef {import("./draft.js").Form} Form */
/** @typedef {import("../records.d.ts").Preview} Preview */

const TYPING_MS = 150;
const SHOWN = 12;
const KINDS = [["cron", "cron"], ["every", "every"], ["run_at", "at"], ["after", "after jobs"], ["manual", "by hand"]];
/** Without these there is no job. */
const NEEDED = ["work", "value"];
/** What a choice does, in words. @type {Record<string, [string, string][]>} */
const CHOICES = {
  misfire: [["once", "fire once for all (once)"], ["skip", "leave it out (skip)"], ["all", "fire each (all)"]],
  overlap: [["allow", "run beside it (allow)"], ["forbid", "leave it out (forbid)"], ["queue", "wait for it (queue)"], ["replace", "cancel that one (replace)"]],
  on_excluded: [["skip", "leave it out (skip)"], ["next_day", "move to the next day (next_day)"]],
};
/** Which fields of a request each input stands for. */
const FIELDS = /** @type {Record<string, string[]>} */ ({
  value: ["schedule", "cron", "every", "run_at", "at", "after"], retries: ["retry", "retry.retries"], work: ["task", "command", "args"], timezone: ["tz"],
});

/** @param {{ name: keyof Form, label: string, form: Form, set: (form: Form) => void, faults: any[], hint?: string, options?: (string | [string, string])[], area?: boolean, disabled?: boolean }} given */
function Field({ name, label, form, set, faults, hint, options, area, disabled }) {
  const fault = faults.find((each) => each.field === name || FIELDS[name]?.includes(each.field));
  const change = (/** @type {any} */ event) => set({ ...form, [name]: event.target.value });
  const words = { id: name, value: form[name], disabled, "aria-invalid": !!fault, "aria-describedby": fault ? `${name}-fault` : null };
  const placeholder = hint ? `${NEEDED.includes(name) ? "" : "none, "}e.g. ${hint}` : "";
  const control = options
    ? html`<select ...${words} onChange=${change}>${options.map((each) => [each].flat()).map(([value, word = value]) => html`<option value=${value}>${word}</option>`)}</select>`
    : area ? html`<textarea ...${words} rows="3" spellcheck="false" onInput=${change} placeholder=${placeholder}></textarea>` : html`<input ...${words} onInput=${change} placeholder=${placeholder} />`;
  return html`<div class="field"><label for=${name}>${label}</label>${control}${fault && html`<span class="fault" id=${`${name}-fault`}>${fault.fault}${fault.remedy ? `: ${fault.remedy}` : ""}</span>`}</div>`;
}

/** What the draft means, 150 ms after the last key. An older answer never replaces a newer one.
 * @param {Form} form */
function usePreview(form) {
  const [state, set] = useState({ preview: /** @type {Preview | null} */ (null), faults: /** @type {any[]} */ ([]), problem: /** @type {Error | null} */ (null) });
  const turn = useRef(0);
  useEffect(() => {
    const mine = (turn.current += 1);
    const timer = setTimeout(async () => {
      const next = await send("POST", `/v1/jobs:preview?count=${SHOWN}`, bodyOf(form, { isDraft: true })).then(
        (preview) => ({ preview, faults: [], problem: null }),
        (problem) => ({ preview: null, faults: problem.faults ?? [], problem: problem.faults?.length ? null : problem }),
      );
      if (mine === turn.current) set(next);
    }, TYPING_MS);
    return () => clearTimeout(timer);
  }, [JSON.stringify(form)]);
  return state;
}

/** @param {{ times: Preview["items"], label: string, zoned: boolean }} given */
function Times({ times, label, zoned }) {
  return html`<ul class="lines" aria-label=${label}>${times.map((each) => html`<li><span><${When} at=${each.fire_at} zone=${zoned ? each.zone : undefined} job /></span>${each.note && html`<span class="s-warning"><span class="glyph" aria-hidden="true">◐</span> ${each.note}</span>`}</li>`)}</ul>`;
}

/** @param {{ form: Form, state: ReturnType<typeof usePreview>, stored: Form | null }} given */
function Meaning({ form, state, stored }) {
  const { preview, problem } = state;
  return html`<section class="panel" aria-label="what this means"><header><h2>What this means</h2></header><div class="body stack" aria-live="polite">
    ${problem && html`<${Trouble} error=${problem} />`}
    ${preview ? html`<p class="sentence">${preview.text.slice(0, 1).toUpperCase()}${preview.text.slice(1)}.</p>
      ${preview.items.length ? html`<${Times} times=${preview.items} label="fire times" zoned=${form.kind === "cron"} />${preview.changes.length > 0 && html`<p class="muted">After changes of the clocks:</p><${Times} times=${preview.changes} label="fire times after changes of the clocks" zoned />`}` : html`<p class="muted">It will not fire by itself.</p>`}`
      : !problem && html`<p class="muted">Something is not right yet: see the fields.</p>`}
    <${Command} line=${commandOf(form, stored)} /></div></section>`;
}

/** @param {{ mine: any, theirs: any }} given */
function Changed({ mine, theirs }) {
  return html`<section class="problem" role="alert"><strong>The job has changed meanwhile</strong><span>What you typed is still here. These fields differ from what is stored now:</span>
    <ul>${difference(theirs, mine).map((each) => html`<li><span class="muted">${each.name}</span> <span class="mono">${write(each.before)} → ${write(each.after)}</span></li>`)}</ul></section>`;
}

/** Why the caller may not save: a command needs a permission of its own.
 * @param {Form} form @param {boolean} isNew */
function refusalOf(form, isNew) {
  const needed = isNew ? "jobs:create" : "jobs:write";
  if (!may(needed)) return `needs ${needed}`;
  return form.kindOfWork === "command" && !may("run:command") ? "needs run:command" : "";
}

/** @param {{ job?: any, first?: any, done?: () => void }} given `first` is the definition to begin with, if it is not the stored one */
export function Editor({ job, first, done }) {
  const [form, set] = useState(job ? formOf(first ?? job) : { ...FIRST, kindOfWork: may("run:command") ? "command" : "task" });
  const [refusal, setRefusal] = useState(/** @type {any} */ (null));
  const [other, setOther] = useState(/** @type {any} */ (null));
  const version = useRef(job?.version);
  const stored = job ? formOf(job) : null;
  const preview = usePreview(form);
  const why = refusalOf(form, !job);
  const works = may("run:command") || stored?.kindOfWork === "command" ? ["command", "task"] : ["task"];
  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    setRefusal(null);
    try {
      const body = bodyOf(form, { isDraft: false, before: stored ?? FIRST });
      const saved = job
        ? await send("PATCH", `/v1/jobs/${encodeURIComponent(job.job_id)}`, body, { "If-Match": `"${version.current}"` })
        : await send("POST", "/v1/jobs", body);
      say(`${saved.name} saved`);
      done?.();
      go(jobHref(saved, { tab: "next" }));
    } catch (problem) {
      if (problem instanceof Problem && problem.status === 412) {
        const theirs = await send("GET", `/v1/jobs/${encodeURIComponent(job.job_id)}`);
        version.current = theirs.version;
        setOther(theirs);
      } else setRefusal(problem);
    }
  };
  const given = { form, set: (/** @type {Form} */ next) => (setRefusal(null), set(next)), faults: [...(refusal?.faults ?? []), ...preview.faults] };
  const options = (/** @type {import("./draft.js").Option[]} */ some) => some.map(({ name, label, hint, words }) => html`<${Field} name=${name} label=${label} hint=${hint} options=${words} ...${given} />`);
  return html`<form class="form" onSubmit=${save}><div class="stack">
      <fieldset><legend>What</legend><${Field} name="name" label="Name" ...${given} />
        <div class="two"><${Field} name="kindOfWork" label="Runs" options=${works} ...${given} /><${Field} name="work" label=${form.kindOfWork === "task" ? "Task" : "Command"} hint=${form.kindOfWork === "task" ? "encode" : "python generate_report.py"} ...${given} /></div>
        ${form.kindOfWork === "task" && html`<${Field} name="args" label="Arguments as JSON" area hint='{"video": "v1"}' ...${given} />`}</fieldset>
      <fieldset><legend>When</legend><div class="choices" role="radiogroup" aria-label="kind of schedule">${KINDS.map(([kind, word]) => html`<label><input type="radio" name="kind" checked=${form.kind === kind} onChange=${() => given.set({ ...form, kind, value: "" })} />${word}</label>`)}</div>
        ${form.kind !== "manual" && html`<div class="two"><${Field} name="value" label=${form.kind === "after" ? "Jobs, with commas" : "Expression"} hint=${HINTS[form.kind]} ...${given} />${form.kind === "cron" && html`<${Field} name="timezone" label="Zone" ...${given} />`}</div>`}
        <div class="two"><${Field} name="calendars" label="Calendars, with commas" hint="holidays" ...${given} /><${Field} name="on_excluded" label="On an excluded day" options=${CHOICES.on_excluded} ...${given} /></div></fieldset>
      <fieldset><legend>What if</legend><div class="two"><${Field} name="misfire" label="If an instant was missed" options=${CHOICES.misfire} ...${given} /><${Field} name="overlap" label="If the run before still runs" options=${CHOICES.overlap} ...${given} />
        <${Field} name="retries" label="Retries" ...${given} /><${Field} name="timeout" label="Timeout" hint="10m" ...${given} />${options(TIMEOUTS)}
        <${Field} name="queue" label="Queue" ...${given} /><${Field} name="priority" label="Priority" ...${given} /><${Field} name="tags" label="Tags, with commas" ...${given} /></div></fieldset>
      <details class="folded" open=${MORE.some(({ name }) => form[name] !== FIRST[name])}><summary>More options</summary><fieldset><legend class="hidden-text">More options</legend><div class="two">${options(MORE)}</div></fieldset></details>
      ${other && html`<${Changed} mine=${bodyOf(form, { isDraft: false })} theirs=${bodyOf(formOf(other), { isDraft: false })} />`}
      ${refusal && html`<${Trouble} error=${refusal} />`}
      <div class="row"><button class="primary" disabled=${!!why} title=${why}>${other ? "Save mine over it" : "Save the job"}</button></div></div>
    <div class="stack"><${Meaning} form=${form} state=${preview} stored=${stored} /><${Simulated} form=${form} job=${job} /></div></form>`;
}

const HINTS = /** @type {Record<string, string>} */ ({ cron: "0 2 * * *", every: "30s", run_at: "2027-01-01T00:00:00Z", after: "extract, transform" });

export default function NewJob() {
  return html`<${Head} title="New job" /><${Editor} />`;
}
