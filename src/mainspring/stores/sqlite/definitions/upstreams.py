"""Which job fires after which."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cache

from mainspring.core.instants import Instant
from mainspring.core.model import FiringOutcome, Job
from mainspring.core.runs.dependency import combined_outcome
from mainspring.core.runs.graph import check_acyclic
from mainspring.stores.rows.job_rows import check_upstreams_known, to_json, upstream_names
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "jobs")
_FIRINGS = load_queries("sqlite", "firings")


def link(tx: Transaction, namespace: str, jobs: Sequence[Job]) -> None:
    """Point stored jobs at what they now fire after; unknown upstreams and circles are refused.

    Edges that stay keep what they have used. For new ones, what the upstream did so far does not count.
    """
    names = {name for job in jobs for name in upstream_names(job)}
    ids = dict(tx.execute(_Q["ids_by_name"], (namespace, to_json(sorted(names)))).fetchall())
    check_upstreams_known(namespace, jobs, ids)
    kept = [(job.id, to_json([ids[name] for name in upstream_names(job)])) for job in jobs]
    tx.executemany(_Q["drop_edges"], kept)

    @cache
    def newest(upstream_id: str) -> tuple[Instant, FiringOutcome]:
        return _newest_ended(tx, upstream_id)

    edges = [(job.id, ids[name]) for job in jobs for name in upstream_names(job)]
    tx.executemany(_Q["add_edge"], [(job_id, upstream, *newest(upstream)) for job_id, upstream in edges])
    if edges:
        _check_acyclic(tx, namespace)


def _newest_ended(tx: Transaction, job_id: str) -> tuple[Instant, FiringOutcome]:
    row = tx.execute(_Q["newest_ended"], (job_id,)).fetchone()
    if row is None:
        return 0, "fired"
    outcomes = [outcome for (outcome,) in tx.execute(_FIRINGS["outcomes"], (job_id, row[0]))]
    return row[0], combined_outcome(outcomes)


def _check_acyclic(tx: Transaction, namespace: str) -> None:
    graph: Mapping[str, list[str]] = defaultdict(list)
    for name, upstream in tx.execute(_Q["edge_names"], (namespace,)):
        graph[name].append(upstream)
    check_acyclic(graph, "jobs")
