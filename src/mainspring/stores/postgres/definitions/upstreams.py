"""Which job fires after which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

from mainspring.core.instants import Instant
from mainspring.core.model import FiringOutcome, Job
from mainspring.core.runs.dependency import combined_outcome
from mainspring.core.runs.graph import check_acyclic
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.rows.job_rows import check_upstreams_known, upstream_names
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "jobs")
_FIRINGS = load_queries("postgres", "firings")


async def link(tx: Transaction, namespace: str, jobs: Sequence[Job]) -> None:
    """Point stored jobs at what they now fire after; unknown upstreams and circles are refused. To be called under
    `lock_changes`.

    Edges that stay keep what they have used. For new ones, what the upstream did so far does not count.
    """
    names = sorted({name for job in jobs for name in upstream_names(job)})
    ids: dict[str, str] = dict(await tx.fetch(_Q["ids_by_name"], namespace, names))
    check_upstreams_known(namespace, jobs, ids)
    await tx.many(_Q["drop_edges"], [(job.id, [ids[name] for name in upstream_names(job)]) for job in jobs])
    newest = {upstream: await _newest_ended(tx, upstream) for upstream in ids.values()}
    edges = [(job.id, ids[name]) for job in jobs for name in upstream_names(job)]
    await tx.many(_Q["add_edge"], [(job_id, upstream, *newest[upstream]) for job_id, upstream in edges])
    if edges:
        await _check_acyclic(tx, namespace)


async def _newest_ended(tx: Transaction, job_id: str) -> tuple[Instant, FiringOutcome]:
    fire_at = await tx.fetchval(_Q["newest_ended"], job_id)
    if fire_at is None:
        return 0, "fired"
    return fire_at, combined_outcome([row[0] for row in await tx.fetch(_FIRINGS["outcomes"], job_id, fire_at)])


async def _check_acyclic(tx: Transaction, namespace: str) -> None:
    graph: Mapping[str, list[str]] = defaultdict(list)
    for name, upstream in await tx.fetch(_Q["edge_names"], namespace):
        graph[name].append(upstream)
    check_acyclic(graph, "jobs")
