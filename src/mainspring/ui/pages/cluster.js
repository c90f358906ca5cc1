/** Cluster: which node leads, which led before, and how long none did. */
import { length } from "../draw/text.js";
import { html, useMemo } from "../html.js";
import { Lanes } from "../parts/lanes.js";
import { Badge, Empty, Head, Loaded } from "../parts/page.js";
import { Table } from "../parts/table.js";
import { now, When } from "../parts/when.js";
import { useResource } from "../state/resource.js";

/** @typedef {import("../records.d.ts").Term} Term */
/** @typedef {import("../records.d.ts").Cluster} ClusterState */
/** @typedef {import("../records.d.ts").Node} Node */
/** @typedef {import("../records.d.ts").Versions} Versions */
/** @typedef {import("../records.d.ts").ProcessVersion} ProcessVersion */

const EVERY_MS = 2_000;
const SLOWLY_MS = 15_000;
const SHOWN = 200;
/** Clocks that differ more than this are worth a look. */
const SKEWED_S = 0.5;

const NODES = [
  { name: "Node", cell: (/** @type {Node} */ it) => html`<span class="mono">${it.node}</span>` },
  { name: "State", tight: true, cell: (/** @type {Node & { leads: boolean }} */ it) => html`<${Badge} state=${!it.alive ? "dead" : it.leads ? "leads" : it.coordination === "leader" ? "stands_by" : "active"} />` },
  { name: "Plans by", tight: true, cell: (/** @type {Node} */ it) => it.coordination },
  { name: "Checked in", tight: true, cell: (/** @type {Node} */ it) => html`<${When} at=${it.checked_in_at} plain />` },
  { name: "Started", tight: true, cell: (/** @type {Node} */ it) => html`<${When} at=${it.started_at} plain />` },
  { name: "Clock", tight: true, number: true, cell: (/** @type {Node} */ it) => (it.skew_s == null || !it.alive ? "–" : html`<span class=${Math.abs(it.skew_s) > SKEWED_S ? "s-warning" : ""}>${Math.abs(it.skew_s) < 0.0005 ? "" : it.skew_s < 0 ? "−" : "+"}${length(Math.abs(it.skew_s) < 0.0005 ? 0 : it.skew_s * 1000)}</span>`) },
  { name: "Loops", cell: (/** @type {Node} */ it) => (it.alive ? Loops(it.loops ?? {}) : "–") },
];

/** The leading node, the other living ones in the order in which they started, and those that died last. A node that checks in keeps its place.
 * @param {(Node & { leads: boolean })[]} nodes */
function inOrder(nodes) {
  const since = (/** @type {Node} */ it) => (it.alive ? Date.parse(it.started_at) : -Date.parse(it.checked_in_at));
  return nodes.sort((one, other) => Number(other.leads) - Number(one.leads) || Number(other.alive) - Number(one.alive) || since(one) - since(other));
}

/** What is wrong with the loops of a node, if anything is.
 * @param {Record<string, string>} loops */
function Loops(loops) {
  const bad = Object.entries(loops).filter(([, fault]) => fault);
  return bad.length ? html`<span class="s-warning">${bad.map(([name, fault]) => `${name}: ${fault}`).join("; ")}</span>` : html`<span class="muted">${Object.keys(loops).length ? "all well" : "–"}</span>`;
}

const TERMS = [
  { name: "Term", tight: true, number: true, cell: (/** @type {any} */ it) => it.number },
  { name: "Of", tight: true, cell: (/** @type {any} */ it) => it.name },
  { name: "Leader", lead: true, cell: (/** @type {any} */ it) => html`<span class="mono clamp" title=${it.owner}>${it.owner}</span>` },
  { name: "Began", tight: true, cell: (/** @type {any} */ it) => html`<${When} at=${it.began_at} />` },
  { name: "Ended", tight: true, cell: (/** @type {any} */ it) => (it.ended_at ? html`<${When} at=${it.ended_at} />` : html`<${Badge} state="leads" />`) },
  { name: "No leader before", tight: true, number: true, cell: (/** @type {any} */ it) => (it.gap_s == null ? "–" : html`<span class=${it.gap_s > 1 ? "s-warning" : ""}>${length(it.gap_s * 1000)}</span>`) },
  { name: "Why it ended", cell: (/** @type {any} */ it) => it.reason && html`<span class="muted">${it.reason}</span>` },
];

const PROCESSES = [
  { name: "Process", cell: (/** @type {ProcessVersion} */ it) => html`<span class="mono">${it.process}</span>` },
  { name: "Kind", tight: true, cell: (/** @type {ProcessVersion} */ it) => it.kind },
  { name: "Version", tight: true, cell: (/** @type {ProcessVersion} */ it) => it.version || "unknown" },
  { name: "Started", tight: true, cell: (/** @type {ProcessVersion} */ it) => html`<${When} at=${it.started_at} />` },
];

/** Which versions run. A database that is behind its server needs a migration. What keeps the whole page from its answers is said above.
 * @param {{ isAway: boolean }} given */
function Running({ isAway }) {
  const versions = useResource("/v1/versions", undefined, undefined, SLOWLY_MS);
  if (isAway && versions.error) return null;
  return html`<${Loaded} of=${versions}>${(/** @type {Versions} */ found) => html`<h2 class="below">Versions</h2>
    <p class="below-text">${found.schema < found.newest_schema ? html`<${Badge} state="late" word=${`The schema is ${found.schema}, and this server knows ${found.newest_schema}`} />: run <code>mainspring db migrate</code>.` : html`<span class="muted">The server is ${found.version}, the schema ${found.schema}.</span>`}</p>
    <${Table} label="processes" columns=${PROCESSES} rows=${found.processes} id=${(/** @type {ProcessVersion} */ it) => `${it.kind} ${it.process}`} />`}</${Loaded}>`;
}

/** @param {{ terms: any[] }} given */
function History({ terms }) {
  const until = Math.ceil(now().getTime() / 5_000) * 5_000;
  const { lanes, from } = useMemo(() => {
    const owners = [...new Set(terms.map((each) => each.owner))];
    const begin = Math.min(...terms.map((each) => Date.parse(each.began_at)));
    return {
      from: begin - (until - begin) * 0.02 - 1000,
      lanes: owners.map((owner) => ({
        label: owner,
        bars: terms.filter((each) => each.owner === owner).map((each) => ({
          from: Date.parse(each.began_at), to: each.ended_at ? Date.parse(each.ended_at) : until, id: "", state: each.ended_at ? "stopped" : "leads",
          title: `${owner}: term ${each.number}${each.gap_s == null ? "" : `, ${length(each.gap_s * 1000)} without a leader before it`}${each.reason ? `, ended: ${each.reason}` : ""}`,
        })),
      })),
    };
  }, [terms.length, terms[0]?.ended_at, until]);
  return html`<section class="panel"><header><h2>Terms</h2></header><div class="body"><${Lanes} lanes=${lanes} from=${from} to=${until} label="terms of leadership" href=${() => ""} /></div></section>`;
}

export default function Cluster() {
  const cluster = useResource("/v1/cluster", { limit: SHOWN }, undefined, EVERY_MS);
  return html`<${Head} title="Cluster" /><${Loaded} of=${cluster}>${(/** @type {ClusterState} */ found) => {
    const { terms, changes = 0, longest_gap_s: longest = null } = found;
    const leader = found.leaders.find((each) => each.name === "scheduler") ?? found.leaders[0];
    return html`
      <div class="cards">
        <section class="panel"><header><h2>Leader</h2></header><div class="body"><div class="figure mono">${leader ? leader.owner : found.nodes.some((it) => it.coordination !== "leader") ? "every node plans" : html`<${Badge} state="failed" word="none" />`}</div>
          <div class="muted">${leader ? html`term ${leader.number}, began <${When} at=${leader.began_at} plain />` : found.nodes.some((it) => it.coordination !== "leader") ? "Jobs are divided among the nodes." : "No node plans firings."}</div></div></section>
        <section class="panel"><header><h2>Changes of the leader</h2></header><div class="body"><div class="figure">${changes}</div>
          <div class="muted">${longest !== null ? html`longest time without a leader: <span class=${longest > 1 ? "s-warning" : ""}>${length(longest * 1000)}</span>` : changes ? "how long there was none is not known" : "none in what is kept"}</div></div></section></div>
      <div class="stack below">
        ${found.nodes.length > 0 && html`<${Table} label="nodes" columns=${NODES} rows=${inOrder(found.nodes.map((each) => ({ ...each, leads: found.leaders.some((one) => one.owner === each.node) })))} id=${(/** @type {Node} */ it) => it.node} />`}
        ${terms.length === 0 ? html`<${Empty} command="mainspring server">No node has led yet.</${Empty}>` : html`<${History} terms=${terms} /><${Table} label="terms" columns=${TERMS} rows=${terms} id=${(/** @type {any} */ it) => `${it.name} ${it.number}`} />`}</div>`;
  }}</${Loaded}><${Running} isAway=${cluster.error !== null} />`;
}
