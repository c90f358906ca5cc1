/** What the overview shows, of what the server lists: counts are exact up to a page, and say so beyond. */
import { useResource } from "./resource.js";

const PAGE = 200;

/** @param {any} list */
function counted(list) {
  return { count: list?.items.length ?? 0, more: Boolean(list?.next) };
}

/** Failed runs by job, the most first.
 * @param {any[]} runs */
function failuresOf(runs) {
  const groups = new Map();
  for (const run of runs) groups.set(run.job ?? run.task, [...(groups.get(run.job ?? run.task) ?? []), run]);
  return [...groups].sort((one, other) => other[1].length - one[1].length).map(([name, some]) => ({
    state: "failed", name, since: some[0].finished_at, job: some[0].job, run_id: some[0].run_id,
    text: `${some.length === 1 ? "failed once" : `failed ${some.length} times`}, last with ${some[0].error?.type ?? "an error"}${some[0].error?.message ? `: ${some[0].error.message}` : ""}`,
  }));
}

/** Queues that have waiting runs, and no worker.
 * @param {any[]} runs @param {any[]} workers */
function unservedOf(runs, workers) {
  const served = new Set(workers.filter((each) => each.state === "active").flatMap((each) => each.queues));
  const queues = new Map();
  for (const run of runs) if (!served.has(run.queue)) queues.set(run.queue, [...(queues.get(run.queue) ?? []), run]);
  return [...queues].map(([queue, some]) => ({
    state: "blocked", name: queue, queue, since: some[some.length - 1].due_at, text: `queue has ${some.length} waiting, and no worker`,
    remedy: `mainspring worker APP --queue ${queue}`,
  }));
}

/** Paused jobs; those of one reason are one line.
 * @param {any[]} jobs @param {boolean} more */
function pausedOf(jobs, more) {
  const reasons = new Map();
  for (const job of jobs) reasons.set(job.paused_why, [...(reasons.get(job.paused_why) ?? []), job]);
  return [...reasons].map(([why, some]) => ({
    state: "paused", name: some.length === 1 ? some[0].name : `${some.length}${more ? "+" : ""} jobs`, job: some.length === 1 ? some[0].name : null, jobs: some.length,
    since: some[0].paused_at, text: `paused${why ? `: ${why}` : ""}`,
  }));
}

/** @param {any} ready */
function serverOf(ready) {
  const wrong = (ready?.reasons ?? []).map((/** @type {string} */ text) => ({ state: "failed", name: "server", text, since: null }));
  const held = ready && ready.degradation !== "normal" ? [{ state: "late", name: ready.degradation, text: `pressure ${ready.pressure}`, since: null }] : [];
  return [...wrong, ...held];
}

/** @returns {import("./resource.js").Resource<any>} */
export function useOverview() {
  const parts = {
    ready: useResource("/health/ready"), workers: useResource("/v1/workers"), running: useResource("/v1/runs", { state: "running", limit: PAGE }),
    pending: useResource("/v1/runs", { state: "pending", limit: PAGE }), blocked: useResource("/v1/runs", { state: "blocked", limit: PAGE }),
    dead: useResource("/v1/dead-letters", { limit: PAGE }), paused: useResource("/v1/jobs", { state: "paused", limit: PAGE }),
    active: useResource("/v1/jobs", { state: "active", limit: PAGE }),
  };
  const all = Object.values(parts);
  const state = {
    error: all.find((each) => each.error)?.error ?? null, loading: all.some((each) => each.loading),
    reload: () => all.forEach((each) => each.reload()),
  };
  const { ready, workers, running, pending, blocked, dead, paused, active } = parts;
  const data = all.some((each) => each.data === null) ? null : {
    ready: ready.data, workers: workers.data.items, running: running.data.items, counts: {
      running: counted(running.data), pending: counted(pending.data), blocked: counted(blocked.data), failed: counted(dead.data),
      active: counted(active.data), paused: counted(paused.data),
    },
    next: active.data.next ? null : active.data.items.filter((/** @type {any} */ job) => job.next_fire_at)
      .sort((/** @type {any} */ one, /** @type {any} */ other) => Date.parse(one.next_fire_at) - Date.parse(other.next_fire_at)),
    attention: [
      ...serverOf(ready.data), ...unservedOf(pending.data.items, workers.data.items), ...failuresOf(dead.data.items),
      ...workers.data.items.filter((/** @type {any} */ each) => each.state === "dead").map((/** @type {any} */ each) => (
        { state: "dead", name: each.worker, text: "worker has gone silent", since: each.heartbeat_at })),
      ...pausedOf(paused.data.items, paused.data.next !== null),
    ],
  };
  return { ...state, data };
}
