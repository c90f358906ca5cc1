/** The ledger of a job: each due instant is a cell with an outcome and a reason; a missed one can be fired from here. */
import { send } from "../api.js";
import { gridOf } from "../draw/ledger.js";
import { lookOf } from "../draw/states.js";
import { html, useMemo, useRef } from "../html.js";
import { place, refine, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";
import { Badge } from "./badge.js";
import { ask, copy, quoted } from "./dialog.js";
import { usePages } from "./lists.js";
import { Empty, Loaded } from "./page.js";
import { When, zoneOf } from "./when.js";

/** @typedef {import("../draw/ledger.js").Cell} Cell */
/** @typedef {import("../draw/ledger.js").Firing} Firing */

const LEGEND = ["succeeded", "fired", "failed", "missed", "skipped", "cancelled", "planned", "clock-change"];
const PLANNED = { days: 14, hours: 24, minutes: 60, seconds: 60, order: 0 };

/** Fire times to come as cells; a note of the server marks a clock change.
 * @param {any[]} times @returns {Firing[]} */
function plannedOf(times) {
  return times.map((each) => ({ fire_at: each.fire_at, outcome: each.note ? "clock-change" : "planned", reason: each.note, count: 1 }));
}

/** @param {Cell} cell */
function textOf(cell) {
  const look = lookOf(cell.outcome);
  const reason = cell.firings.find((each) => each.outcome === cell.outcome)?.reason;
  return `${look.word}${cell.count > 1 ? ` (${cell.count} instants)` : ""}${reason ? `: ${reason}` : ""}`;
}

/** Ask what a backfill would do, then ask for it.
 * @param {any} job @param {Firing} firing @param {() => void} then */
async function askToBackfill(job, firing, then) {
  const path = `/v1/jobs/${encodeURIComponent(job.name)}/backfill`;
  const span = { from: firing.fire_at, to: firing.last_at ?? firing.fire_at };
  const dry = await send("POST", path, { ...span, dry_run: true });
  ask({
    title: `Backfill ${job.name}`, button: `Fire ${dry.count}`, done: `${dry.count} fired`,
    text: html`<p>${dry.count === 0 ? "Each of these instants has a run: nothing fires." : `${dry.count} past ${dry.count === 1 ? "instant fires" : "instants fire"} now, behind what waits already. What has a run gets no other.`}</p>
      <ul class="lines">${dry.items.slice(0, 5).map((/** @type {any} */ each) => html`<li><${When} at=${each.fire_at} zone=${job.trigger.tz} />${each.before && html`<${Badge} state=${each.before} />`}</li>`)}</ul>
      ${dry.count > 5 && html`<p class="muted">and ${dry.count - 5} more</p>`}`,
    command: (reason) => `mainspring job backfill ${quoted(job.name)} --from ${span.from} --to ${span.to}${reason ? ` --reason ${quoted(reason)}` : ""}`,
    act: async (reason) => {
      await send("POST", path, { ...span, ...(reason ? { reason } : {}) });
      then();
    },
  });
}

/** @param {{ firing: Firing, job: any, then: () => void }} given */
function Chosen({ firing, job, then }) {
  const open = ["missed", "skipped"].includes(firing.outcome);
  const why = may("jobs:operate") ? "" : "needs jobs:operate";
  return html`<li class="stack">
    <div class="row"><${When} at=${firing.fire_at} zone=${job.trigger.tz} /><${Badge} state=${firing.outcome} />
      ${(firing.count ?? 1) > 1 && html`<span>${firing.count} instants until <${When} at=${firing.last_at} zone=${job.trigger.tz} /></span>`}</div>
    ${firing.reason && html`<p>${firing.reason}</p>`}
    <div class="row">
      ${firing.run_id && html`<a class="button" href=${to(`/runs/${firing.run_id}`)}>Open its run</a>`}
      ${open && html`<button disabled=${!!why} title=${why} onClick=${() => askToBackfill(job, firing, then)}>Backfill ${(firing.count ?? 1) > 1 ? "these" : "this"}</button>`}
      <button class="plain" onClick=${() => copy(location.href)}>Copy link</button></div></li>`;
}

/** @param {HTMLElement | null} table @param {KeyboardEvent} event */
function move(table, event) {
  const cells = [...(table?.querySelectorAll("tbody tr") ?? [])].map((row) => [...row.querySelectorAll("td")]);
  const row = cells.findIndex((each) => each.some((td) => td.contains(document.activeElement)));
  if (row < 0) return;
  const column = cells[row].findIndex((td) => td.contains(document.activeElement));
  const steps = /** @type {Record<string, [number, number]>} */ ({ ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0] });
  const [down, right] = steps[event.key] ?? (event.key === "Home" ? [0, -1] : event.key === "End" ? [0, 1] : [0, 0]);
  if (!down && !right) return;
  event.preventDefault();
  let last = null;
  for (let y = row + down, x = column + right; cells[y]?.[x]; y += down, x += right) {
    const button = cells[y][x].querySelector("button");
    if (button) last = button;
    if (button && event.key.startsWith("Arrow")) break;
  }
  last?.focus();
}

/** @param {{ grid: import("../draw/ledger.js").Grid, chosen: Cell | null, choose: (cell: Cell) => void }} given */
function GridTable({ grid, chosen, choose }) {
  const table = useRef(/** @type {HTMLElement | null} */ (null));
  const all = grid.rows.flatMap((row) => row.cells).filter((cell) => cell !== null);
  const stop = chosen ?? all[all.length - 1];
  return html`<div class="ledger"><table ref=${table} aria-label="ledger: what became of each due instant" onKeyDown=${(/** @type {KeyboardEvent} */ e) => move(table.current, e)}>
    ${grid.columns.length > 0 && html`<thead><tr><td></td>${grid.columns.map((each) => (each ? html`<th scope="col">${each}</th>` : html`<td></td>`))}</tr></thead>`}
    <tbody>${grid.rows.map((row) => html`<tr><th scope="row">${row.label}</th>${row.cells.map((cell) => html`<td>${cell && html`<${CellButton} cell=${cell} pressed=${cell === chosen} stop=${cell === stop} choose=${choose} />`}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** @param {{ cell: Cell, pressed: boolean, stop: boolean, choose: (cell: Cell) => void }} given */
function CellButton({ cell, pressed, stop, choose }) {
  const look = lookOf(cell.outcome);
  const label = `${cell.firings[0].fire_at} ${textOf(cell)}`;
  return html`<button class=${`cell s-${look.tone} ${cell.band ? "band" : ""} o-${cell.outcome}`} aria-pressed=${pressed} tabindex=${stop ? 0 : -1} title=${label} aria-label=${label}
    onClick=${() => choose(cell)}>${look.glyph}</button>`;
}

/** @param {{ job: any }} given */
export function Ledger({ job }) {
  const path = `/v1/jobs/${encodeURIComponent(job.name)}`;
  const concerns = (/** @type {import("../live.js").News} */ news) => news.more || news.jobs.has(job.job_id);
  const past = usePages(`${path}/firings`, { limit: 1000 }, concerns);
  const next = useResource(job.state === "active" ? `${path}/next` : null, { count: 60 }, concerns);
  const zone = job.trigger.tz ?? zoneOf();
  const isWhole = job.state !== "active" || next.data !== null || next.error !== null;  // Cells to come would move those that are there.
  const grid = useMemo(() => {
    const rows = [...past.rows].reverse();
    if (!rows.length && !next.data) return null;
    const shape = rows.length ? gridOf(rows, job.trigger.kind, zone).shape : "days";
    const firings = [...rows, ...plannedOf((next.data?.items ?? []).slice(0, PLANNED[shape]))];
    return firings.length ? gridOf(firings, job.trigger.kind, zone) : null;
  }, [past.data, past.rows.length, next.data, zone]);
  const at = place.value.query.get("at");
  const chosen = grid?.rows.flatMap((row) => row.cells).find((cell) => cell && !cell.band && cell.firings.some((each) => each.fire_at === at)) ?? null;
  return html`<${Loaded} of=${past}>${() => !isWhole ? null : grid === null
    ? html`<${Empty} command=${`mainspring job trigger ${quoted(job.name)}`}>It has not fired yet.</${Empty}>`
    : html`<div class="stack">
      <section class="panel"><div class="body stack">
        <${GridTable} grid=${grid} chosen=${chosen} choose=${(/** @type {Cell} */ cell) => refine({ at: cell.firings[0].fire_at })} />
        <div class="spread"><ul class="legend">${LEGEND.map((each) => html`<li>${Badge({ state: each })}</li>`)}</ul><span class="muted">${zone}</span></div>
        ${past.more && html`<button class="plain" onClick=${past.more}>Show earlier</button>`}</div></section>
      ${chosen && html`<section class="panel" aria-label="the chosen instant"><ul class="body stack">${chosen.firings.slice(0, 20).map((each) => html`<${Chosen} firing=${each} job=${job} then=${past.reload} />`)}</ul></section>`}</div>`}</${Loaded}>`;
}
