/** Timeline: what ran, what runs and what is planned, on one axis. */
import { lookOf } from "../draw/text.js";
import { html, useMemo } from "../html.js";
import { Lanes } from "../parts/lanes.js";
import { Empty, Head, Loaded } from "../parts/page.js";
import { lengthOf, now, since, Spans } from "../parts/when.js";
import { place, to } from "../router.js";
import { useResource } from "../state/resource.js";

/** @typedef {import("../records.d.ts").Spans} SpanPage */

const MOST_LANES = 60;
const AHEAD = 0.2;
const BY = [["name", "jobs"], ["worker", "workers"]];
const BAD = ["failed", "missed", "lost", "timed_out"];

/** @param {SpanPage} found @param {any[]} next @param {"name" | "worker"} by @param {number} until @param {number} end */
function lanesOf(found, next, by, until, end) {
  /** @type {Map<string, import("../draw/lanes.js").Bar[]>} */
  const rows = new Map();
  const put = (/** @type {string} */ name, /** @type {import("../draw/lanes.js").Bar} */ bar) => rows.set(name, [...(rows.get(name) ?? []), bar]);
  for (const each of found.items) {
    const [from, to] = [Date.parse(each.began_at), each.ended_at ? Date.parse(each.ended_at) : until];
    put(each[by] ?? "–", { from, to, id: each.run_id, state: each.state, title: `${each.name} …${each.run_id.slice(-8)}: ${lookOf(each.state).word}, ${((to - from) / 1000).toFixed(1)} s${each.worker ? ` on ${each.worker}` : ""}` });
  }
  for (const job of by === "name" ? next : []) {
    const at = Date.parse(job.next_fire_at);
    if (at <= end) put(job.name, { from: at, to: at, id: "", state: "planned", title: `${job.name} is planned for ${job.next_fire_at}` });
  }
  const worst = (/** @type {import("../draw/lanes.js").Bar[]} */ bars) => bars.filter((bar) => BAD.includes(bar.state)).length;
  const has = (/** @type {import("../draw/lanes.js").Bar[]} */ bars, /** @type {string} */ state) => Number(bars.some((bar) => bar.state === state));
  const rank = (/** @type {import("../draw/lanes.js").Bar[]} */ bars) => 2 * has(bars, "running") + has(bars, "planned");
  return [...rows].map(([label, bars]) => ({ label, bars })).sort((one, other) => worst(other.bars) - worst(one.bars) || rank(other.bars) - rank(one.bars) || other.bars.length - one.bars.length);
}

export default function Timeline() {
  const span = place.value.query.get("span") ?? "1h";
  const by = place.value.query.get("by") === "worker" ? "worker" : "name";
  const spans = useResource("/v1/timeline", { since: since(span) }, (news) => news.more || news.runs.size > 0);
  const next = useResource("/v1/jobs", { sort: "next", state: "active", fields: "row", limit: 15 }, (news) => news.more || news.jobs.size > 0);
  const until = Math.ceil(now().getTime() / 15_000) * 15_000;
  const end = until + lengthOf(span) * AHEAD;
  const lanes = useMemo(() => (spans.data ? lanesOf(spans.data, next.data?.items ?? [], by, until, end) : []), [spans.data, next.data, by, until]);
  return html`<${Head} title="Timeline" /><div class="toolbar"><${Spans} chosen=${span} choices=${["15m", "1h", "6h", "24h", "7d"]} />
      <nav class="spans" aria-label="rows">${BY.map(([each, name]) => html`<a href=${to("/timeline", { ...Object.fromEntries(place.value.query), by: each })} aria-current=${each === by ? "true" : null}>${name}</a>`)}</nav></div>
    <${Loaded} of=${spans}>${(/** @type {SpanPage} */ found) => lanes.length === 0
      ? html`<${Empty}>Nothing ran in this span, and nothing is planned soon.</${Empty}>`
      : html`<section class="panel"><div class="body"><${Lanes} lanes=${lanes.slice(0, MOST_LANES)} from=${until - lengthOf(span)} to=${end} label="runs over time" href=${(/** @type {string} */ id) => to(`/runs/${id}`)} />
        ${lanes.length > MOST_LANES && html`<p class="muted">${lanes.length - MOST_LANES} more rows without failures that are not shown.</p>`}${found.partial && html`<p class="muted">${(found.left_out ?? 0).toLocaleString("en-GB")} of ${(found.events ?? 0).toLocaleString("en-GB")} events are left out; failures are not. A shorter span shows all.</p>`}</div></section>`}</${Loaded}>`;
}
