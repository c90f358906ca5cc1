"""Definitions of jobs and their firings, as SQLite has them: what both stores do alike is in `rows`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from mainspring.core.model import Job, NewRun
from mainspring.core.planning.plans import PlannedFiring
from mainspring.core.runs.outcome import Next
from mainspring.core.states import State
from mainspring.store import Audit
from mainspring.stores.rows.definitions import StoredJobs
from mainspring.stores.rows.firing import FiringKeys, FiringRow
from mainspring.stores.rows.job_rows import job_values, read_jobs, to_json
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.ends.endings import cancel_run, end_unstarted
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction, at_once
from mainspring.stores.sqlite.submissions.intake import insert_runs

_Q = load_queries("sqlite", "jobs")
_FIRINGS = load_queries("sqlite", "firings")

T = TypeVar("T")


class Jobs(StoredJobs[Transaction]):
    """See `store.JobStore`. A file has one writer at a time: nothing has to be locked."""

    _db: Database

    async def backfill(
        self, job: Job, firings: Sequence[PlannedFiring], *, audit: Audit[list[str]] | None = None
    ) -> list[str]:
        return await self._schedule(lambda tx: self._backfill(tx, job, firings), audit)

    async def _define(
        self, work: Callable[[Transaction], Awaitable[T]], *, size: int | None = 1, again: bool = False
    ) -> T:
        return await self._db.write(lambda tx: at_once(work(tx)))

    async def _compare(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        return await self._db.read(lambda tx: at_once(work(tx)))

    async def _lock_changes(self, tx: Transaction) -> None:
        pass

    async def _hold(self, tx: Transaction, ids: Collection[str]) -> list[Job]:
        return read_jobs(tx.execute(_Q["by_id"], (tx.list_of(ids),))) if ids else []

    async def _held(self, tx: Transaction, jobs: Sequence[Job]) -> list[Job]:
        return list(jobs)

    async def _save(self, tx: Transaction, created: Sequence[Job], revised: Sequence[Job]) -> None:
        change = _next_change(tx)
        tx.executemany(_Q["insert"], [job_values(job) | {"changed": change} for job in created])
        tx.executemany(_Q["revise"], [job_values(job) | {"changed": change} for job in revised])
        tx.changed = True

    async def _mark_changed(self, tx: Transaction, ids: Sequence[str]) -> None:
        tx.execute(_Q["mark_changed"], (to_json(ids), _next_change(tx)))
        tx.changed = True

    async def _write_firings(self, tx: Transaction, rows: Sequence[FiringRow]) -> FiringKeys:
        return {row[:4] for row in rows if tx.execute(_FIRINGS["record"], row).rowcount}

    async def _insert_runs(self, tx: Transaction, runs: Sequence[NewRun]) -> None:
        insert_runs(tx, runs)

    async def _cancel_run(self, tx: Transaction, run_id: str, reason: str) -> State | None:
        return cancel_run(tx, run_id, reason)

    async def _end_unstarted(self, tx: Transaction, ends: Sequence[tuple[str, Next]]) -> None:
        end_unstarted(tx, ends)


def _next_change(tx: Transaction) -> int:
    return int(tx.execute(_Q["next_change"]).fetchone()[0])
