/** A new job: a form, the command that does the same, and each fault at its field. */
import { send } from "../api.js";
import { html, useState } from "../html.js";
import { Command, quoted, say } from "../parts/dialog.js";
import { Head, Trouble } from "../parts/page.js";
import { go, to } from "../router.js";

const WHEN = ["cron", "every", "run_at"];
/** Which fields of a request each input stands for. */
const FIELDS = /** @type {Record<string, string[]>} */ ({ value: ["schedule", "cron", "every", "run_at", "at"], retries: ["retry", "retry.retries"], command: ["task", "args"] });
const FIRST = { name: "", kind: "cron", value: "0 2 * * *", timezone: Intl.DateTimeFormat().resolvedOptions().timeZone, command: "", misfire: "once", overlap: "forbid", retries: "3", timeout: "" };

/** @param {typeof FIRST} form */
function bodyOf(form) {
  const when = form.kind === "cron" ? { schedule: form.value, timezone: form.timezone } : { [form.kind]: form.value };
  return { name: form.name, ...when, command: form.command, misfire: form.misfire, overlap: form.overlap, retry: Number(form.retries), ...(form.timeout ? { timeout: form.timeout } : {}) };
}

/** @param {typeof FIRST} form */
function commandOf(form) {
  const flag = form.kind === "run_at" ? "--at" : `--${form.kind}`;
  const zone = form.kind === "cron" ? ` --tz ${form.timezone}` : "";
  return `mainspring job add ${quoted(form.name || "NAME")} ${flag} ${quoted(form.value)}${zone} --misfire ${form.misfire} --overlap ${form.overlap} --retries ${form.retries}${form.timeout ? ` --timeout ${form.timeout}` : ""} --command ${quoted(form.command || "…")}`;
}

/** @param {{ name: string, label: string, form: any, set: (form: any) => void, faults: any[], hint?: string, options?: string[] }} given */
function Field({ name, label, form, set, faults, hint, options }) {
  const fault = faults.find((each) => each.field === name || FIELDS[name]?.includes(each.field));
  const change = (/** @type {any} */ event) => set({ ...form, [name]: event.target.value });
  const control = options
    ? html`<select id=${name} value=${form[name]} onChange=${change}>${options.map((each) => html`<option>${each}</option>`)}</select>`
    : html`<input id=${name} value=${form[name]} onInput=${change} placeholder=${hint ?? ""} aria-invalid=${!!fault} aria-describedby=${fault ? `${name}-fault` : null} />`;
  return html`<div class="field"><label for=${name}>${label}</label>${control}${fault && html`<span class="fault" id=${`${name}-fault`}>${fault.fault}${fault.remedy ? `: ${fault.remedy}` : ""}</span>`}</div>`;
}

/** @param {{ form: typeof FIRST }} given */
function Meaning({ form }) {
  return html`<section class="panel"><header><h2>As a command</h2></header><div class="body stack">
    <p class="muted">The server checks each field when the job is saved. Its fire times are then on the page of the job.</p>
    <${Command} line=${commandOf(form)} /></div></section>`;
}

export default function Editor() {
  const [form, set] = useState(FIRST);
  const [refusal, setRefusal] = useState(/** @type {any} */ (null));
  const faults = refusal?.faults ?? [];
  const save = async (/** @type {Event} */ event) => {
    event.preventDefault();
    try {
      const job = await send("POST", "/v1/jobs", bodyOf(form));
      say(`${job.name} saved`);
      go(to(`/jobs/${encodeURIComponent(job.name)}`, { tab: "next" }));
    } catch (problem) {
      setRefusal(problem);
    }
  };
  const given = { form, set: (/** @type {any} */ next) => (setRefusal(null), set(next)), faults };
  return html`<${Head} title="New job" /><form class="form" onSubmit=${save}><div class="stack">
      <fieldset><legend>What</legend><${Field} name="name" label="Name" ...${given} /><${Field} name="command" label="Command" hint="python generate_report.py" ...${given} /></fieldset>
      <fieldset><legend>When</legend><div class="two"><${Field} name="kind" label="Kind" options=${WHEN} ...${given} /><${Field} name="value" label="Expression" ...${given} /></div>
        ${form.kind === "cron" && html`<${Field} name="timezone" label="Zone" ...${given} />`}</fieldset>
      <fieldset><legend>What if</legend><div class="two"><${Field} name="misfire" label="It is late" options=${["once", "skip", "all"]} ...${given} /><${Field} name="overlap" label="It still runs" options=${["allow", "forbid", "queue", "replace"]} ...${given} />
        <${Field} name="retries" label="Retries" ...${given} /><${Field} name="timeout" label="Timeout" hint="10m" ...${given} /></div></fieldset>
      ${refusal && html`<${Trouble} error=${refusal} />`}
      <div class="row"><button class="primary">Save the job</button></div></div>
    <${Meaning} form=${form} /></form>`;
}
