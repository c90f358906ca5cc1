/** A new run: a task, its arguments as a worker announced them or as JSON, and a few options; also as a copy of an earlier run. */
import { get, parse, send } from "../api.js";
import { html, useEffect, useState } from "../html.js";
import { Command, quoted } from "../parts/dialog.js";
import { write } from "../parts/json.js";
import { Head, Loaded, Trouble } from "../parts/page.js";
import { go, place, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";

/** @typedef {import("../records.d.ts").TaskStory} TaskStory */
/** @typedef {{ task: string, args: Record<string, string>, json: string | null, queue: string, priority: string, key: string, delay: string }} Form */

const TYPING_MS = 150;
const FIRST = /** @type {Form} */ ({ task: "", args: {}, json: null, queue: "", priority: "", key: "", delay: "" });
const OPTIONS = /** @type {[keyof Form, string, string][]} */ ([["queue", "Queue", "the task's"], ["priority", "Priority", "the task's"], ["key", "Key", "none"], ["delay", "Delay", "none: due at once"]]);

/** A value as the command line takes it: JSON, or else text.
 * @param {string} text */
function valueOf(text) {
  try {
    return parse(text);
  } catch {
    return text;
  }
}

/** @param {unknown} value */
function textOf(value) {
  return typeof value === "string" && valueOf(value) === value ? value : write(value).replace(/\n\s*/g, " ");
}

/** The arguments: fields that are empty are left out.
 * @param {Form} form */
function argsOf(form) {
  if (form.json !== null) return form.json.trim() ? valueOf(form.json) : {};
  return Object.fromEntries(Object.entries(form.args).filter(([, text]) => text !== "").map(([name, text]) => [name, valueOf(text)]));
}

/** @param {Form} form */
function bodyOf(form) {
  const named = OPTIONS.filter(([name]) => form[name]).map(([name]) => [name, name === "priority" ? valueOf(form.priority) : form[name]]);
  return { task: form.task, args: argsOf(form), ...Object.fromEntries(named) };
}

/** @param {Form} form */
function commandOf(form) {
  const args = argsOf(form);
  const words = args && typeof args === "object" && !Array.isArray(args) ? Object.entries(args).map(([name, value]) => `--arg ${quoted(`${name}=${textOf(value)}`)}`) : [];
  const options = OPTIONS.filter(([name]) => form[name]).map(([name]) => `--${name} ${quoted(String(form[name]))}`);
  return ["mainspring run submit", quoted(form.task || "TASK"), ...words, ...options].join(" ");
}

/** What a worker announced of a task, some time after its name was typed; null if none knows it.
 * @param {string} task */
function useTask(task) {
  const [found, set] = useState({ task: "", story: /** @type {TaskStory | null} */ (null) });
  useEffect(() => {
    if (!task) return;
    let current = true;
    const timer = setTimeout(() => get(`/v1/tasks/${encodeURIComponent(task)}`).then((story) => story, () => null).then((story) => current && set({ task, story })), TYPING_MS);
    return () => (clearTimeout(timer), void (current = false));
  }, [task]);
  return { story: found.task === task ? found.story : null, isKnown: found.task === task };
}

/** @param {{ name: string, label: string, value: string, hint?: string, fault?: any, list?: string, area?: boolean, change: (text: string) => void }} given */
function Field({ name, label, value, hint, fault, list, area, change }) {
  const words = { id: `run-${name}`, value, placeholder: hint ?? "", "aria-invalid": !!fault, "aria-describedby": fault ? `run-${name}-fault` : null, onInput: (/** @type {any} */ e) => change(e.target.value) };
  return html`<div class="field"><label for=${`run-${name}`}>${label}</label>${area ? html`<textarea ...${words} rows="6" spellcheck="false"></textarea>` : html`<input ...${words} list=${list} autocomplete="off" spellcheck="false" />`}
    ${fault && html`<span class="fault" id=${`run-${name}-fault`}>${fault.fault}${fault.remedy ? `: ${fault.remedy}` : ""}</span>`}</div>`;
}

/** The arguments, each with a field of its own; as JSON where no worker says what they are, or if that is wanted.
 * @param {{ form: Form, set: (form: Form) => void, story: TaskStory | null, faults: any[] }} given */
function Arguments({ form, set, story, faults }) {
  const names = Object.keys(story?.arguments.properties ?? {});
  const required = /** @type {string[]} */ (story?.arguments.required ?? []);
  const isJson = form.json !== null || !names.length;
  const fault = faults.find((each) => each.field === "args");
  if (isJson) return html`<${Field} name="args" label="Arguments as JSON" area hint='{"video": "v1"}' value=${form.json ?? ""} fault=${fault} change=${(/** @type {string} */ json) => set({ ...form, json })} />
    ${names.length > 0 && html`<button type="button" class="plain" onClick=${() => set({ ...form, json: null })}>One field for each</button>`}`;
  return html`${names.map((name) => html`<${Field} key=${name} name=${`arg-${name}`} label=${required.includes(name) ? name : `${name}, may be left out`} value=${form.args[name] ?? ""} hint="JSON, or else text" fault=${faults.find((each) => each.field === `args.${name}`)}
      change=${(/** @type {string} */ text) => set({ ...form, args: { ...form.args, [name]: text } })} />`)}
    ${fault && html`<span class="s-failed">${fault.fault}${fault.remedy ? `: ${fault.remedy}` : ""}</span>`}
    <button type="button" class="plain" onClick=${() => set({ ...form, json: write(argsOf(form)) })}>As JSON</button>`;
}

/** @param {{ first: Form }} given */
function Editor({ first }) {
  const [form, put] = useState(first);
  const [refusal, setRefusal] = useState(/** @type {any} */ (null));
  const { story, isKnown } = useTask(form.task);
  const tasks = useResource("/v1/facets", { of: "task" });
  const set = (/** @type {Form} */ next) => (setRefusal(null), put(next));
  const faults = refusal?.faults ?? [];
  const why = may("runs:submit") ? "" : "needs runs:submit";
  const submit = (/** @type {Event} */ event) => {
    event.preventDefault();
    send("POST", "/v1/runs", bodyOf(form)).then((run) => go(to(`/runs/${run.run_id}`)), setRefusal);
  };
  return html`<form class="form" onSubmit=${submit}><div class="stack">
      <fieldset><legend>What</legend><datalist id="run-tasks">${(tasks.data?.items ?? []).map((/** @type {string} */ each) => html`<option value=${each}></option>`)}</datalist>
        <${Field} name="task" label="Task" hint="encode" list="run-tasks" value=${form.task} fault=${faults.find((/** @type {any} */ each) => each.field === "task")} change=${(/** @type {string} */ task) => set({ ...form, task })} />
        ${isKnown && form.task && html`<p class="muted">${story ? html`<span class="mono">${story.signature}</span> · queue ${story.queue} · ${story.workers.length} ${story.workers.length === 1 ? "worker knows" : "workers know"} it` : "No live worker knows this task: the run waits for one."}</p>`}
        <${Arguments} form=${form} set=${set} story=${story} faults=${faults} /></fieldset>
      <fieldset><legend>How</legend><div class="two">${OPTIONS.map(([name, label, hint]) => html`<${Field} name=${name} label=${label} hint=${hint} value=${form[name]} fault=${faults.find((/** @type {any} */ each) => each.field === name)} change=${(/** @type {string} */ text) => set({ ...form, [name]: text })} />`)}</div></fieldset>
      ${refusal && html`<${Trouble} error=${refusal} />`}
      <div class="row"><button class="primary" disabled=${!!why || !form.task.trim()} title=${why}>Submit the run</button></div></div>
    <section class="panel"><header><h2>The same as a command</h2></header><div class="body stack"><${Command} line=${commandOf(form)} /></div></section></form>`;
}

/** A form that holds what an earlier run was asked to do.
 * @param {any} run @returns {Form} */
function formOf(run) {
  return { ...FIRST, task: run.task, json: write(run.args ?? {}), queue: run.queue, priority: String(run.priority), key: run.key ?? "" };
}

/** @param {{ id: string }} given */
function Copy({ id }) {
  const run = useResource(`/v1/runs/${encodeURIComponent(id)}`);
  return html`<${Loaded} of=${run}>${(/** @type {any} */ it) => html`<${Editor} first=${formOf(it)} />`}</${Loaded}>`;
}

export default function NewRun() {
  const { from, task } = Object.fromEntries(place.value.query);
  return html`<${Head} title="New run">${from && html`<span class="muted">as a copy of <a class="mono" href=${to(`/runs/${from}`)}>…${from.slice(-8)}</a></span>`}</${Head}>
    ${from ? html`<${Copy} key=${from} id=${from} />` : html`<${Editor} first=${{ ...FIRST, task: task ?? "" }} />`}`;
}
