"""Definitions of jobs, as SQLite has them: what both stores do alike is in `rows.definitions`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from mainspring.core.model import Job
from mainspring.core.planning.plans import PlannedFiring
from mainspring.core.planning.zone_data import STEP, ZoneRecord, ZoneStep, encode_record, move, read_record, take_up
from mainspring.core.runs.outcome import Next
from mainspring.core.schedules.calendars import Calendar
from mainspring.store import Audit
from mainspring.stores.rows.definitions import StoredJobs, load_calendars
from mainspring.stores.rows.job_rows import job_event, job_values, read_jobs, read_page, to_json
from mainspring.stores.rows.planned import Entry, Recorded
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.definitions.backfill import backfill
from mainspring.stores.sqlite.definitions.firing import Recorder
from mainspring.stores.sqlite.ends.endings import end_unstarted
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction, at_once
from mainspring.stores.sqlite.history.trail import audited

_Q = load_queries("sqlite", "jobs")

T = TypeVar("T")


class Jobs(StoredJobs[Transaction]):
    """See `store.JobStore`. A file has one writer at a time: nothing has to be locked."""

    _db: Database

    async def backfill(
        self, job: Job, firings: Sequence[PlannedFiring], *, audit: Audit[list[str]] | None = None
    ) -> list[str]:
        return await self._db.write(audited(lambda tx: backfill(tx, job, firings), audit))

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

    async def _record(self, tx: Transaction, entries: Sequence[Entry]) -> list[Recorded]:
        recorder = Recorder(tx)
        found = [recorder.record(*entry) for entry in entries]
        recorder.flush()
        return found

    async def _end_unstarted(self, tx: Transaction, ends: Sequence[tuple[str, Next]]) -> None:
        end_unstarted(tx, ends)


def _next_change(tx: Transaction) -> int:
    return int(tx.execute(_Q["next_change"]).fetchone()[0])


def known_zones(tx: Transaction) -> ZoneRecord | None:
    """With which zone data fire times are computed."""
    row = tx.execute(_Q["zones"]).fetchone()
    return None if row is None else read_record(row[0])


def adopt_zones(tx: Transaction, version: str) -> ZoneStep:
    """See `store.PlanStore.adopt_zones`."""
    record = take_up(known_zones(tx), version, tx.now)
    if record is None:
        return ZoneStep()
    step, last = ZoneStep(), None
    if record.after is not None:
        ids, last = read_page(tx.execute(_Q["in_zones"], (record.after, STEP)))
        jobs = sorted(read_jobs(tx.execute(_Q["by_id"], (to_json(ids),))), key=lambda job: job.id)
        names = {job.namespace for job in jobs}
        found = move(jobs, tx.now, {name: _load_calendars(tx, name) for name in names})
        _replan(tx, found.jobs, f"zone data {version} came in")
        last = found.last or last
        step = ZoneStep(len(found.jobs), last is not None, found.faults)
    tx.execute(_Q["save_zones"], (encode_record(ZoneRecord(version, tx.now, last)),))
    return step


def _replan(tx: Transaction, jobs: Sequence[Job], reason: str) -> None:
    """Store jobs that are due at another instant."""
    if jobs:
        change = _next_change(tx)
        tx.executemany(_Q["revise"], [job_values(job) | {"changed": change} for job in jobs])
        tx.events += [job_event("job.updated", job, tx.now, reason) for job in jobs]
        tx.changed = True


def _load_calendars(tx: Transaction, namespace: str) -> dict[str, Calendar]:
    return at_once(load_calendars(tx, namespace))
