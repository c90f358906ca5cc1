"""Definitions of jobs, as PostgreSQL has them: what both stores do alike is in `rows.definitions`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from mainspring.core.model import Job
from mainspring.core.planning.plans import PlannedFiring
from mainspring.core.planning.zone_data import STEP, ZoneRecord, ZoneStep, encode_record, move, read_record, take_up
from mainspring.core.runs.outcome import Next
from mainspring.store import Audit
from mainspring.stores.postgres.definitions.backfill import backfill
from mainspring.stores.postgres.definitions.firing import record
from mainspring.stores.postgres.definitions.job_rows import hold_jobs, lock_changes, mark_changed
from mainspring.stores.postgres.ends.endings import end_unstarted
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.rows.definitions import StoredJobs, load_calendars
from mainspring.stores.rows.job_rows import job_event, job_values, read_page
from mainspring.stores.rows.planned import Entry, Recorded
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "jobs")
_REVISED = ("task", "trigger", "args", "queue", "priority", "key", "limit", "policy", "options", "next_fire_at")

T = TypeVar("T")


class Jobs(StoredJobs[Transaction]):
    """See `store.JobStore`."""

    _db: Database

    async def backfill(
        self, job: Job, firings: Sequence[PlannedFiring], *, audit: Audit[list[str]] | None = None
    ) -> list[str]:
        return await self._schedule(lambda tx: backfill(tx, job, firings), audit, size=len(firings))

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
        await _revise(tx, revised)
        await mark_changed(tx, [job.id for job in (*created, *revised)])

    async def _mark_changed(self, tx: Transaction, ids: Sequence[str]) -> None:
        await mark_changed(tx, ids)

    async def _record(self, tx: Transaction, entries: Sequence[Entry]) -> list[Recorded]:
        return await record(tx, entries)

    async def _end_unstarted(self, tx: Transaction, ends: Sequence[tuple[str, Next]]) -> None:
        await end_unstarted(tx, ends)


async def _revise(tx: Transaction, jobs: Sequence[Job]) -> None:
    rows = []
    for job in jobs:
        values = job_values(job)
        rows.append((job.id, job.version, *(values[name] for name in _REVISED), job.updated_at, job.origin, job.source))
    await tx.many(_Q["revise"], rows)


async def known_zones(tx: Transaction) -> ZoneRecord | None:
    """With which zone data fire times are computed."""
    return read_record(await tx.fetchval(_Q["zones"]))


async def adopt_zones(tx: Transaction, version: str) -> ZoneStep:
    """See `store.PlanStore.adopt_zones`."""
    await lock_changes(tx)
    record = take_up(await known_zones(tx), version, tx.now)
    if record is None:
        return ZoneStep()
    step, last = ZoneStep(), None
    if record.after is not None:
        ids, last = read_page(await tx.fetch(_Q["in_zones"], record.after, STEP))
        jobs = sorted(await hold_jobs(tx, ids), key=lambda job: job.id)
        names = {job.namespace for job in jobs}
        found = move(jobs, tx.now, {name: await load_calendars(tx, name) for name in names})
        await _replan(tx, found.jobs, f"zone data {version} came in")
        last = found.last or last
        step = ZoneStep(len(found.jobs), last is not None, found.faults)
    await tx.run(_Q["save_zones"], encode_record(ZoneRecord(version, tx.now, last)))
    return step


async def _replan(tx: Transaction, jobs: Sequence[Job], reason: str) -> None:
    """Store jobs that are due at another instant."""
    if jobs:
        await _revise(tx, jobs)
        await mark_changed(tx, [job.id for job in jobs])
        tx.events += [job_event("job.updated", job, tx.now, reason) for job in jobs]
