/** Timeline: what ran, what runs and what is planned, on one axis. */
import { packed } from "../draw/lanes.js";
import { length, lookOf } from "../draw/text.js";
import { html, useMemo, useState } from "../html.js";
import { Lanes } from "../parts/lanes.js";
import { Badge, Empty, Head, Loaded } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { lengthOf, now, since, Spans, When } from "../parts/when.js";
import { place, runHref, to } from "../router.js";
import { useResource } from "../state/resource.js";

/** @typedef {import("../records.d.ts").Spans} SpanPage */

const MOST_LANES = 60;
/** What runs at the same time in one row of jobs, workers, queues or tags is drawn in at most this many lanes. */
const MOST_BESIDE = 8;
const AHEAD = 0.2;
const BY = [["name", "jobs"], ["worker", "workers"], ["queue", "queues"], ["tag", "tags"]];
const SPANS = ["1m", "15m", "1h", "6h", "24h", "7d", "30d"];
/** A table lists the newest this many. */
const MOST_ROWS = 500;
const FIRST_ROWS = 100;
const BAD = ["failed", "missed", "lost", "timed_out"];

/** The rows that an attempt stands in: one for each tag.
 * @param {import("../records.d.ts").Span} span @param {string} by @returns {string[]} */
function rowsOf(span, by) {
  if (by === "tag") return span.tags?.length ? span.tags : ["–"];
  return [(by === "name" ? span.name : by === "worker" ? span.worker : span.queue) ?? "–"];
}

/** @param {SpanPage} found @param {any[]} next @param {string} by @param {number} until @param {number} end */
function lanesOf(found, next, by, until, end) {
  /** @type {Map<string, import("../draw/lanes.js").Bar[]>} */
  const rows = new Map();
  const put = (/** @type {string} */ name, /** @type {import("../draw/lanes.js").Bar} */ bar) => rows.set(name, [...(rows.get(name) ?? []), bar]);
  for (const each of found.items) {
    const [from, to] = [Date.parse(each.began_at), each.ended_at ? Date.parse(each.ended_at) : Math.min(now().getTime(), until)];
    for (const row of rowsOf(each, by)) put(row, { from, to, id: each.run_id, state: each.state, title: `${each.name} …${each.run_id.slice(-8)}: ${lookOf(each.state).word}, ${((to - from) / 1000).toFixed(1)} s${each.worker ? ` on ${each.worker}` : ""}` });
  }
  for (const job of by === "name" ? next : []) {
    const at = Date.parse(job.next_fire_at);
    if (at <= end) put(job.name, { from: at, to: at, id: "", state: "planned", title: `${job.name} is planned for ${job.next_fire_at}` });
  }
  const worst = (/** @type {import("../draw/lanes.js").Bar[]} */ bars) => bars.filter((bar) => BAD.includes(bar.state)).length;
  const has = (/** @type {import("../draw/lanes.js").Bar[]} */ bars, /** @type {string} */ state) => Number(bars.some((bar) => bar.state === state));
  const rank = (/** @type {import("../draw/lanes.js").Bar[]} */ bars) => 2 * has(bars, "running") + has(bars, "planned");
  const sorted = [...rows].map(([label, bars]) => ({ label, bars })).sort((one, other) => worst(other.bars) - worst(one.bars) || rank(other.bars) - rank(one.bars) || other.bars.length - one.bars.length);
  return sorted.flatMap(({ label, bars }) => packed(bars, MOST_BESIDE).map((own, n) => ({ label: n ? "" : label, bars: own })));
}

const COLUMNS = [
  { name: "Job or task", lead: true, cell: (/** @type {any} */ it) => it.name },
  { name: "Run", tight: true, cell: (/** @type {any} */ it) => html`<a class="id" href=${runHref(it)}>${it.run_id.slice(-8)}</a>` },
  { name: "State", tight: true, cell: (/** @type {any} */ it) => html`<${Badge} state=${it.state} />` },
  { name: "Began", tight: true, cell: (/** @type {any} */ it) => html`<${When} at=${it.began_at} />` },
  { name: "Took", tight: true, number: true, cell: (/** @type {any} */ it) => (it.ended_at ? length(Date.parse(it.ended_at) - Date.parse(it.began_at)) : "–") },
  { name: "Worker", tight: true, cell: (/** @type {any} */ it) => html`<span class="mono">${it.worker ?? "–"}</span>` },
];

/** The same attempts as text, the newest first.
 * @param {{ found: SpanPage, by: string }} given */
function AsTable({ found, by }) {
  const [shown, setShown] = useState(FIRST_ROWS);
  const all = found.items.slice(-MOST_ROWS).reverse();
  const rows = all.slice(0, shown);
  const own = by === "queue" || by === "tag" ? [{ name: by === "queue" ? "Queue" : "Tags", cell: (/** @type {any} */ it) => rowsOf(it, by).join(", ") }] : [];
  return html`<div class="stack"><${Table} label="attempts" columns=${[...COLUMNS, ...own]} rows=${rows} id=${(/** @type {any} */ it) => `${it.run_id} ${it.attempt}`} href=${runHref} more=${all.length > rows.length ? () => setShown(shown + FIRST_ROWS) : undefined} />
    ${found.items.length > all.length && html`<p class="muted">The newest ${all.length} of ${found.items.length.toLocaleString("en-GB")} attempts. A shorter span shows all.</p>`}</div>`;
}

export default function Timeline() {
  const span = place.value.query.get("span") ?? "1h";
  const by = BY.map(([each]) => each).find((each) => each === place.value.query.get("by")) ?? "name";
  const isTable = place.value.query.get("view") === "table";
  const spans = useResource("/v1/timeline", { since: since(span), ...(by === "queue" || by === "tag" ? { jobs: true } : {}) }, (news) => news.more || news.runs.size > 0);
  const next = useResource("/v1/jobs", { sort: "next", state: "active", fields: "row", limit: 15 }, (news) => news.more || news.jobs.size > 0);
  const until = Math.ceil(now().getTime() / 15_000) * 15_000;
  const end = until + (by === "name" ? lengthOf(span) * AHEAD : 0);
  const lanes = useMemo(() => (spans.data ? lanesOf(spans.data, next.data?.items ?? [], by, until, end) : []), [spans.data, next.data, by, until]);
  return html`<${Head} title="Timeline" /><div class="toolbar"><${Spans} chosen=${span} choices=${SPANS} />
      <nav class="spans" aria-label="rows">${BY.map(([each, name]) => html`<a href=${to("/timeline", { ...Object.fromEntries(place.value.query), by: each })} aria-current=${each === by ? "true" : null}>${name}</a>`)}</nav>
      <nav class="spans" aria-label="view">${[["", "drawing"], ["table", "table"]].map(([each, name]) => html`<a href=${to("/timeline", { ...Object.fromEntries(place.value.query), view: each })} aria-current=${(each === "table") === isTable ? "true" : null}>${name}</a>`)}</nav></div>
    <${Loaded} of=${spans}>${(/** @type {SpanPage} */ found) => lanes.length === 0
      ? html`<${Empty}>Nothing ran in this span, and nothing is planned soon.</${Empty}>`
      : isTable ? html`<${AsTable} found=${found} by=${by} />` : html`<section class="panel"><div class="body"><${Lanes} lanes=${lanes.slice(0, MOST_LANES)} from=${until - lengthOf(span)} to=${end} label="runs over time" href=${(/** @type {string} */ id) => to(`/runs/${id}`)} />
        ${lanes.length > MOST_LANES && html`<p class="muted">${lanes.length - MOST_LANES} more rows${lanes.slice(MOST_LANES).some(({ bars }) => bars.some((bar) => BAD.includes(bar.state))) ? "" : " without failures"} that are not shown.</p>`}${found.partial && html`<p class="muted">${(found.left_out ?? 0).toLocaleString("en-GB")} of ${(found.events ?? 0).toLocaleString("en-GB")} events are left out; failures are not. A shorter span shows all.</p>`}</div></section>`}</${Loaded}>`;
}
