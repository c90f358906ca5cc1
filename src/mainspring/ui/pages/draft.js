/** A job as the editor holds it, as the server takes it, and as the command that does the same. */
import { Exact, parse } from "../api.js";
import { quoted } from "../parts/dialog.js";
import { write } from "../parts/json.js";

/** @typedef {typeof FIRST} Form */

export const FIRST = {
  name: "", kindOfWork: "command", work: "", args: "", kind: "cron", value: "0 2 * * *", timezone: Intl.DateTimeFormat().resolvedOptions().timeZone, calendars: "",
  on_excluded: "skip", misfire: "once", overlap: "forbid", retries: "3", timeout: "", queue: "default", priority: "5", tags: "",
};

/** @param {string} text */
function names(text) {
  return text.split(",").map((each) => each.trim()).filter(Boolean);
}

/** @param {Form} form */
function whenOf(form) {
  if (form.kind === "cron") return { schedule: form.value, timezone: form.timezone };
  if (form.kind === "after") return { after: names(form.value) };
  return form.kind === "manual" ? { manual: true } : { [form.kind]: form.value };
}

/** @param {string} text */
function number(text) {
  return /^\d+$/.test(text) ? Number(text) : text;
}

/** Arguments that are no JSON are sent as they are typed, so that the server says what is wrong.
 * @param {string} text */
function argsOf(text) {
  try {
    return parse(text);
  } catch {
    return text;
  }
}

/** @param {Form} form @param {{ isDraft: boolean }} how a draft says nothing of what it executes */
export function bodyOf(form, { isDraft }) {
  const work = form.kindOfWork === "task" ? { task: form.work, args: form.args.trim() ? argsOf(form.args) : {} } : { command: form.work };
  const clock = form.kind === "cron" || form.kind === "every";
  return {
    ...(form.name || !isDraft ? { name: form.name } : {}), ...whenOf(form), ...(isDraft ? {} : work), misfire: form.misfire, overlap: form.overlap, retry: number(form.retries),
    queue: form.queue, priority: number(form.priority), tags: names(form.tags), ...(clock ? { calendars: names(form.calendars), on_excluded: form.on_excluded } : {}), timeout: form.timeout || null,
  };
}

/** @param {any} trigger */
function valueOf(trigger) {
  return { cron: trigger.cron, every: trigger.every, at: trigger.at, after: (trigger.jobs ?? []).join(", ") }[/** @type {"cron"} */ (trigger.kind)] ?? "";
}

/** A stored job as a form.
 * @param {any} job @returns {Form} */
export function formOf(job) {
  const isCommand = job.task === "command";
  const argv = job.args?.command ?? job.args?.argv;
  const work = isCommand ? (Array.isArray(argv) ? argv.map(quoted).join(" ") : String(argv ?? "")) : job.task;
  return {
    ...FIRST, name: job.name, kindOfWork: isCommand ? "command" : "task", work, args: isCommand || job.args == null ? "" : write(job.args), kind: job.trigger.kind === "at" ? "run_at" : job.trigger.kind,
    value: String(valueOf(job.trigger) ?? ""), timezone: job.trigger.tz ?? FIRST.timezone, calendars: job.policy.calendars.join(", "), on_excluded: job.policy.on_excluded, misfire: job.policy.misfire,
    overlap: job.policy.overlap, retries: String(job.retries instanceof Exact ? job.retries.digits : job.retries), timeout: job.timeout ?? "", queue: job.queue, priority: String(job.priority), tags: job.tags.join(", "),
  };
}

/** @param {Form} form @param {boolean} isNew */
export function commandOf(form, isNew) {
  const flag = { cron: "--cron", every: "--every", run_at: "--at", after: "--after", manual: "--manual" }[form.kind] ?? "--cron";
  const values = form.kind === "manual" ? [flag] : form.kind === "after" ? names(form.value).map((each) => `--after ${quoted(each)}`) : [`${flag} ${quoted(form.value)}`];
  const calendars = names(form.calendars).map((each) => `--calendar ${quoted(each)}`).concat(form.calendars.trim() ? [`--on-excluded ${form.on_excluded}`] : isNew ? [] : ["--calendar none"]);
  const tags = names(form.tags).map((each) => `--tag ${quoted(each)}`);
  const args = form.kindOfWork === "task" && form.args.trim() ? Object.entries(argsOf(form.args) ?? {}).map(([name, value]) => `--arg ${quoted(`${name}=${write(value).replace(/\s+/g, " ")}`)}`) : [];
  const flags = [
    ...values, ...(form.kind === "cron" ? [`--tz ${form.timezone}`] : []), ...calendars, `--misfire ${form.misfire}`, `--overlap ${form.overlap}`,
    `--retries ${form.retries}`, ...(form.timeout || !isNew ? [`--timeout ${form.timeout || "none"}`] : []), `--queue ${quoted(form.queue)}`, `--priority ${form.priority}`, ...(tags.length || isNew ? tags : ["--tag none"]),
    form.kindOfWork === "task" ? [`--task ${quoted(form.work || "TASK")}`, ...args].join(" ") : `--command ${quoted(form.work || "…")}`,
  ];
  return `mainspring job ${isNew ? "add" : "edit"} ${quoted(form.name || "NAME")} ${flags.join(" ")}`;
}
