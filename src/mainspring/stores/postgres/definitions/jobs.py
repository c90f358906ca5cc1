"""Definitions of jobs: created, declared, edited, paused, removed; and calendars."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TypeVar

from mainspring.core.instants import Instant
from mainspring.core.model import Firing, Job, NewRun
from mainspring.core.planning.declaring import compare, differs
from mainspring.core.planning.plans import PlannedFiring, earlier, pause_reason
from mainspring.core.planning.revision import (
    MOST_RECONSIDERED,
    Revision,
    begin,
    mark,
    reconsider_some,
    revise,
    set_paused,
)
from mainspring.core.planning.zone_data import STEP, ZoneRecord, ZoneStep, encode_record, move, read_record, take_up
from mainspring.core.runs.outcome import Next
from mainspring.core.schedules.calendars import Calendar, check_calendar, settled
from mainspring.core.schedules.triggers import check_not_past
from mainspring.core.states import SKIPPED
from mainspring.store import Audit, Saved
from mainspring.stores.postgres.definitions.backfill import backfill
from mainspring.stores.postgres.definitions.firing import Entry, record
from mainspring.stores.postgres.definitions.job_rows import (
    calendars_for,
    find_job,
    hold_jobs,
    load_calendars,
    lock_changes,
    mark_changed,
)
from mainspring.stores.postgres.ends.endings import end_unstarted
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.rows.job_rows import (
    check_editable,
    check_no_downstream,
    check_owned,
    check_unused,
    check_upstreams_known,
    declare,
    job_event,
    job_values,
    name_taken,
    obeying,
    read_firing,
    read_jobs,
    read_page,
    to_json,
    unknown_jobs,
    upstream_names,
)
from mainspring.stores.rows.planned import free_instant
from mainspring.stores.rows.syncing import add_up, sync_in_pages
from mainspring.stores.rows.trail import audited
from mainspring.stores.rows.upstreams import link
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "jobs")
_FIRINGS = load_queries("postgres", "firings")
_REVISED = ("task", "trigger", "args", "queue", "priority", "key", "limit", "policy", "options", "next_fire_at")

T = TypeVar("T")
MakeRuns = Callable[[Job, Instant], Sequence[NewRun]]


class Jobs:
    """See `store.JobStore`. A change of definitions holds `lock_changes`, and the rows that it read first."""

    _db: Database

    async def create_job(self, job: Job, *, audit: Audit[Job] | None = None) -> Job:
        return await self._schedule(lambda tx: _create(tx, job), audit)

    async def sync_jobs(
        self, app: str, namespace: str, jobs: Sequence[Job], *, source: str = "", audit: Audit[Saved] | None = None
    ) -> Saved:
        sync = _Sync(self._db, app, namespace, source, audit)
        return await sync_in_pages(sync, declare(app, namespace, jobs, source))

    async def edit_job(self, job: Job, expected_version: int, *, audit: Audit[Job] | None = None) -> Job:
        return await self._schedule(lambda tx: _edit(tx, job, expected_version), audit)

    async def get_job(self, namespace: str, name: str) -> Job:
        return await self._db.read(lambda tx: find_job(tx, namespace, name))

    async def list_jobs(
        self, namespace: str, *, app: str | None = None, after: str | None = None, limit: int = 1000
    ) -> list[Job]:
        return await self._db.read(lambda tx: _list(tx, namespace, app, after or "", limit))

    async def pause_jobs(
        self,
        namespace: str,
        names: Collection[str],
        *,
        paused: bool,
        reason: str,
        audit: Audit[list[Job]] | None = None,
    ) -> list[Job]:
        return await self._schedule(
            lambda tx: _set_paused(tx, namespace, names, reason, paused=paused), audit, size=len(names)
        )

    async def remove_job(
        self, namespace: str, name: str, expected_version: int | None = None, *, audit: Audit[None] | None = None
    ) -> None:
        await self._schedule(lambda tx: _remove(tx, namespace, name, expected_version), audit)

    async def trigger(
        self, namespace: str, name: str, request_id: str, runs: MakeRuns, *, audit: Audit[Firing] | None = None
    ) -> Firing:
        return await self._schedule(lambda tx: _trigger(tx, namespace, name, request_id, runs), audit, again=True)

    async def backfill(
        self, job: Job, firings: Sequence[PlannedFiring], *, audit: Audit[list[str]] | None = None
    ) -> list[str]:
        return await self._schedule(lambda tx: backfill(tx, job, firings), audit, size=len(firings))

    async def save_calendar(self, namespace: str, calendar: Calendar, *, audit: Audit[None] | None = None) -> None:
        await self._schedule(lambda tx: _save_calendar(tx, namespace, calendar), audit)

    async def _schedule(
        self,
        work: Callable[[Transaction], Awaitable[T]],
        audit: Audit[T] | None,
        *,
        size: int = 1,
        again: bool = False,
    ) -> T:
        whole = audited(work, audit)
        return await self._db.schedule(lambda: self._db.write(whole, patient=True), size=size, again=again)

    async def remove_calendar(self, namespace: str, name: str, *, audit: Audit[None] | None = None) -> None:
        async def work(tx: Transaction) -> None:
            await lock_changes(tx)  # So that no job begins to use it meanwhile.
            check_unused(await tx.fetch(_Q["with_calendars"], namespace), name, await load_calendars(tx, namespace))
            await tx.run(_Q["remove_calendar"], namespace, name)

        await self._schedule(work, audit)


async def _create(tx: Transaction, job: Job) -> Job:
    check_not_past(job.trigger, tx.now)
    await lock_changes(tx)
    if await tx.fetch(_Q["ids_by_name"], job.namespace, [job.name]):
        raise name_taken(job)
    created = begin(job, tx.now, await calendars_for(tx, job.namespace, [job]))
    await _write(tx, job.namespace, [created], [])
    return created


async def _list(tx: Transaction, namespace: str, app: str | None, after: str, limit: int | None) -> list[Job]:
    return read_jobs(await tx.fetch(_Q["list"], namespace, app, after, limit))


class _Sync:
    """See `syncing.SyncingStore`."""

    def __init__(self, db: Database, app: str, namespace: str, source: str, audit: Audit[Saved] | None) -> None:
        self._db = db
        self._audit = audit
        self._app = app
        self._namespace = namespace
        self._source = source

    async def look(self, page: Sequence[Job], declared: Collection[str]) -> Collection[str]:
        async def work(tx: Transaction) -> Collection[str]:
            stored = await self._stored(tx, page)
            calendars = await calendars_for(tx, self._namespace, (*page, *stored.values()))
            upstreams = {name for job in page for name in upstream_names(job)}
            elsewhere = [name for name in upstreams if name not in declared]
            known = dict(await tx.fetch(_Q["ids_by_name"], self._namespace, elsewhere))
            check_upstreams_known(self._namespace, page, known.keys() | (upstreams - {*elsewhere}))
            return [job.name for job in page if differs(job, stored.get(job.name), tx.now, calendars)]

        return await self._db.read(work)

    async def write(self, page: Sequence[Job], so_far: Saved) -> Saved:
        async def work(tx: Transaction) -> Saved:
            await lock_changes(tx)
            stored = await self._stored(tx, page)
            # Held only now: they may have fired since they were looked at.
            stored = {job.name: job for job in await hold_jobs(tx, [job.id for job in stored.values()])}
            calendars = await calendars_for(tx, self._namespace, (*page, *stored.values()))
            found = compare(page, stored, tx.now, calendars)
            await _write(tx, self._namespace, found.created, found.revisions)
            await tx.many(_Q["adopt"], [(job.id, job.origin, job.source) for job in found.adopted])
            if found.resumed:
                await _set_paused(tx, self._namespace, found.resumed, paused=False)
            return add_up(so_far, found.saved())

        return await self._db.write(audited(work, self._audit), patient=True)

    async def of_code(self, after: str, limit: int) -> tuple[Sequence[str], str | None]:
        values = (self._namespace, self._app, self._source, after, limit)
        return read_page(await self._db.read(lambda tx: tx.fetch(_Q["of_code"], *values)))

    async def _stored(self, tx: Transaction, page: Sequence[Job]) -> dict[str, Job]:
        """What is stored under the names of a page, none of it another app's."""
        rows = await tx.fetch(_Q["by_name"], self._namespace, [job.name for job in page]) if page else []
        stored = {job.name: job for job in read_jobs(rows)}
        check_owned(self._app, stored.values())
        return stored


async def _edit(tx: Transaction, job: Job, expected_version: int) -> Job:
    await lock_changes(tx)
    found = next(iter(await hold_jobs(tx, [job.id])), None)
    stored = check_editable(found, job, expected_version)
    if job.trigger != stored.trigger:
        check_not_past(job.trigger, tx.now)
    revision = revise(stored, job, tx.now, await calendars_for(tx, job.namespace, [stored, job]))
    if revision is None:
        return stored
    await _write(tx, job.namespace, [], [(stored, revision)])
    return revision.job


async def _write(
    tx: Transaction, namespace: str, created: Sequence[Job], revisions: Sequence[tuple[Job, Revision]]
) -> None:
    """Store new jobs and changed ones, and what they fire after."""
    if not created and not revisions:
        return
    await tx.many(_Q["insert"], [tuple(job_values(job).values()) for job in created])
    await _revise(tx, [revision.job for _, revision in revisions])
    linked = [job for job in created if upstream_names(job)]
    linked += [new.job for old, new in revisions if upstream_names(old) != upstream_names(new.job)]
    if linked:
        await link(tx, namespace, linked)
    await mark_changed(tx, [job.id for job in (*created, *(revision.job for _, revision in revisions))])
    tx.events += [job_event("job.created", job, tx.now) for job in created]
    tx.events += [job_event("job.updated", revision.job, tx.now) for _, revision in revisions]
    await record(tx, [Entry(old, revision.passed_over, "scheduled") for old, revision in revisions])


async def _revise(tx: Transaction, jobs: Sequence[Job]) -> None:
    rows = []
    for job in jobs:
        values = job_values(job)
        rows.append((job.id, job.version, *(values[name] for name in _REVISED), job.updated_at, job.origin, job.source))
    await tx.many(_Q["revise"], rows)


async def _hold_all(tx: Transaction, namespace: str, names: Collection[str]) -> dict[str, Job]:
    await lock_changes(tx)
    ids: dict[str, str] = dict(await tx.fetch(_Q["ids_by_name"], namespace, list(names)))
    if unknown := set(names) - ids.keys():
        raise unknown_jobs(namespace, unknown)
    return {job.name: job for job in sorted(await hold_jobs(tx, ids.values()), key=lambda job: job.name)}


async def _set_paused(
    tx: Transaction, namespace: str, names: Collection[str], reason: str = "", *, paused: bool
) -> list[Job]:
    jobs = await _hold_all(tx, namespace, names)
    calendars = {} if paused else await calendars_for(tx, namespace, jobs.values())
    found = [(job, set_paused(job, tx.now, calendars, reason, paused=paused)) for job in jobs.values()]
    if changes := [(old, new) for old, new in found if new is not None]:
        switched = [new.job for _, new in changes]
        await tx.many(_Q["set_paused"], [(job.id, job.paused_at, job.paused_why, job.next_fire_at) for job in switched])
        await record(tx, [Entry(old, new.passed_over, "scheduled") for old, new in changes])
        await mark_changed(tx, [job.id for job in switched])
        tx.events += [job_event("job.paused" if paused else "job.resumed", job, tx.now, reason) for job in switched]
        if paused:
            early = await tx.fetch(_Q["fired_ahead"], [job.id for job in switched], tx.now)
            await end_unstarted(tx, [(row[0], Next(SKIPPED, pause_reason(reason))) for row in early])
        jobs |= {job.name: job for job in switched}
    return list(jobs.values())


async def _remove(tx: Transaction, namespace: str, name: str, expected_version: int | None) -> None:
    await lock_changes(tx)
    job = await find_job(tx, namespace, name)
    if expected_version is not None:
        check_editable(job, job, expected_version)
    await hold_jobs(tx, [job.id])
    check_no_downstream(job, [row[0] for row in await tx.fetch(_Q["downstream"], job.id)])
    await tx.run(_Q["drop_edges"], job.id, [])
    await tx.run(_Q["remove"], job.id)
    tx.events.append(job_event("job.removed", job, tx.now))


async def _trigger(tx: Transaction, namespace: str, name: str, request_id: str, runs: MakeRuns) -> Firing:
    found = await find_job(tx, namespace, name)
    if found.policy.overlap == "replace":
        await lock_changes(tx)  # What is cancelled may make `after` jobs due.
    held = await hold_jobs(tx, [found.id])
    if not held:
        raise unknown_jobs(namespace, [name])
    (job,) = held
    known = await tx.fetchrow(_FIRINGS["by_request"], job.id, request_id)
    if known is None:
        fire_at = await free_instant(tx, job.id, tx.now)
        planned = PlannedFiring(fire_at, "fired", runs=earlier(runs(job, fire_at), fire_at - tx.now))
        (recorded,) = await record(tx, [Entry(job, [planned], "manual", request_id)])
        if recorded.runs:
            await tx.run(_FIRINGS["fired_by_hand"], job.id, fire_at)
        known = await tx.fetchrow(_FIRINGS["by_request"], job.id, request_id)
    assert known is not None
    return read_firing(known)


async def _save_calendar(tx: Transaction, namespace: str, calendar: Calendar) -> None:
    calendar = settled(calendar)
    if (await load_calendars(tx, namespace)).get(calendar.name) == calendar:
        return
    await lock_changes(tx)
    calendars = await load_calendars(tx, namespace)
    check_calendar(calendar, calendars)
    await tx.run(_Q["save_calendar"], namespace, calendar.name, to_json(calendar), tx.now)
    ids = obeying(await tx.fetch(_Q["with_calendars"], namespace), calendar, calendars)
    jobs = await hold_jobs(tx, ids[:MOST_RECONSIDERED])
    done = reconsider_some(jobs, tx.now, {**calendars, calendar.name: calendar})
    await _revise(tx, done)
    if left := set(ids) - {job.id for job in done}:
        await tx.run(_Q["postpone"], list(left), mark(tx.now), tx.now)
    if ids:
        await mark_changed(tx, ids)
    tx.events += [job_event("job.updated", job, tx.now, f"calendar {calendar.name} was saved") for job in done]


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
