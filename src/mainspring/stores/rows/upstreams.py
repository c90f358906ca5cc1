"""Which job fires after which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from mainspring.core.instants import Instant
from mainspring.core.model import FiringOutcome, Job
from mainspring.core.planning.declaring import upstream_names
from mainspring.core.runs.dependency import combined_outcome
from mainspring.core.runs.graph import check_acyclic
from mainspring.stores.rows.job_rows import check_upstreams_known
from mainspring.stores.rows.transaction import Transaction
from mainspring.stores.sql import load_queries


async def link(tx: Transaction, namespace: str, jobs: Sequence[Job]) -> None:
    """Point stored jobs at what they now fire after; unknown upstreams and circles are refused. To be called where no
    other transaction changes jobs.

    Edges that stay keep what they have used. For new ones, what the upstream did so far does not count.
    """
    queries = load_queries(tx.dialect, "jobs")
    names = sorted({name for job in jobs for name in upstream_names(job)})
    ids: dict[str, str] = dict(await tx.fetch(queries["ids_by_name"], namespace, tx.list_of(names)))
    check_upstreams_known(namespace, jobs, ids)
    kept = [(job.id, tx.list_of([ids[name] for name in upstream_names(job)])) for job in jobs]
    await tx.many(queries["drop_edges"], kept)
    newest = {upstream: await _newest_ended(tx, upstream) for upstream in ids.values()}
    edges = [(job.id, ids[name]) for job in jobs for name in upstream_names(job)]
    await tx.many(queries["add_edge"], [(job_id, upstream, *newest[upstream]) for job_id, upstream in edges])
    if edges:
        graph: Mapping[str, list[str]] = defaultdict(list)
        for name, upstream in await tx.fetch(queries["edge_names"], namespace):
            graph[name].append(upstream)
        check_acyclic(graph, "jobs")


async def _newest_ended(tx: Transaction, job_id: str) -> tuple[Instant, FiringOutcome]:
    fire_at = await tx.fetchval(load_queries(tx.dialect, "jobs")["newest_ended"], job_id)
    if fire_at is None:
        return 0, "fired"
    outcomes = await tx.fetch(load_queries(tx.dialect, "firings")["outcomes"], job_id, fire_at)
    return fire_at, combined_outcome([row[0] for row in outcomes])
