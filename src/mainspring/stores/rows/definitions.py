"""Definitions of jobs: created, declared, edited, paused, removed, fired by hand; and calendars."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Generic, TypeVar

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Firing, Job, NewRun
from mainspring.core.planning.declaring import PAGE, compare, differs, pages_of, upstream_names
from mainspring.core.planning.plans import PlannedFiring, earlier, pause_reason
from mainspring.core.planning.revision import (
    MOST_RECONSIDERED,
    Revision,
    begin,
    check_times,
    mark,
    reconsider_some,
    revise,
    set_paused,
)
from mainspring.core.runs.outcome import Next
from mainspring.core.schedules.calendars import Calendar, check_calendar, settled
from mainspring.core.states import SKIPPED
from mainspring.store import Audit, Saved
from mainspring.stores.rows.firing import StoredFirings
from mainspring.stores.rows.job_rows import (
    check_calendars_known,
    check_editable,
    check_no_downstream,
    check_owned,
    check_unused,
    check_upstreams_known,
    declare,
    job_event,
    name_taken,
    obeying,
    read_calendars,
    read_firing,
    read_job,
    read_jobs,
    read_page,
    to_json,
    unknown_jobs,
)
from mainspring.stores.rows.planned import Entry, free_instant
from mainspring.stores.rows.trail import audited
from mainspring.stores.rows.transaction import Transaction
from mainspring.stores.rows.upstreams import link
from mainspring.stores.sql import load_queries

T = TypeVar("T")
Tx = TypeVar("Tx", bound=Transaction)
MakeRuns = Callable[[Job, Instant], Sequence[NewRun]]
NAMES = 10_000
"""How many names are compared at once to find jobs that are no longer declared."""


class StoredJobs(StoredFirings[Tx]):
    """The writes of `store.JobStore` and `store.CalendarStore`. A change of definitions holds the lock on changes, and
    the rows that it read first."""

    _jobs: Mapping[str, str]

    @abstractmethod
    async def _define(self, work: Callable[[Tx], Awaitable[T]], *, size: int | None = 1, again: bool = False) -> T:
        """Run work in a transaction. It has a deadline by its size, unless that is None. If it may be repeated without
        harm (`again`), that is done while the database does not answer."""

    @abstractmethod
    async def _compare(self, work: Callable[[Tx], Awaitable[T]]) -> T:
        """Run work that only reads."""

    @abstractmethod
    async def _lock_changes(self, tx: Tx) -> None:
        """No other transaction changes jobs, or makes an `after` job due, until this one has ended."""

    @abstractmethod
    async def _held(self, tx: Tx, jobs: Sequence[Job]) -> list[Job]:
        """As `_hold`, for jobs that this transaction has read."""

    @abstractmethod
    async def _save(self, tx: Tx, created: Sequence[Job], revised: Sequence[Job]) -> None:
        """Store new jobs and changed ones, and let planners know."""

    @abstractmethod
    async def _mark_changed(self, tx: Tx, ids: Sequence[str]) -> None:
        """Let planners know that stored jobs have changed."""

    @abstractmethod
    async def _end_unstarted(self, tx: Tx, ends: Sequence[tuple[str, Next]]) -> None:
        """End runs that have not started."""

    async def _schedule(
        self, work: Callable[[Tx], Awaitable[T]], audit: Audit[T] | None, *, size: int = 1, again: bool = False
    ) -> T:
        return await self._define(audited(work, audit), size=size, again=again)

    async def create_job(self, job: Job, *, audit: Audit[Job] | None = None) -> Job:
        return await self._schedule(partial(self._create, job=job), audit)

    async def sync_jobs(
        self, app: str, namespace: str, jobs: Sequence[Job], *, source: str = "", audit: Audit[Saved] | None = None
    ) -> Saved:
        return await _Sync(self, app, namespace, source, audit).sync(declare(app, namespace, jobs, source))

    async def edit_job(self, job: Job, expected_version: int, *, audit: Audit[Job] | None = None) -> Job:
        return await self._schedule(lambda tx: self._edit(tx, job, expected_version), audit)

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
            lambda tx: self._set_paused(tx, namespace, names, reason, paused=paused), audit, size=len(names)
        )

    async def remove_job(
        self, namespace: str, name: str, expected_version: int | None = None, *, audit: Audit[None] | None = None
    ) -> None:
        await self._schedule(lambda tx: self._remove(tx, namespace, name, expected_version), audit)

    async def trigger(
        self, namespace: str, name: str, request_id: str, runs: MakeRuns, *, audit: Audit[Firing] | None = None
    ) -> Firing:
        return await self._schedule(lambda tx: self._trigger(tx, namespace, name, request_id, runs), audit, again=True)

    async def save_calendar(self, namespace: str, calendar: Calendar, *, audit: Audit[None] | None = None) -> None:
        await self._schedule(lambda tx: self._save_calendar(tx, namespace, calendar), audit)

    async def remove_calendar(self, namespace: str, name: str, *, audit: Audit[None] | None = None) -> None:
        async def work(tx: Tx) -> None:
            await self._lock_changes(tx)  # So that no job begins to use it meanwhile.
            using = await tx.fetch(self._jobs["with_calendars"], namespace)
            check_unused(using, name, await load_calendars(tx, namespace))
            await tx.run(self._jobs["remove_calendar"], namespace, name)

        await self._schedule(work, audit)

    async def _create(self, tx: Tx, job: Job) -> Job:
        check_times(job, None, tx.now)
        await self._lock_changes(tx)
        if await tx.fetch(self._jobs["ids_by_name"], job.namespace, tx.list_of([job.name])):
            raise name_taken(job)
        created = begin(job, tx.now, await calendars_for(tx, job.namespace, [job]))
        await self._write(tx, job.namespace, [created], [])
        return created

    async def _edit(self, tx: Tx, job: Job, expected_version: int) -> Job:
        await self._lock_changes(tx)
        found = next(iter(await self._hold(tx, [job.id])), None)
        stored = check_editable(found, job, expected_version)
        check_times(job, stored, tx.now)
        revision = revise(stored, job, tx.now, await calendars_for(tx, job.namespace, [stored, job]))
        if revision is None:
            return stored
        await self._write(tx, job.namespace, [], [(stored, revision)])
        return revision.job

    async def _write(
        self, tx: Tx, namespace: str, created: Sequence[Job], revisions: Sequence[tuple[Job, Revision]]
    ) -> None:
        """Store new jobs and changed ones, and what they fire after."""
        if not created and not revisions:
            return
        await self._save(tx, created, [revision.job for _, revision in revisions])
        linked = [job for job in created if upstream_names(job)]
        linked += [new.job for old, new in revisions if upstream_names(old) != upstream_names(new.job)]
        if linked:
            await link(tx, namespace, linked)
        tx.events += [job_event("job.created", job, tx.now) for job in created]
        tx.events += [job_event("job.updated", revision.job, tx.now) for _, revision in revisions]
        await self._record(tx, [Entry(old, revision.passed_over, "scheduled") for old, revision in revisions])

    async def _set_paused(
        self, tx: Tx, namespace: str, names: Collection[str], reason: str = "", *, paused: bool
    ) -> list[Job]:
        await self._lock_changes(tx)
        ids: dict[str, str] = dict(await tx.fetch(self._jobs["ids_by_name"], namespace, tx.list_of(names)))
        if unknown := set(names) - ids.keys():
            raise unknown_jobs(namespace, unknown)
        held = sorted(await self._hold(tx, ids.values()), key=lambda job: job.name)
        jobs, calendars = {job.name: job for job in held}, {} if paused else await calendars_for(tx, namespace, held)
        found = [(job, set_paused(job, tx.now, calendars, reason, paused=paused)) for job in held]
        if changes := [(old, new) for old, new in found if new is not None]:
            switched = [new.job for _, new in changes]
            rows = [(job.id, job.paused_at, job.paused_why, job.next_fire_at) for job in switched]
            await tx.many(self._jobs["set_paused"], rows)
            await self._mark_changed(tx, [job.id for job in switched])
            await self._record(tx, [Entry(old, new.passed_over, "scheduled") for old, new in changes])
            kind = "job.paused" if paused else "job.resumed"
            tx.events += [job_event(kind, job, tx.now, reason) for job in switched]
            if paused:
                early = await tx.fetch(self._jobs["fired_ahead"], tx.list_of([job.id for job in switched]), tx.now)
                await self._end_unstarted(tx, [(row[0], Next(SKIPPED, pause_reason(reason))) for row in early])
            jobs |= {job.name: job for job in switched}
        return list(jobs.values())

    async def _remove(self, tx: Tx, namespace: str, name: str, expected_version: int | None) -> None:
        await self._lock_changes(tx)
        job = await find_job(tx, namespace, name)
        if expected_version is not None:
            check_editable(job, job, expected_version)
        await self._held(tx, [job])
        check_no_downstream(job, [row[0] for row in await tx.fetch(self._jobs["downstream"], job.id)])
        await tx.run(self._jobs["drop_edges"], job.id, tx.list_of([]))
        await tx.run(self._jobs["remove"], job.id)
        tx.events.append(job_event("job.removed", job, tx.now))

    async def _trigger(self, tx: Tx, namespace: str, name: str, request_id: str, runs: MakeRuns) -> Firing:
        found = await find_job(tx, namespace, name)
        if found.policy.overlap == "replace":
            await self._lock_changes(tx)  # What is cancelled may make `after` jobs due.
        held = await self._held(tx, [found])
        if not held:
            raise unknown_jobs(namespace, [name])
        (job,) = held
        known = await tx.fetchrow(self._firings["by_request"], job.id, request_id)
        if known is None:
            fire_at = await free_instant(tx, job.id, tx.now)
            planned = PlannedFiring(fire_at, "fired", runs=earlier(runs(job, fire_at), fire_at - tx.now))
            (recorded,) = await self._record(tx, [Entry(job, [planned], "manual", request_id)])
            if recorded.runs:
                await tx.run(self._firings["fired_by_hand"], job.id, fire_at)
            known = await tx.fetchrow(self._firings["by_request"], job.id, request_id)
        assert known is not None
        return read_firing(known)

    async def _save_calendar(self, tx: Tx, namespace: str, calendar: Calendar) -> None:
        calendar = settled(calendar)
        if (await load_calendars(tx, namespace)).get(calendar.name) == calendar:
            return
        await self._lock_changes(tx)
        calendars = await load_calendars(tx, namespace)
        check_calendar(calendar, calendars)
        await tx.run(self._jobs["save_calendar"], namespace, calendar.name, to_json(calendar), tx.now)
        ids = obeying(await tx.fetch(self._jobs["with_calendars"], namespace), calendar, calendars)
        jobs = await self._hold(tx, ids[:MOST_RECONSIDERED])
        done = reconsider_some(jobs, tx.now, {**calendars, calendar.name: calendar})
        if done:
            await self._save(tx, [], done)
        if left := sorted(set(ids) - {job.id for job in done}):
            # They are marked as due soon, so that planners find when they are due.
            await tx.run(self._jobs["postpone"], tx.list_of(left), mark(tx.now), tx.now)
            await self._mark_changed(tx, left)
        tx.events += [job_event("job.updated", job, tx.now, f"calendar {calendar.name} was saved") for job in done]


class _Sync(Generic[Tx]):
    """A sync in pages: jobs that code declares are compared by reading, and only those that differ are written.

    Everything that can be refused is refused before the first page is written. A sync that changes at most a page is
    one transaction; a longer one that is cut off is completed by the next.
    """

    def __init__(
        self, store: StoredJobs[Tx], app: str, namespace: str, source: str, audit: Audit[Saved] | None
    ) -> None:
        self._store = store
        self._audit = audit
        self._app = app
        self._namespace = namespace
        self._source = source

    async def sync(self, declared: dict[str, Job]) -> Saved:
        """See `store.JobStore.sync_jobs`."""
        jobs = list(declared.values())
        changed: set[str] = set()
        for start in range(0, len(jobs), PAGE):
            changed.update(await self._look(jobs[start : start + PAGE], declared.keys()))
        unchanged = tuple(name for name in declared if name not in changed)
        saved = Saved(unchanged=unchanged, undeclared=await self._find_undeclared(declared))
        # At least once: a sync leaves its trail, whether or not anything had to be written.
        for page in [*pages_of([job for job in jobs if job.name in changed])] or [()]:
            saved = await self._write(page, saved)
        return saved

    async def _look(self, page: Sequence[Job], declared: Collection[str]) -> Collection[str]:
        """The names of those that have to be written. Conflict or InvalidInput for one that cannot be."""

        async def work(tx: Tx) -> Collection[str]:
            queries = load_queries(tx.dialect, "jobs")
            stored = await self._stored(tx, page)
            calendars = await calendars_for(tx, self._namespace, (*page, *stored.values()))
            upstreams = {name for job in page for name in upstream_names(job)}
            elsewhere = [name for name in upstreams if name not in declared]
            known = dict(await tx.fetch(queries["ids_by_name"], self._namespace, tx.list_of(elsewhere)))
            check_upstreams_known(self._namespace, page, known.keys() | (upstreams - {*elsewhere}))
            return [job.name for job in page if differs(job, stored.get(job.name), tx.now, calendars)]

        return await self._store._compare(work)

    async def _write(self, page: Sequence[Job], so_far: Saved) -> Saved:
        """Store these; what was done, added to `so_far`."""

        async def work(tx: Tx) -> Saved:
            store = self._store
            await store._lock_changes(tx)
            # Held only now: they may have fired since they were looked at.
            held = await store._held(tx, [*(await self._stored(tx, page)).values()])
            calendars = await calendars_for(tx, self._namespace, (*page, *held))
            found = compare(page, {job.name: job for job in held}, tx.now, calendars)
            await store._write(tx, self._namespace, found.created, found.revisions)
            adopted = [(job.id, job.origin, job.source) for job in found.adopted]
            await tx.many(load_queries(tx.dialect, "jobs")["adopt"], adopted)
            if found.resumed:
                await store._set_paused(tx, self._namespace, found.resumed, paused=False)
            page_saved = found.saved()
            both = {name: getattr(so_far, name) + getattr(page_saved, name) for name in Saved.__struct_fields__}
            return msgspec.convert(both, Saved)

        return await self._store._define(audited(work, self._audit), size=None)

    async def _find_undeclared(self, declared: Collection[str]) -> tuple[str, ...]:
        """The jobs that the same code declared before."""
        found: list[str] = []
        last: str | None = ""
        while last is not None:
            names, last = await self._store._compare(partial(self._of_code, after=last))
            found += [name for name in names if name not in declared]
        return tuple(found)

    async def _of_code(self, tx: Tx, after: str) -> tuple[Sequence[str], str | None]:
        """Which of the next names after one are of jobs that the same code declared; and the last of the names that
        were looked at, None if there were no more."""
        asked = (self._namespace, self._app, self._source, after, NAMES)
        return read_page(await tx.fetch(load_queries(tx.dialect, "jobs")["of_code"], *asked))

    async def _stored(self, tx: Tx, page: Sequence[Job]) -> dict[str, Job]:
        """What is stored under the names of a page, none of it another app's."""
        names = tx.list_of([job.name for job in page])
        rows = await tx.fetch(load_queries(tx.dialect, "jobs")["by_name"], self._namespace, names) if page else []
        stored = {job.name: job for job in read_jobs(rows)}
        check_owned(self._app, stored.values())
        return stored


async def find_job(tx: Transaction, namespace: str, name: str) -> Job:
    """By name or id; NotFound otherwise."""
    row = await tx.fetchrow(load_queries(tx.dialect, "jobs")["find"], namespace, name)
    if row is None:
        raise unknown_jobs(namespace, [name])
    return read_job(row)


async def load_calendars(tx: Transaction, namespace: str) -> dict[str, Calendar]:
    """All calendars of a namespace by name."""
    return read_calendars(await tx.fetch(load_queries(tx.dialect, "jobs")["calendars"], namespace))


async def calendars_for(tx: Transaction, namespace: str, jobs: Iterable[Job]) -> dict[str, Calendar]:
    """The calendars of a namespace, if any of the jobs obeys one; all that they name must exist."""
    named = dict.fromkeys(name for job in jobs for name in job.policy.calendars)
    if not named:
        return {}
    calendars = await load_calendars(tx, namespace)
    check_calendars_known(namespace, named, calendars)
    return calendars
