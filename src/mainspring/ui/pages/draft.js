/** A job as the editor holds it, as the server takes it, and as the command that does the same. */
import { Exact, parse } from "../api.js";
import { quoted } from "../parts/dialog.js";
import { write } from "../parts/json.js";

/** @typedef {typeof FIRST} Form */
/** @typedef {{ name: keyof typeof RARE, label: string, hint?: string, words?: string[], digits?: boolean, many?: string, flag?: string }} Option */

/** What a new job has of the options that few jobs set. */
const RARE = {
  soft_timeout: "", total_timeout: "", start_deadline: "", grace: "10s", catch_up_window: "1d", catch_up_limit: "100", jitter: "0s", start_at: "", end_at: "", max_firings: "",
  completions: "1", parallelism: "", key: "", limit: "", keep_succeeded: "", keep_failed: "", dependencies: "", on_dependency_failure: "skip", regions: "default", region_failover: "",
  failover_regions: "", under_pressure: "wait", isolation: "", max_losses: "3", on_key_failure: "continue",
};
/** The two that stand beside the timeout. @type {Option[]} */
export const TIMEOUTS = [{ name: "soft_timeout", label: "Warn after (soft)", hint: "8m" }, { name: "total_timeout", label: "End with all attempts after (total)", hint: "1h" }];
/** @type {Option[]} */
export const MORE = [
  { name: "grace", label: "Late from" }, { name: "start_deadline", label: "No longer starts after", hint: "30m" },
  { name: "catch_up_window", label: "Catch up how far back" }, { name: "catch_up_limit", label: "Catch up how many", digits: true },
  { name: "start_at", label: "Not before", hint: "2027-01-01T00:00:00Z", flag: "start" }, { name: "end_at", label: "Not after", hint: "2028-01-01T00:00:00Z", flag: "end" },
  { name: "max_firings", label: "Ends after this many firings", digits: true }, { name: "jitter", label: "Spread over (jitter)" },
  { name: "completions", label: "Runs of each firing", digits: true }, { name: "parallelism", label: "Of these at once", digits: true },
  { name: "key", label: "Key, for one after the other", hint: "customer-7" }, { name: "limit", label: "Runs of the task at once", digits: true },
  { name: "dependencies", label: "Waits for jobs, with commas", hint: "extract", many: "dependency" }, { name: "on_dependency_failure", label: "If one of these failed", words: ["skip", "fail", "run"] },
  { name: "on_key_failure", label: "If one of its key failed", words: ["continue", "stop"] }, { name: "max_losses", label: "Workers it may lose", digits: true },
  { name: "keep_succeeded", label: "Succeeded runs to keep", digits: true }, { name: "keep_failed", label: "Failed runs to keep", digits: true },
  { name: "regions", label: "Regions, with commas", many: "region" }, { name: "region_failover", label: "Move to another region after", hint: "5m" },
  { name: "failover_regions", label: "Where it may move, with commas", hint: "us, asia", many: "failover-region" }, { name: "under_pressure", label: "Under heavy load", words: ["wait", "run"] },
  { name: "isolation", label: "Isolation", hint: "process" },
];
const OPTIONS = [...TIMEOUTS, ...MORE];

export const FIRST = {
  ...RARE,
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

/** What stands for an option: its text, or what a new job has if there is none. Empty takes the value away; of isolation it is a level.
 * @param {Form} form @param {Option} option */
function textOf(form, { name }) {
  return form[name].trim() || RARE[name] || (name === "isolation" ? "none" : "");
}

/** @param {Form} form @param {Option} option */
function jsonOf(form, option) {
  const text = textOf(form, option);
  return !text ? null : option.many ? names(text) : option.digits ? number(text) : text;
}

/** @param {Form} form @param {Option} option */
function flagsOf(form, option) {
  const text = textOf(form, option) || "none";
  const flag = `--${option.many ?? option.flag ?? option.name.replaceAll("_", "-")}`;
  return (option.many ? names(text) : [text]).map((each) => `${flag} ${quoted(each)}`);
}

/** The options that differ. Others are not sent: so an edit keeps what it does not show.
 * @param {Form} form @param {Form} before */
function changed(form, before) {
  return OPTIONS.filter(({ name }) => form[name] !== before[name]);
}

/** @param {Form} form @param {{ isDraft: boolean, before?: Form }} how a draft says nothing of what it executes; `before` is what is stored */
export function bodyOf(form, { isDraft, before = FIRST }) {
  const options = changed(form, before).filter(({ name }) => !isDraft || name !== "isolation");
  const work = form.kindOfWork === "task" ? { task: form.work, args: form.args.trim() ? argsOf(form.args) : {} } : { command: form.work };
  const clock = form.kind === "cron" || form.kind === "every";
  return {
    ...(form.name || !isDraft ? { name: form.name } : {}), ...whenOf(form), ...(isDraft ? {} : work), misfire: form.misfire, overlap: form.overlap,
    ...(form.retries === before.retries ? {} : { retry: number(form.retries) }), ...Object.fromEntries(options.map((each) => [each.name, jsonOf(form, each)])),
    queue: form.queue, priority: number(form.priority), tags: names(form.tags), ...(clock ? { calendars: names(form.calendars), on_excluded: form.on_excluded } : {}), timeout: form.timeout || null,
  };
}

/** @param {any} trigger */
function valueOf(trigger) {
  return { cron: trigger.cron, every: trigger.every, at: trigger.at, after: (trigger.jobs ?? []).join(", ") }[/** @type {"cron"} */ (trigger.kind)] ?? "";
}

/** @param {any} job @param {keyof typeof RARE} name */
function shown(job, name) {
  const value = job[name] ?? job.policy[name] ?? RARE[name];
  return Array.isArray(value) ? value.join(", ") : String(value instanceof Exact ? value.digits : value);
}

/** A stored job as a form.
 * @param {any} job @returns {Form} */
export function formOf(job) {
  const isCommand = job.task === "command";
  const argv = job.args?.command ?? job.args?.argv;
  const work = isCommand ? (Array.isArray(argv) ? argv.map(quoted).join(" ") : String(argv ?? "")) : job.task;
  return {
    ...FIRST, ...Object.fromEntries(OPTIONS.map(({ name }) => [name, shown(job, name)])), name: job.name, kindOfWork: isCommand ? "command" : "task", work, args: isCommand || job.args == null ? "" : write(job.args), kind: job.trigger.kind === "at" ? "run_at" : job.trigger.kind,
    value: String(valueOf(job.trigger) ?? ""), timezone: job.trigger.tz ?? FIRST.timezone, calendars: job.policy.calendars.join(", "), on_excluded: job.policy.on_excluded, misfire: job.policy.misfire,
    overlap: job.policy.overlap, retries: String(job.retries instanceof Exact ? job.retries.digits : job.retries), timeout: job.timeout ?? "", queue: job.queue, priority: String(job.priority), tags: job.tags.join(", "),
  };
}

/** @param {Form} form @param {Form | null} stored nothing for a new job */
export function commandOf(form, stored) {
  const isNew = !stored;
  const flag = { cron: "--cron", every: "--every", run_at: "--at", after: "--after", manual: "--manual" }[form.kind] ?? "--cron";
  const values = form.kind === "manual" ? [flag] : form.kind === "after" ? names(form.value).map((each) => `--after ${quoted(each)}`) : [`${flag} ${quoted(form.value)}`];
  const calendars = names(form.calendars).map((each) => `--calendar ${quoted(each)}`).concat(form.calendars.trim() ? [`--on-excluded ${form.on_excluded}`] : isNew ? [] : ["--calendar none"]);
  const tags = names(form.tags).map((each) => `--tag ${quoted(each)}`);
  const args = form.kindOfWork === "task" && form.args.trim() ? Object.entries(argsOf(form.args) ?? {}).map(([name, value]) => `--arg ${quoted(`${name}=${write(value).replace(/\s+/g, " ")}`)}`) : [];
  const flags = [
    ...values, ...(form.kind === "cron" ? [`--tz ${form.timezone}`] : []), ...calendars, `--misfire ${form.misfire}`, `--overlap ${form.overlap}`,
    ...(form.retries === stored?.retries ? [] : [`--retries ${form.retries}`]), ...changed(form, stored ?? FIRST).flatMap((each) => flagsOf(form, each)), ...(form.timeout || !isNew ? [`--timeout ${form.timeout || "none"}`] : []), `--queue ${quoted(form.queue)}`, `--priority ${form.priority}`, ...(tags.length || isNew ? tags : ["--tag none"]),
    form.kindOfWork === "task" ? [`--task ${quoted(form.work || "TASK")}`, ...args].join(" ") : `--command ${quoted(form.work || "…")}`,
  ];
  return `mainspring job ${isNew ? "add" : "edit"} ${quoted(form.name || "NAME")} ${flags.join(" ")}`;
}
