"""Backlog and shedding: how much waits, and skipping the least important runs."""

from __future__ import annotations

from mainspring.core.load.degradation import SHED_FROM, hurried_why, shed_end
from mainspring.core.model import Event
from mainspring.store import Backlog, Strain
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.ends.endings import end_unstarted, make_due
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "pressure")
_ENDINGS = load_queries("sqlite", "endings")
_BACKLOG = load_queries("sqlite", "dispatch")["backlog"]


class Pressure:
    """See `store.PressureStore`. On a file there is no pool to wait for, and the clock is the host's own."""

    _db: Database

    async def backlog(self, limit: int) -> list[Backlog]:
        rows = await self._db.look_back(lambda tx: tx.execute(_BACKLOG, (tx.now, limit)).fetchall())
        return [each for each in (Backlog(*row) for row in rows) if each.count]

    async def shed(self, namespace: str, reason: str, limit: int) -> int:
        def work(tx: Transaction) -> int:
            least = tx.execute(_Q["least"], (SHED_FROM, tx.now, limit, namespace)).fetchall()
            return end_unstarted(tx, [(run_id, shed_end(reason)) for (run_id,) in least])

        return await self._db.write(work)

    async def hurry(self, namespace: str | None, reason: str, limit: int) -> int:
        why = hurried_why(reason)

        def work(tx: Transaction) -> int:
            return _hurry_runs(tx, namespace, why, limit) + _hurry_jobs(tx, namespace, why, limit)

        return await self._db.write(work)

    def strain(self) -> Strain:
        return Strain(troubles=self._db.troubles())


def _hurry_runs(tx: Transaction, namespace: str | None, reason: str, limit: int) -> int:
    hasty = tx.execute(_Q["hasty_runs"], (tx.now, limit, namespace)).fetchall()
    for run_id, owner, task, job_id, job, fire_at in hasty:
        tx.execute(_Q["hurry_run"], (reason, run_id))
        edges = tx.execute(_ENDINGS["drop_edges"], (run_id,)).rowcount
        tx.execute(_ENDINGS["wait_less"], (edges, run_id))
        tx.events.append(Event("run.hurried", tx.now, owner, run_id, job_id, job, task, None, fire_at, reason=reason))
        tx.changed = True
    return len(hasty)


def _hurry_jobs(tx: Transaction, namespace: str | None, reason: str, limit: int) -> int:
    hasty = tx.execute(_Q["hasty_jobs"], (limit, namespace)).fetchall()
    for job_id, owner, name, task in hasty:
        make_due(tx, job_id)
        tx.events.append(Event("job.hurried", tx.now, owner, None, job_id, name, task, reason=reason))
    return len(hasty)
