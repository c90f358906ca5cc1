"""Definitions of jobs and their firings, as PostgreSQL has them: what both stores do alike is in `rows`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from mainspring.core.model import Job, NewRun
from mainspring.core.planning.plans import PlannedFiring
from mainspring.core.runs.outcome import Next
from mainspring.core.states import State
from mainspring.store import Audit
from mainspring.stores.postgres.definitions.job_rows import hold_jobs, lock_changes, mark_changed
from mainspring.stores.postgres.ends.endings import cancel_run, end_unstarted
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.postgres.submissions.intake import insert_runs
from mainspring.stores.rows.definitions import StoredJobs
from mainspring.stores.rows.firing import FiringKeys, FiringRow
from mainspring.stores.rows.job_rows import job_values
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "jobs")
_FIRINGS = load_queries("postgres", "firings")
_REVISED = ("task", "trigger", "args", "queue", "priority", "key", "limit", "policy", "options", "next_fire_at")

T = TypeVar("T")


class Jobs(StoredJobs[Transaction]):
    """See `store.JobStore`."""

    _db: Database

    async def backfill(
        self, job: Job, firings: Sequence[PlannedFiring], *, audit: Audit[list[str]] | None = None
    ) -> list[str]:
        return await self._schedule(lambda tx: self._backfill(tx, job, firings), audit, size=len(firings))

    async def _define(
        self, work: Callable[[Transaction], Awaitable[T]], *, size: int | None = 1, again: bool = False
    ) -> T:
        if size is None:
            return await self._db.write(work, patient=True)
        return await self._db.schedule(lambda: self._db.write(work, patient=True), size=size, again=again)

    async def _compare(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._db.read(work)

    async def _lock_changes(self, tx: Transaction) -> None:
        await lock_changes(tx)

    async def _hold(self, tx: Transaction, ids: Collection[str]) -> list[Job]:
        return await hold_jobs(tx, ids)

    async def _held(self, tx: Transaction, jobs: Sequence[Job]) -> list[Job]:
        return await hold_jobs(tx, [job.id for job in jobs])

    async def _save(self, tx: Transaction, created: Sequence[Job], revised: Sequence[Job]) -> None:
        await tx.many(_Q["insert"], [tuple(job_values(job).values()) for job in created])
        rows = []
        for job in revised:
            stored = job_values(job)
            values = [stored[name] for name in _REVISED]
            rows.append((job.id, job.version, *values, job.updated_at, job.origin, job.source))
        await tx.many(_Q["revise"], rows)
        await mark_changed(tx, [job.id for job in (*created, *revised)])

    async def _mark_changed(self, tx: Transaction, ids: Sequence[str]) -> None:
        await mark_changed(tx, ids)

    async def _write_firings(self, tx: Transaction, rows: Sequence[FiringRow]) -> FiringKeys:
        columns = [list(column) for column in zip(*rows, strict=True)]
        return {tuple(row) for row in await tx.fetch(_FIRINGS["record"], *columns)}

    async def _insert_runs(self, tx: Transaction, runs: Sequence[NewRun]) -> None:
        await insert_runs(tx, runs)

    async def _cancel_run(self, tx: Transaction, run_id: str, reason: str) -> State | None:
        return await cancel_run(tx, run_id, reason)

    async def _end_unstarted(self, tx: Transaction, ends: Sequence[tuple[str, Next]]) -> None:
        await end_unstarted(tx, ends)
