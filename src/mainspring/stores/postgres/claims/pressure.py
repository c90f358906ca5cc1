"""Backlog and shedding: how much waits, and skipping the least important runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from mainspring.core.answers import Connections
from mainspring.core.instants import Duration
from mainspring.core.load.degradation import SHED_FROM, hurried_why, shed_end
from mainspring.core.model import Event
from mainspring.store import Backlog, Strain
from mainspring.stores.postgres.claims.lines import wait_less
from mainspring.stores.postgres.definitions.job_rows import lock_changes, mark_changed
from mainspring.stores.postgres.ends.endings import end_unstarted
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "pressure")
_ENDINGS = load_queries("postgres", "endings")
_BACKLOG = load_queries("postgres", "dispatch")["backlog"]


class Pressure:
    """See `store.PressureStore`."""

    _db: Database
    _standbys: int = 0
    _lag: Duration = 0

    async def backlog(self, limit: int) -> list[Backlog]:
        rows, replication = await self._db.read(lambda tx: _look(tx, limit))
        self._standbys, self._lag = replication
        return [each for each in (Backlog(*row) for row in rows) if each.count]

    async def shed(self, namespace: str, reason: str, limit: int) -> int:
        async def work(tx: Transaction) -> int:
            least = await tx.fetch(_Q["least"], SHED_FROM, tx.now, limit, namespace)
            return await end_unstarted(tx, [(row[0], shed_end(reason)) for row in least])

        return await self._db.write(work)

    async def hurry(self, namespace: str | None, reason: str, limit: int) -> int:
        why = hurried_why(reason)
        runs = await self._db.write(lambda tx: _hurry_runs(tx, namespace, why, limit))
        return runs + await self._db.write(lambda tx: _hurry_jobs(tx, namespace, why, limit))

    def strain(self) -> Strain:
        waiting = self._db.waiting
        skew = getattr(self._db.clock, "skew", 0)
        size, in_use, idle, waiters = self._db.count_connections()
        return Strain(
            *(waiting.count, waiting.seconds, waiting.longest_s, skew),
            pool=Connections(size, in_use, idle, waiters, waiting.leaks),
            standbys=self._standbys,
            lag=self._lag,
            troubles=self._db.listener.troubles(),
        )


async def _look(tx: Transaction, limit: int) -> tuple[Sequence[Sequence[Any]], tuple[int, Duration]]:
    """The backlog, and the lag of replicas: both are read for metrics."""
    rows = await tx.fetch(_BACKLOG, tx.now, limit)
    ((standbys, lag),) = await tx.fetch(_Q["replication"])
    return rows, (standbys, lag)


async def _hurry_runs(tx: Transaction, namespace: str | None, reason: str, limit: int) -> int:
    hasty = [row[0] for row in await tx.fetch(_Q["hasty_runs"], tx.now, limit, namespace)]
    # Locked before their edges, as by those whose end frees them: see `endings`.
    waiting = {row[0]: row for row in await tx.fetch(_ENDINGS["lock_unstarted"], hasty)} if hasty else {}
    edges = Counter(row[0] for row in await tx.fetch(_ENDINGS["drop_edges"], list(waiting))) if waiting else Counter()
    if not edges:
        return 0
    await tx.run(_Q["hurry_runs"], list(edges), reason)
    await wait_less(tx, edges)
    for run_id, owner, task, _, job_id, job, fire_at, *_ in (waiting[run_id] for run_id in edges):
        tx.events.append(Event("run.hurried", tx.now, owner, run_id, job_id, job, task, None, fire_at, reason=reason))
    tx.changed = True
    return len(edges)


async def _hurry_jobs(tx: Transaction, namespace: str | None, reason: str, limit: int) -> int:
    if not await tx.fetch(_Q["hasty_jobs"], limit, namespace):
        return 0
    await lock_changes(tx)
    hasty = await tx.fetch(_Q["hasty_jobs"], limit, namespace)
    for job_id, owner, name, task in hasty:
        await tx.run(_ENDINGS["make_due"], tx.now, job_id)
        tx.events.append(Event("job.hurried", tx.now, owner, None, job_id, name, task, reason=reason))
    if hasty:
        await mark_changed(tx, [row[0] for row in hasty])
    return len(hasty)
