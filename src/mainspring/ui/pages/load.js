/** Load: what starts in the coming day, before it arrives, and whether it fits; and what ended in the past one. */
import { length } from "../draw/text.js";
import { heatOf, stepOf } from "../draw/heat.js";
import { html, useMemo, useRef } from "../html.js";
import { Badge, Empty, Head, Loaded } from "../parts/page.js";
import { SpreadPanel } from "../parts/spread.js";
import { Table } from "../parts/table.js";
import { lengthOf, now, since, Spans, When, zoneOf } from "../parts/when.js";
import { jobNamed, place, refine, to } from "../router.js";
import { useResource } from "../state/resource.js";

/** @typedef {import("../records.d.ts").Load} Planned */
/** @typedef {import("../records.d.ts").LoadBucket} Bucket */
/** @typedef {import("../records.d.ts").LoadJob} LoadJob */
/** @typedef {import("../records.d.ts").LoadAt} LoadAt */

const WIDTHS = /** @type {Record<string, string>} */ ({ "24h": "5m", "7d": "1h" });
const PERIODS = /** @type {Record<string, string>} */ ({ "5m": "5 minutes", "1h": "one hour" });
const MEASURES = [["starts", "starts"], ["busy", "busy slots"]];
const SHOWN = 20;
/** The server lists this many jobs of a period. */
const BOUND = 200;

/** The period in which a measure is highest. The server names that of the starts.
 * @param {Planned} load @param {"starts" | "busy"} measure */
function peakOf(load, measure) {
  return measure === "starts" || load.partial ? load.peak : load.items.reduce((most, each) => (each.busy > most.busy ? each : most), load.items[0]);
}

/** @param {HTMLElement | null} table @param {KeyboardEvent} event */
function move(table, event) {
  const steps = /** @type {Record<string, [number, number]>} */ ({ ArrowRight: [0, 1], ArrowLeft: [0, -1], ArrowDown: [1, 0], ArrowUp: [-1, 0], Home: [0, -99], End: [0, 99] });
  const step = steps[event.key];
  const cell = document.activeElement?.closest("td");
  if (!step || !cell || !table) return;
  event.preventDefault();
  const rows = [...table.querySelectorAll("tbody tr")].map((row) => [...row.querySelectorAll("td")]);
  const y = rows.findIndex((row) => row.includes(cell));
  const x = rows[y].indexOf(cell);
  const row = rows[Math.min(Math.max(y + step[0], 0), rows.length - 1)];
  row[Math.min(Math.max(x + step[1], 0), row.length - 1)]?.querySelector("button")?.focus();
}

/** @param {{ load: Planned, measure: "starts" | "busy", width: number, chosen: string | null, isPast?: boolean }} given */
function Heat({ load, measure, width, chosen, isPast = false }) {
  const table = useRef(/** @type {HTMLElement | null} */ (null));
  const zone = zoneOf();
  const { columns, rows } = useMemo(() => heatOf(load.items, width, zone), [load, width, zone]);
  const most = Math.max(...load.items.map((each) => each[measure]), measure === "busy" ? load.capacity : 1);
  const outlined = chosen ?? peakOf(load, measure)?.at;
  const stop = outlined ?? load.items[0]?.at;
  return html`<div class="heat"><table ref=${table} aria-label=${isPast ? `what ended, in ${zone}` : `load ahead in ${zone}`} onKeyDown=${(/** @type {KeyboardEvent} */ e) => move(table.current, e)}>
    <thead><tr><td></td>${columns.map((each) => html`<th scope="col">${each}</th>`)}</tr></thead>
    <tbody>${rows.map((row) => html`<tr><th scope="row">${row.label}</th>${row.cells.map((cell) => html`<td>${cell && Cell({ cell, measure, most, capacity: load.capacity, isChosen: cell.at === outlined, isStop: cell.at === stop, isPast, isPartial: load.partial })}</td>`)}</tr>`)}</tbody></table><p class="scale muted"><span>none</span>${[0, 1, 2, 3, 4, 5].map((step) => html`<i class=${`heat-${step}`}></i>`)}<span>${Math.round(most).toLocaleString("en-GB")} ${isPast ? "ended" : measure === "busy" ? "slots" : "starts"}</span>${measure === "busy" && load.items.some((each) => load.capacity > 0 && each.busy > load.capacity) && html`<span>▲ more than ${load.capacity} slots</span>`}</p></div>`;
}

/** @param {{ cell: Bucket, measure: "starts" | "busy", most: number, capacity: number, isChosen: boolean, isStop: boolean, isPast: boolean, isPartial: boolean }} given */
function Cell({ cell, measure, most, capacity, isChosen, isStop, isPast, isPartial }) {
  const isOver = measure === "busy" && capacity > 0 && cell.busy > capacity;
  const label = isPast ? `${cell.at}: ${cell.starts} ended` : isPartial ? `${cell.at}: at least ${cell.starts} starts` : `${cell.at}: ${cell.starts} starts, ${cell.busy.toFixed(1)} slots busy${isOver ? `, more than ${capacity}` : ""}`;
  return html`<button class=${`heat-${stepOf(cell[measure], most)} ${isOver ? "over" : ""}`} tabindex=${isStop ? 0 : -1} aria-pressed=${isChosen} aria-label=${label} title=${label}
    onClick=${() => refine({ at: cell.at })}>${isOver ? "▲" : ""}</button>`;
}

const COLUMNS = [
  { name: "Job", cell: (/** @type {LoadJob} */ it) => html`<a href=${jobNamed(it.name)}>${it.name}</a>` },
  { name: "Starts", number: true, cell: (/** @type {LoadJob} */ it) => it.starts },
  { name: "First", tight: true, cell: (/** @type {LoadJob} */ it) => html`<${When} at=${it.first} plain />` },
  { name: "Schedule", tight: true, cell: (/** @type {LoadJob} */ it) => html`<span class="muted">${it.movable ? "movable" : "pinned"}</span>` },
];

/** @param {{ at: string, width: number, filter: Record<string, any> }} given */
function Chosen({ at, width, filter }) {
  const until = new Date(Date.parse(at) + width).toISOString();
  const jobs = useResource("/v1/load/at", { from: at, to: until, ...filter });
  return html`<section class="panel" aria-label="the chosen period"><header><h2><${When} at=${at} /></h2></header><div class="body"><${Loaded} of=${jobs}>${(/** @type {LoadAt} */ found) => found.items.length
    ? html`<div class="stack"><p>${found.starts.toLocaleString("en-GB")} starts of ${found.items.length >= BOUND && found.starts > found.items.reduce((sum, each) => sum + each.starts, 0) ? `more than ${BOUND}` : found.items.length} ${found.items.length === 1 ? "job" : "jobs"}${found.items.length > SHOWN ? `, of which ${SHOWN} are listed` : ""}</p><${Table} label="jobs of the period" columns=${COLUMNS} rows=${found.items.slice(0, SHOWN)} id=${(/** @type {LoadJob} */ it) => it.name} /></div>`
    : html`<${Empty}>Nothing starts in it.</${Empty}>`}</${Loaded}></div></section>`;
}

const OUTCOMES = /** @type {const} */ (["succeeded", "failed", "missed", "skipped", "cancelled"]);

/** The runs of a period that ended like this. Lists know when a run was due, not when it ended.
 * @param {string} at @param {number} width @param {string} state @param {string} [queue] */
function runsOf(at, width, state, queue) {
  const words = [`since:${at}`, `until:${new Date(Date.parse(at) + width).toISOString()}`, queue && `queue:${queue}`];
  return to("/runs", { state, q: words.filter(Boolean).join(" ") });
}

/** What ended in the past day or week, by period, as the tallies have it.
 * @param {{ span: string, chosen: string | null, queue?: string }} given */
function Past({ span, chosen, queue }) {
  const bucket = WIDTHS[span] ?? "5m";
  const tallies = useResource("/v1/tallies", { since: since(span), bucket, queue, whole: true }, (news) => news.more);
  return html`<${Loaded} of=${tallies}>${(/** @type {import("../records.d.ts").Tallies} */ found) => {
    const items = found.items.map((each) => ({ at: each.at, starts: OUTCOMES.reduce((sum, name) => sum + (each[name] ?? 0), 0), busy: 0 }));
    const peak = items.reduce((most, each) => (each.starts > most.starts ? each : most), items[0]);
    if (!peak?.starts) return html`<${Empty}>Nothing ended in this span.</${Empty}>`;
    const shown = found.items.find((each) => each.at === chosen) ?? found.items[items.indexOf(peak)];
    const load = { items, bucket, capacity: 0, jobs: 0, peak, partial: found.partial };
    return html`<div class="stack"><p>Most ended <strong><${When} at=${peak.at} /></strong>: ${peak.starts.toLocaleString("en-GB")} in ${PERIODS[bucket] ?? bucket}.</p>
      <div class="beside"><${Heat} load=${load} measure="starts" width=${lengthOf(bucket)} chosen=${shown.at} isPast=${true} />
        <section class="panel" aria-label="the chosen period"><header><h2><${When} at=${shown.at} /></h2></header><div class="body"><dl class="facts">${OUTCOMES.map((name) => html`<dt class=${shown[name] ? "" : "none"}><${Badge} state=${name} /></dt><dd>${shown[name] && name !== "missed" ? html`<a href=${runsOf(shown.at, lengthOf(bucket), name, queue)}>${shown[name].toLocaleString("en-GB")}</a>` : (shown[name] ?? 0).toLocaleString("en-GB")}</dd>`)}</dl><p class="muted">The links lead to the runs that were due in it; some of them ended later.</p></div></section></div></div>`;
  }}</${Loaded}>`;
}

/** @param {{ name: string, words: URLSearchParams }} given */
function FilterBy({ name, words }) {
  return html`<input aria-label=${name} placeholder=${name} value=${words.get(name) ?? ""} onChange=${(/** @type {any} */ e) => refine({ [name]: e.target.value })} />`;
}

export default function LoadPage() {
  const words = place.value.query;
  const span = words.get("span") ?? "24h";
  const isPast = words.get("when") === "past";
  const views = html`<nav class="spans" aria-label="when">${[["", "coming"], ["past", "past"]].map(([each, name]) => html`<a href=${to("/load", { ...Object.fromEntries(words), when: each, at: "" })} aria-current=${(each === "past") === isPast ? "true" : null}>${name}</a>`)}</nav>`;
  const spans = html`<${Spans} chosen=${span} choices=${["24h", "7d"]} />`;
  if (isPast) return html`<${Head} title="Load" /><div class="toolbar">${views}${spans}<${FilterBy} name="queue" words=${words} /></div><${Past} span=${span} chosen=${words.get("at")} queue=${words.get("queue") || undefined} />`;
  return html`<${Ahead} words=${words} span=${span} views=${[views, spans]} />`;
}

/** @param {{ words: URLSearchParams, span: string, views: any }} given */
function Ahead({ words, span, views }) {
  const measure = words.get("measure") === "busy" ? "busy" : "starts";
  const filter = { queue: words.get("queue") ?? undefined, tag: words.get("tag") ?? undefined };
  const width = lengthOf(WIDTHS[span] ?? "5m");
  const from = new Date(Math.floor(now().getTime() / width) * width);  // Nothing starts in a period that is over.
  const load = useResource("/v1/load", { from: from.toISOString(), to: new Date(from.getTime() + lengthOf(span)).toISOString(), bucket: WIDTHS[span] ?? "5m", ...filter }, (news) => news.more);
  const named = Object.entries(filter).filter(([, value]) => value).map(([name, value]) => `${name} ${value}`);
  return html`<${Head} title="Load" /><div class="toolbar">${views}
      <nav class="spans" aria-label="measure">${MEASURES.map(([each, name]) => html`<a href=${to("/load", { ...Object.fromEntries(words), measure: each })} aria-current=${each === measure ? "true" : null}>${name}</a>`)}</nav>
      ${["queue", "tag"].map((name) => html`<${FilterBy} name=${name} words=${words} />`)}</div>
    <${Loaded} of=${load}>${(/** @type {Planned} */ found) => found.items.length === 0 || !found.peak
      ? html`<${Empty}>Nothing${named.length > 0 && ` of ${named.join(" and ")}`} is planned in this span.${named.length > 0 && html` <a href=${to("/load", { ...Object.fromEntries(words), queue: "", tag: "" })}>Clear the filters</a>`}</${Empty}>`
      : html`<div class="stack"><p>${found.partial && html`<span class="s-warning">Cut short after two seconds: other jobs start in these periods, too.</span> `}<${Peak} load=${found} measure=${measure} /></p>
        <div class="beside"><${Heat} load=${found} measure=${measure} width=${width} chosen=${words.get("at")} /><${Chosen} at=${words.get("at") ?? peakOf(found, measure)?.at} width=${width} filter=${filter} /></div>
        <p class="muted">${(found.quiet ?? []).filter((each) => Date.parse(each.at) > now().getTime()).map((each, n) => html`${n ? " · " : "Quiet: "}<${When} at=${each.at} /> for ${length(Date.parse(each.until) - Date.parse(each.at))}, ${each.starts.toLocaleString("en-GB")} starts`)}</p>
        <${SpreadPanel} body=${{ from: from.toISOString(), to: new Date(from.getTime() + 86_400_000).toISOString(), ...filter }} done=${load.reload} /></div>`}</${Loaded}>`;
}

/** The fullest period of a measure, in a sentence. An answer that was cut short knows no more than how many starts there are at least.
 * @param {{ load: Planned, measure: "starts" | "busy" }} given */
function Peak({ load, measure }) {
  const peak = peakOf(load, measure);
  if (!peak) return null;
  const starts = `${load.partial ? "at least " : ""}${peak.starts.toLocaleString("en-GB")} starts`;
  const slots = load.capacity === 0 ? "and no worker has a slot" : peak.busy > load.capacity ? `which need ${peak.busy.toFixed(1)} slots of ${load.capacity}` : `${peak.busy.toFixed(1)} of ${load.capacity} slots busy`;
  const text = load.partial ? starts : measure === "busy" ? `${peak.busy.toFixed(1)} slots busy${load.capacity === 0 ? ", and no worker has a slot" : ` of ${load.capacity}`}, ${starts}` : `${starts}, ${slots}`;
  return html`${measure === "busy" && !load.partial ? "Most slots are busy in" : "Peak of"} ${PERIODS[load.bucket] ?? load.bucket} <strong><${When} at=${peak.at} /></strong>: ${text} · ${load.partial ? "at least " : ""}${load.jobs.toLocaleString("en-GB")} jobs`;
}
