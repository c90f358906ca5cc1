/** What can be done to one job, run or queue: each asks first, and shows the command that does the same. */
import { get, send } from "../api.js";
import { go, to } from "../router.js";
import { ask, quoted } from "./dialog.js";

/** How a path names a job: a name with a slash has no room in it.
 * @param {{ name: string, job_id?: string }} job */
export async function keyOf(job) {
  if (job.job_id || !job.name.includes("/")) return encodeURIComponent(job.job_id ?? job.name);
  return (await get("/v1/jobs", { name: job.name, fields: "row", limit: 1 })).items[0]?.job_id ?? "missing";
}

/** Trigger, pause, resume or remove one job.
 * @param {{ name: string, job_id?: string }} job @param {string} verb @param {() => void} then */
export function askForJob(job, verb, then) {
  const texts = /** @type {Record<string, [string, string, string]>} */ ({
    trigger: ["Fire it now", "It fires once, besides its schedule.", "triggered"],
    pause: ["Pause it", "It does not fire until it is resumed. Instants that pass meanwhile are recorded as skipped.", "paused"],
    resume: ["Resume it", "It goes on with its next instant.", "resumed"],
    remove: ["Remove it", "The definition is forgotten. Unfinished runs go on, and the ledger stays.", "removed"],
  });
  const [button, text, done] = texts[verb];
  ask({
    title: `${button}: ${job.name}`, text, button, done, danger: verb === "remove", reason: verb !== "trigger",
    command: (reason) => `mainspring job ${verb} ${quoted(job.name)}${reason ? ` --reason ${quoted(reason)}` : ""}`,
    act: async (reason) => {
      const path = `/v1/jobs/${await keyOf(job)}`;
      if (verb === "remove") await send("DELETE", `${path}${reason ? `?reason=${encodeURIComponent(reason)}` : ""}`);
      else await send("POST", `${path}/${verb}`, verb !== "trigger" && reason ? { reason } : {});
      verb === "remove" ? go(to("/jobs")) : then();
    },
  });
}

/** Cancel or retry one run.
 * @param {string} id @param {"cancel" | "retry"} verb @param {() => void} then */
export function askForRun(id, verb, then) {
  const word = verb === "cancel" ? "Cancel" : "Retry";
  ask({
    title: `${word} this run`, danger: verb === "cancel", button: `${word} it`, done: verb === "cancel" ? "cancelled" : "submitted again",
    text: verb === "cancel" ? "A waiting run ends at once; a running one is asked to stop." : "It is submitted again with the same arguments.",
    command: (reason) => `mainspring run ${verb} ${id}${reason ? ` --reason ${quoted(reason)}` : ""}`,
    act: async (reason) => {
      await send("POST", `/v1/runs/${id}/${verb}`, reason ? { reason } : {});
      then();
    },
  });
}

/** Pause or resume a queue.
 * @param {string} name @param {"pause" | "resume"} verb @param {() => void} then */
export function askForQueue(name, verb, then) {
  const word = verb === "pause" ? "Pause" : "Resume";
  ask({
    title: `${word} queue ${name}`, button: `${word} it`, done: `${name} ${verb}d`,
    text: verb === "pause" ? "Its runs are not claimed until it is resumed. What runs goes on, and new runs are accepted." : "Its runs are claimed again, the most urgent first.",
    command: (reason) => `mainspring queues --${verb} ${quoted(name)}${reason ? ` --reason ${quoted(reason)}` : ""}`,
    act: async (reason) => {
      await send("POST", `/v1/queues/${encodeURIComponent(name)}/${verb}`, reason ? { reason } : {});
      then();
    },
  });
}
