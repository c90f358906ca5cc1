/** The ledger of a job: each due instant is a cell with an outcome and a reason; a missed one can be fired from here. */
import { get, send } from "../api.js";
import { gridOf, shapeOf, SPANS_MS } from "../draw/ledger.js";
import { length, lookOf } from "../draw/text.js";
import { html, useEffect, useMemo, useRef, useState } from "../html.js";
import { place, refine, to } from "../router.js";
import { may } from "../state/me.js";
import { useResource } from "../state/resource.js";
import { ask, copy, quoted } from "./dialog.js";
import { Badge, Empty, Loaded, Sentence, Trouble } from "./page.js";
import { lengthOf, now, since, When, zoneOf } from "./when.js";
import { Lines } from "./chart.js";

/** @typedef {import("../draw/ledger.js").Cell} Cell */
/** @typedef {import("../draw/ledger.js").Firing} Firing */

const LEGEND = ["succeeded", "late", "fired", "failed", "missed", "skipped", "cancelled", "planned", "excluded", "clock-change"];
const DAY_MS = 86_400_000;
const AHEAD_MS = 15 * DAY_MS;
const YEAR_MS = 365 * DAY_MS;
/** Where a year holds fewer firings than this, the ledger is asked for further back. */
const FEW_ROWS = 3;
const DECADES_MS = 20 * YEAR_MS;
/** The newest rows of a ledger are asked for again with news; older ones only after an action. An hour of seconds is four pages. */
const PAGE = 1_000;
const MOST_PAGES = 5;
const MOST_KEPT = 10_000;
const UNITS = /** @type {Record<string, number>} */ ({ ms: 0.001, s: 1, m: 60, h: 3600, d: 86400 });
/** A grid of at most so many columns leaves room beside it. */
const NARROW = 24;
/** Columns after the newest cell that a narrow screen shows, too. */
const AHEAD_COLUMNS = 4;
const PLANNED = { days: 14, hours: 24, minutes: 60, seconds: 60, order: 0 };

/** `1h30m` in seconds.
 * @param {string} text */
function secondsOf(text) {
  return [...text.matchAll(/(\d+(?:\.\d+)?)(ms|s|m|h|d)/g)].reduce((sum, [, count, unit]) => sum + Number(count) * UNITS[unit], 0);
}

/** Rows of the server as cells: a run that began after the job's grace was late; a note of the clocks marks an instant to come.
 * @param {any} row @param {number} grace in seconds @returns {Firing} */
function cellOf(row, grace) {
  const isLate = row.outcome === "succeeded" && row.late_s !== null && row.late_s > grace;
  const outcome = isLate ? "late" : row.outcome === "planned" && row.note ? "clock-change" : row.outcome;
  return { ...row, outcome, reason: row.reason || row.note };
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
  const path = `/v1/jobs/${job.job_id}/backfill`;
  const span = { from: firing.fire_at, to: firing.last_at ?? firing.fire_at };
  const dry = await send("POST", path, { ...span, dry_run: true });
  ask({
    title: `Backfill ${job.name}`, button: `Fire ${dry.count}`, done: `${dry.count} fired`,
    text: html`<p>${dry.count === 0 ? "Each of these instants has a run: nothing fires." : `${dry.count} past ${dry.count === 1 ? "instant fires" : "instants fire"} now, behind what waits already. What has a run gets no other.`}</p>
      <ul class="lines">${dry.items.slice(0, 5).map((/** @type {any} */ each) => html`<li><${When} at=${each.fire_at} zone=${job.trigger.tz} job />${each.before && html`<${Badge} state=${each.before} />`}</li>`)}</ul>
      ${dry.count > 5 && html`<p class="muted">and ${dry.count - 5} more</p>`}`,
    command: (reason) => `mainspring job backfill ${quoted(job.name)} --from ${span.from} --to ${span.to} --yes${reason ? ` --reason ${quoted(reason)}` : ""}`,
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
  const [problem, setProblem] = useState(/** @type {Error | null} */ (null));
  const backfill = () => (setProblem(null), askToBackfill(job, firing, then).catch(setProblem));
  return html`<li class="stack">
    <div class="row"><${When} at=${firing.fire_at} zone=${job.trigger.tz} job /><${Badge} state=${firing.outcome} />
      ${(firing.count ?? 1) > 1 && html`<span>${firing.count} instants until <${When} at=${firing.last_at} zone=${job.trigger.tz} job /></span>`}</div>
    ${firing.reason && html`<p><${Sentence} text=${firing.reason} zone=${job.trigger.tz} job /></p>`}
    ${firing.took_s != null && html`<p class="muted">began ${length((firing.late_s ?? 0) * 1000)} after its instant, took ${length(firing.took_s * 1000)}${(firing.attempts ?? 1) > 1 ? `, ${firing.attempts} attempts` : ""}</p>`}
    <div class="row">
      ${firing.run_id && html`<a class="button" href=${to(`/runs/${firing.run_id}`)}>Open its run</a>`}
      ${open && html`<button disabled=${!!why} title=${why} onClick=${backfill}>Backfill ${(firing.count ?? 1) > 1 ? "these" : "this"}</button>`}
      <button class="plain" onClick=${() => copy(location.href)}>Copy link</button></div>
    ${problem && html`<${Trouble} error=${problem} />`}</li>`;
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

/** Where the newest columns are the last ones, a narrow screen shows those first.
 * @param {{ current: HTMLElement | null }} table @param {boolean} isNewestLast */
export function useScrolledToEnd(table, isNewestLast) {
  useEffect(() => {
    const box = table.current?.parentElement;
    if (box && isNewestLast) box.scrollLeft = box.scrollWidth;
  }, [isNewestLast]);
}

/** The newest past cell is on the screen, with some of what comes: a narrow one would begin with the first hours of each day.
 * @param {{ current: HTMLElement | null }} table @param {import("../draw/ledger.js").Shape} shape @param {Cell | undefined} newest */
function useScrolledToNewest(table, shape, newest) {
  useEffect(() => {
    const box = table.current?.parentElement;
    const cell = table.current?.querySelector("[data-newest]")?.closest("td");
    if (box && cell && shape !== "days") box.scrollLeft = Math.max(cell.offsetLeft + AHEAD_COLUMNS * cell.offsetWidth - box.clientWidth, 0);
  }, [shape, newest === undefined]);
}

/** @param {{ grid: import("../draw/ledger.js").Grid, chosen: Cell | null, choose: (cell: Cell) => void, label?: string }} given */
export function GridTable({ grid, chosen, choose, label = "ledger: what became of each due instant" }) {
  const table = useRef(/** @type {HTMLElement | null} */ (null));
  useScrolledToEnd(table, grid.shape === "days");
  const all = grid.rows.flatMap((row) => row.cells).filter((cell) => cell !== null);
  const stop = chosen ?? all[all.length - 1];
  const past = all.filter((cell) => !AHEAD.includes(cell.outcome));
  const begun = (/** @type {Cell} */ cell) => cell.firings[cell.firings.length - 1].fire_at;
  const newest = past.reduce((/** @type {Cell | undefined} */ last, cell) => (last === undefined || begun(cell) > begun(last) ? cell : last), undefined);
  useScrolledToNewest(table, grid.shape, newest);
  return html`<div class="ledger"><table ref=${table} aria-label=${label} onKeyDown=${(/** @type {KeyboardEvent} */ e) => move(table.current, e)}>
    ${grid.columns.length > 0 && html`<thead><tr><td></td>${grid.columns.map((each) => (each ? html`<th scope="col">${each}</th>` : html`<td></td>`))}</tr></thead>`}
    <tbody>${grid.rows.map((row) => html`<tr><th scope="row">${row.label}</th>${row.cells.map((cell) => html`<td>${cell && html`<${CellButton} cell=${cell} pressed=${cell === chosen} stop=${cell === stop} isNewest=${cell === newest} choose=${choose} />`}</td>`)}</tr>`)}</tbody>
  </table></div>`;
}

/** @param {{ cell: Cell, pressed: boolean, stop: boolean, isNewest: boolean, choose: (cell: Cell) => void }} given */
function CellButton({ cell, pressed, stop, isNewest, choose }) {
  const look = lookOf(cell.outcome);
  const label = `${cell.firings[0].fire_at} ${textOf(cell)}`;
  return html`<button type="button" class=${`cell s-${look.tone} ${cell.band ? "band" : ""} o-${cell.outcome}`} aria-pressed=${pressed} data-newest=${isNewest || null} tabindex=${stop ? 0 : -1} title=${label} aria-label=${label}
    onClick=${() => choose(cell)}>${look.glyph}</button>`;
}

/** @typedef {{ path: string, answer: any, rows: any[], next: string | null, pages: number, isOld: boolean }} Kept */

/** The rows of a new answer, and what was known before its oldest.
 * @param {Kept | null} old @param {string} path @param {any} answer @returns {Kept} */
function joined(old, path, answer) {
  const from = Date.parse(answer.items.at(-1)?.fire_at);
  const rest = old?.path === path && !old.isOld ? old.rows.filter((row) => Date.parse(row.fire_at) < from) : [];
  if (!old || !rest.length) return { path, answer, rows: answer.items, next: answer.next, pages: 1, isOld: false };
  const rows = [...answer.items, ...rest];
  return { ...old, answer, rows: rows.slice(0, MOST_KEPT), next: rows.length > MOST_KEPT ? null : old.next };
}

/** The rows of a job's ledger, newest first: as many pages as the grid of its trigger shows, then more when they are asked for.
 * @param {any} job @param {Record<string, any>} query */
function useRows(job, query) {
  const path = `/v1/jobs/${encodeURIComponent(job.job_id)}/ledger`;
  const first = useResource(path, { ...query, limit: PAGE }, (news) => news.more || news.jobs.has(job.job_id));
  const kept = useRef(/** @type {Kept | null} */ (null));
  const isAsking = useRef(false);
  const [, redraw] = useState(0);
  if (first.data && first.current && kept.current?.answer !== first.data) kept.current = joined(kept.current, path, first.data);
  const more = async () => {
    const from = kept.current;
    if (isAsking.current || !from?.next) return;
    isAsking.current = true;
    const page = await get(path, { ...query, limit: PAGE, cursor: from.next }).catch(() => null);
    isAsking.current = false;
    const held = kept.current;
    if (page && held?.next === from.next) kept.current = { ...held, rows: [...held.rows, ...page.items], next: page.next, pages: held.pages + 1 };
    redraw((n) => n + 1);
  };
  const rows = kept.current?.rows ?? [];
  useEffect(() => {
    const past = rows.filter((row) => !AHEAD.includes(row.outcome)).map((row) => Date.parse(row.fire_at)).reverse();
    const span = SPANS_MS[shapeOf(job.trigger.kind, past)];
    if (kept.current && kept.current.pages < MOST_PAGES && past[0] > now().getTime() - span) more();
  }, [rows.length, kept.current?.pages]);
  const reload = () => (kept.current && (kept.current.isOld = true), first.reload());
  return { ...first, reload, rows, more: kept.current?.next ? more : undefined };
}

/** The grid of all cells. What is planned is cut where it would outgrow what is known.
 * @param {any[]} rows newest first @param {any} job @param {string} zone @param {boolean} isYear whether a year ahead is shown */
function gridOfRows(rows, job, zone, isYear) {
  const cells = [...rows].reverse().map((row) => cellOf(row, secondsOf(job.policy.grace)));
  const past = cells.filter((each) => !AHEAD.includes(each.outcome));
  const shape = shapeOf(job.trigger.kind, (past.length > 1 ? past : cells).map((each) => Date.parse(each.fire_at)));
  const ahead = cells.filter((each) => AHEAD.includes(each.outcome)).slice(0, isYear && shape === "days" ? 366 : PLANNED[shape]);
  return gridOf([...past, ...ahead], job.trigger.kind, zone);
}

const AHEAD = ["planned", "excluded", "clock-change"];

/** What was chosen stands below a wide grid, and on a narrow screen below each. */
function showChosen() {
  document.querySelector('[aria-label="the chosen instant"]')?.scrollIntoView({ block: "nearest" });
}

/** @param {{ job: any }} given */
export function Ledger({ job }) {
  const minute = Math.floor(now().getTime() / 60_000) * 60_000;
  const [begin] = useState(minute);
  const isYear = place.value.query.get("ahead") === "1y";
  const [isRare, setRare] = useState(false);
  const query = { since: new Date(begin - (isRare ? DECADES_MS : SPANS_MS.days)).toISOString(), until: new Date(begin + (isYear ? YEAR_MS : AHEAD_MS)).toISOString() };
  const past = useRows(job, query);
  useEffect(() => {
    if (past.data && past.current && past.rows.filter((row) => !AHEAD.includes(row.outcome)).length < FEW_ROWS) setRare(true);
  }, [past.data]);
  const zone = job.trigger.tz ?? zoneOf();
  const grid = useMemo(() => (past.rows.length ? gridOfRows(past.rows, job, zone, isYear) : null), [past.data, past.rows.length, zone, isYear]);
  const at = place.value.query.get("at");
  const chosen = grid?.rows.flatMap((row) => row.cells).find((cell) => cell && !cell.band && cell.firings.some((each) => each.fire_at === at)) ?? null;
  return html`<${Loaded} of=${past}>${() => grid === null
    ? html`<${Empty} command=${`mainspring job trigger ${quoted(job.name)}`}>It has not fired yet.</${Empty}>`
    : html`<div class=${grid.columns.length <= NARROW ? "beside" : "stack"}>
      <section class="panel"><div class="body stack">
        <${GridTable} grid=${grid} chosen=${chosen} choose=${(/** @type {Cell} */ cell) => (refine({ at: cell.firings[0].fire_at }), requestAnimationFrame(showChosen))} />
        <div class="spread"><ul class="legend">${LEGEND.map((each) => html`<li>${Badge({ state: each })}</li>`)}</ul><span class="row">${grid.shape === "days" && html`<a href=${to(place.value.path, { ahead: isYear ? "" : "1y" })}>${isYear ? "two weeks ahead" : "a year ahead"}</a>`}<span class="muted">${zone}</span></span></div>
        ${past.more && html`<button class="plain" onClick=${past.more}>Show earlier</button>`}</div></section>
      <div class="stack">${chosen && html`<section class="panel" aria-label="the chosen instant"><ul class="body stack">${chosen.firings.slice(0, 20).map((each) => html`<${Chosen} key=${each.fire_at} firing=${each} job=${job} then=${past.reload} />`)}</ul></section>`}
      <${Spread} job=${job} /></div></div>`}</${Loaded}>`;
}

/** @param {{ job: any }} given how late its runs began and how long they took, by day */
function Spread({ job }) {
  const tallies = useResource("/v1/tallies", { job: job.name, since: since("30d"), bucket: "1d" });
  const items = tallies.data?.items ?? [];
  if (!items.some((/** @type {any} */ each) => each.took_p50 !== null)) return null;
  const rows = /** @type {[string, string, string][]} */ ([["Lateness", "late_p50", "late_p99"], ["Duration", "took_p50", "took_p95"]]);
  return html`<div class="columns first">${rows.map(([title, middle, high]) => html`<section class="panel"><header><h2>${title}, 30 days</h2></header><div class="body">
    <${Lines} label=${`${title} by day`} span=${lengthOf("30d")} ends=${["30 d ago", "now"]} at=${items.map((/** @type {any} */ each) => each.at)} series=${[middle, high].map((name) => ({ name: name.slice(-3), values: items.map((/** @type {any} */ each) => each[name]) }))} /></div></section>`)}</div>`;
}
