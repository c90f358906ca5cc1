"""What can be done with jobs. A job is named by its name or its id; NotFound if there is none."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncGenerator, Callable, Collection, Mapping, Sequence
from datetime import datetime
from functools import partial
from typing import Any, Literal, Protocol, Unpack

import msgspec

from mainspring.core.instants import EARLIEST, Instant, from_datetime, load_zone, parse_duration
from mainspring.core.model import Event, Firing, Job, Run
from mainspring.core.planning.firing_limits import check_firings, runs_of
from mainspring.core.planning.plans import make_runs
from mainspring.core.runs.retry import Length, RetryPolicy
from mainspring.core.runs.tallies import Tally, quantile
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import AfterTrigger, Trigger
from mainspring.core.schedules.words import in_words
from mainspring.core.states import SUCCEEDED
from mainspring.errors import Conflict, InvalidInput, VersionConflict
from mainspring.operations import records
from mainspring.operations.context import InContext, NamedTask, if_found, time_limit
from mainspring.operations.filters import JobFilters
from mainspring.operations.jobs.backfill import survey
from mainspring.operations.jobs.definitions import change, change_retries, check_is_trigger, define
from mainspring.operations.jobs.options import JobWords, check_name, read_defaults, read_policy, read_words
from mainspring.operations.paging import PAGE, number_of, walk
from mainspring.operations.planning.forecast import forecast, forecast_changes
from mainspring.operations.planning.records import Simulation
from mainspring.operations.planning.simulate import simulate_job
from mainspring.operations.runs import Runs
from mainspring.operations.values.from_rows import (
    explained,
    firing_record,
    job_fields,
    job_record,
    job_row,
    moment,
    progress_of,
    seconds,
)
from mainspring.operations.views.explain import explain_job
from mainspring.operations.views.records import JobCounts
from mainspring.store import Audit, Saved, Store

MOST_SCANNED = 20_000
"""A page with a filter that few jobs fit ends after this many jobs, with a place to continue from."""
LATEST_HOURS = 24
"""Of how many hours the durations of a list are: the latest in which a job ran, so that rare ones have them, too."""
MOST_COUNTED = 10_000
SEARCH_S = 2.0
"""Fire times that calendars make hard to find are searched for at most this long."""
TRIES = 5
"""How often a change that conflicts with another change of the same job is tried again."""

Sort = Literal["name", "next", "last"]

Versions = int | Collection[int] | None
"""The version, or one of the versions, that the caller has seen; None: any."""


class Declaring(Protocol):
    """An app that declares jobs and calendars."""

    @property
    def name(self) -> str:
        """The name of the app."""

    @property
    def source(self) -> str:
        """Identifies the code that declares."""

    @property
    def calendars(self) -> Mapping[str, Calendar]:
        """The declared calendars by name."""

    def declared_jobs(self, now: Instant) -> list[Job]:
        """The declared jobs, as if each were created now."""


class Jobs(InContext):
    """`app.jobs`, and what `/v1/jobs` and `mainspring job` do."""

    async def _stored(self, job: str) -> Job:
        return await (await self._context.open()).get_job(self._context.namespace, job)

    def _record(self, job: Job) -> records.Job:
        return job_record(job, self._context.read)

    async def get(self, job: str) -> records.JobStory:
        """A job, how its last run stands, and what keeps the job from firing."""
        store, found = await self._context.open(), await self._stored(job)
        progress = progress_of(await _last_run(store, found))
        causes = explained(await explain_job(self._context, found), found.namespace)
        fields = job_fields(found, self._context.read) | {"schedule_text": in_words(found.trigger)}
        return records.JobStory(**fields, **progress, **causes)

    def list(
        self,
        *,
        sort: Sort = "name",
        last: bool = False,
        recent: int = 0,
        times: bool = False,
        limit: int | None = None,
        **filters: Unpack[JobFilters],
    ) -> AsyncGenerator[records.ListedJob, None]:
        """Jobs that the filters fit (`JobFilters`), in order of name. `sort="next"` lists those that will fire, soonest
        first; `sort="last"` those that have fired, latest first. With `last`, each has the newest row of its ledger;
        with `recent`, the outcomes of its latest firings; with `times`, how long its runs took and how late they
        began."""
        fetch = partial(self.page, sort=sort, last=last, recent=recent, times=times, **filters)
        return walk(lambda place, size: fetch(after=place, limit=size), limit)

    async def page(
        self,
        *,
        name: str | None = None,
        sort: Sort = "name",
        last: bool = False,
        recent: int = 0,
        times: bool = False,
        rows: bool = False,
        after: str | None = None,
        limit: int = 50,
        **filters: Unpack[JobFilters],
    ) -> records.Page[records.ListedJob]:
        """One page of jobs in an order, those after a place in it. As `rows` they have no arguments."""
        store, found, scanned, ended = await self._context.open(), list[Job](), 0, False
        fits, app = _fitting(**filters), filters.get("app")
        # A filter makes a page look at more jobs than it shows.
        size = PAGE if name or any(filters.values()) else limit + 1
        while len(found) <= limit and scanned < MOST_SCANNED and not ended:
            some = await self._scan(store, name, app, sort, after, size)
            found += filter(fits, some)
            scanned += len(some)
            ended = len(some) < size
            after = _place(some[-1], sort) if some else after
        following = _place(found[limit - 1], sort) if len(found) > limit else (None if ended else after)
        listed = await self._listed(store, found[:limit], last=last, recent=recent, times=times, rows=rows)
        return records.Page([*listed], following)

    async def _scan(
        self, store: Store, name: str | None, app: str | None, sort: Sort, after: str | None, size: int
    ) -> Sequence[Job]:
        """The next jobs to filter; a named job alone."""
        if name is not None:
            found = await if_found(self._stored(name))
            return [found] if found is not None and found.name == name else []
        if sort == "name":
            return await store.list_jobs(self._context.namespace, app=app, after=after, limit=size)
        instant, _, job_id = (after or "").partition(" ")
        beyond = None if after is None else (int(instant), job_id)
        return await store.ordered_jobs(self._context.namespace, sort, beyond=beyond, limit=size)

    async def _listed(
        self, store: Store, jobs: Sequence[Job], *, last: bool, recent: int, times: bool, rows: bool
    ) -> Sequence[records.ListedJob]:
        ledgers: dict[str, list[Firing]] = {job.id: [] for job in jobs}
        for first in range(0, len(jobs), PAGE) if last or recent else ():
            ids = [job.id for job in jobs[first : first + PAGE]]
            for row in await store.newest_firings(ids, max(recent, 1)):
                ledgers[row.job_id].append(row)
        tallies = await self._tallies(store, jobs) if times else {}
        listed = []
        for job in jobs:
            ledger, more = ledgers[job.id], dict[str, Any]()
            if times:
                tally = tallies.get(job.name, Tally())
                more["took_p50"] = seconds(quantile(tally.took, 0.5))
                more["late_p50"] = seconds(quantile(tally.late, 0.5))
            if last:
                more["last"] = firing_record(ledger[0]) if ledger else None
            if recent:
                more["recent"] = [row.outcome for row in reversed(ledger)]
            read = self._context.read
            listed.append(job_row(job, read, **more) if rows else records.ListedJob(**job_fields(job, read), **more))
        return listed

    async def _tallies(self, store: Store, jobs: Sequence[Job]) -> Mapping[str, Tally]:
        """What was counted of each job in the latest hours in which it had something to count."""
        found: dict[str, Tally] = {}
        for first in range(0, len(jobs), PAGE):
            names = [job.name for job in jobs[first : first + PAGE]]
            rows = await store.newest_tallies(self._context.namespace, "job", names, EARLIEST, LATEST_HOURS)
            for key, tally in rows:
                found.setdefault(key.name, Tally({}, {}, {})).add(tally)
        return found

    async def count(self) -> JobCounts:
        """How many jobs there are, and how many of them are paused."""
        store = await self._context.open()
        jobs, paused = await store.count_jobs(self._context.namespace, MOST_COUNTED + 1)
        counted = min(jobs, MOST_COUNTED)
        paused = min(paused, counted)
        return JobCounts(counted, counted - paused, paused, jobs > MOST_COUNTED)

    async def next(self, job: str, count: int = 10, zone: str | None = None) -> Sequence[records.FireTime]:
        """When a job fires next, in its own zone or another. Fewer times than asked for if they are hard to find."""
        if zone is not None:
            load_zone(zone, "timezone")
        found = await self._stored(job)
        return await self._forecast(found, await self._calendars(), count, zone)

    async def preview(self, draft: Job, count: int = 10, zone: str | None = None) -> records.Preview:
        """What a job that is not stored would do. InvalidInput if it names a calendar or job that does not exist."""
        store, calendars = await self._context.open(), await self._calendars()
        if unknown := [name for name in draft.policy.calendars if name not in calendars]:
            raise InvalidInput(
                "calendars", unknown[0], "does not exist", "`mainspring calendar list` shows those that do"
            )
        if isinstance(draft.trigger, AfterTrigger):
            found = {job.name for job in await store.find_jobs(self._context.namespace, draft.trigger.jobs)}
            if missing := [name for name in draft.trigger.jobs if name not in found]:
                raise InvalidInput("after", missing[0], "does not exist", "`mainspring job list` shows those that do")
        items = await self._forecast(draft, calendars, count, zone)
        changes = await asyncio.to_thread(forecast_changes, draft, calendars, items, zone, time_limit(SEARCH_S))
        return records.Preview(in_words(draft.trigger), [*items], [*changes])

    async def _calendars(self) -> Mapping[str, Calendar]:
        return await (await self._context.open()).list_calendars(self._context.namespace)

    async def _forecast(
        self, job: Job, calendars: Mapping[str, Calendar], count: int, zone: str | None
    ) -> Sequence[records.FireTime]:
        """Compute fire times in a thread: with calendars that allow little, a search takes long."""
        now = (await self._context.open()).now()
        return await asyncio.to_thread(forecast, job, calendars, now, count, zone, time_limit(SEARCH_S))

    def firings(
        self, job: str, limit: int | None = None, *, region: str | None = None
    ) -> AsyncGenerator[records.Firing, None]:
        """The ledger of a job, newest first; of one region, or of all."""
        return walk(
            lambda place, size: self.firing_page(job, before=number_of(place), limit=size, region=region), limit
        )

    async def firing_page(
        self, job: str, *, before: Instant | None = None, limit: int = 50, region: str | None = None
    ) -> records.Page[records.Firing]:
        """One page of the ledger, the rows before an instant. A page ends with a whole instant."""
        found = await self._stored(job)
        rows = await (await self._context.open()).list_firings(found.id, before=before, limit=limit + 1, region=region)
        shown = _whole_instants(rows, limit)
        following = str(shown[-1].fire_at) if len(rows) > len(shown) else None
        return records.Page([firing_record(row) for row in shown], following)

    async def runs(self, job: str, limit: int | None = None) -> AsyncGenerator[records.Run, None]:
        """The runs of a job, newest first."""
        async for run in Runs(self._context).list(job=(await self._stored(job)).name, limit=limit):
            yield run

    async def add(
        self,
        name: str,
        trigger: Trigger,
        *,
        task: str | NamedTask,
        args: Mapping[str, object] | None = None,
        replace: bool = False,
        **words: Unpack[JobWords],
    ) -> records.NewJob:
        """Store a new job. Conflict if there is one of that name; with `replace`, that one gets this definition."""
        context = self._context
        check_is_trigger(trigger)
        values = read_words(words, JobWords, "a job")
        policy = read_policy(values)
        now = (await context.open()).now()
        task = context.name_of(task)
        execution = read_defaults(values, await context.defaults(task, values))
        text = context.encode_args(task, args or {})

        def defined(base: Job) -> Job:
            return define(base, trigger, task, text, execution, policy, values.get("key"), now)

        try:
            return await self.create(
                defined(Job("", check_name("name", name), task, trigger, context.namespace, created_at=now))
            )
        except Conflict:
            if not replace or (await self._stored(name)).name != name:
                raise
        replaced = await self.replace(name, defined)
        return records.NewJob(**msgspec.structs.asdict(replaced), **progress_of(None))

    async def create(self, draft: Job) -> records.NewJob:
        """Store a new job that has everything but its id and owner. If the answer to an earlier try was lost, the job
        that this try made. Conflict if another job has the name."""
        context, store = self._context, await self._context.open()
        host = context.host
        check_firings(draft, context.settings.firing_rate_of(draft.namespace))
        await context.admit("jobs", 1)
        (job_id,) = context.new_ids(1)
        owner, origin = context.app or host.name, context.origin or host.job_origin
        draft = msgspec.structs.replace(draft, id=job_id, app=owner, origin=origin)
        try:
            audit = context.audit("job.create", f"job:{job_id}", None, self._record)
            job = await store.create_job(draft, audit=audit)
        except Conflict:
            found = await if_found(self._stored(job_id))
            if found is None:
                raise
            job = found
        return records.NewJob(**job_fields(job, context.read), **progress_of(None))

    async def edit(
        self,
        job: str,
        *,
        trigger: Trigger | None = None,
        task: str | None = None,
        args: Mapping[str, object] | None = None,
        retries: int | None = None,
        retry_policy: RetryPolicy | None = None,
        clear: Collection[str] = (),
        version: Versions = None,
        **words: Unpack[JobWords],
    ) -> records.Job:
        """Change what is named: `retries` alone leaves the waits, `retry_policy` alone the number of retries. `clear`
        names options to take away. VersionConflict if the job no longer has the `version` that the caller saw."""
        values = read_words(words, JobWords, "a job")

        def edited(stored: Job) -> Job:
            wanted = dict(values)
            if retries is not None or retry_policy is not None:
                wanted["retry"] = change_retries(stored.options.retry, retries, retry_policy)
            new = change(stored, wanted, tuple(clear))
            if args is not None or task not in (None, stored.task):
                text = self._context.encode_args(task or stored.task, args or {})
                new = msgspec.structs.replace(new, task=task or stored.task, args=text)
            return new if trigger is None else msgspec.structs.replace(new, trigger=trigger)

        if trigger is not None:
            check_is_trigger(trigger)
        return await self.replace(job, edited, version)

    async def simulate(
        self,
        job: str,
        *,
        trigger: Trigger | None = None,
        clear: Collection[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        outages: Sequence[tuple[datetime, datetime]] = (),
        took: Length | None = None,
        **words: Unpack[JobWords],
    ) -> Simulation:
        """What a job would do if it were edited like this: see `simulate_job`. Nothing is stored."""
        if trigger is not None:
            check_is_trigger(trigger)
        wanted = change(await self._stored(job), dict(read_words(words, JobWords, "a job")), tuple(clear))
        draft = wanted if trigger is None else msgspec.structs.replace(wanted, trigger=trigger)
        length = None if took is None else parse_duration(took, "took")
        return await simulate_job(self._context, draft, since=since, until=until, outages=outages, took=length)

    async def replace(self, job: str, wanted: Callable[[Job], Job], version: Versions = None) -> records.Job:
        """Replace the definition of a job by what `wanted` makes of the stored one. Unless the caller named a version,
        this is tried again if the job changes meanwhile."""
        context, store = self._context, await self._context.open()
        for attempt in range(TRIES):
            stored = await self._stored(job)
            _check_version(stored, version)
            draft = wanted(stored)
            check_firings(draft, context.settings.firing_rate_of(draft.namespace))
            audit = context.audit("job.update", f"job:{stored.id}", self._record(stored), self._record)
            try:
                return self._record(await store.edit_job(draft, stored.version, audit=audit))
            except Conflict:
                if attempt == TRIES - 1:
                    raise
        raise AssertionError("unreachable")

    async def remove(self, job: str, *, reason: str = "", version: Versions = None) -> None:
        """Remove a definition. Its unfinished runs go on, and the ledger stays. Conflict if another job fires after
        it; VersionConflict if it no longer has the `version` that the caller saw."""
        context, store = self._context, await self._context.open()
        for attempt in range(TRIES):
            stored = await self._stored(job)
            _check_version(stored, version)
            audit: Audit[None] | None = context.audit("job.delete", f"job:{stored.id}", self._record(stored))
            try:
                # With its version, so that the audit trail shows exactly what is removed.
                await store.remove_job(context.namespace, stored.id, stored.version, audit=audit)
            except Conflict:
                if attempt == TRIES - 1 or (await self._stored(stored.id)).version == stored.version:
                    raise
            else:
                await self._note([stored], reason)
                return

    async def pause(self, *jobs: str, reason: str = "") -> Sequence[records.Job]:
        """Stop jobs from firing, all or none. Instants that come due meanwhile are recorded as skipped; runs that
        exist go on."""
        return [self._record(job) for job in await self._set_paused("job.pause", jobs, reason, paused=True)]

    async def resume(self, *jobs: str, reason: str = "") -> Sequence[records.Job]:
        """Let paused jobs fire again, all or none, from their next instant after now."""
        resumed = await self._set_paused("job.resume", jobs, "", paused=False)
        await self._note(resumed, reason)
        return [self._record(job) for job in resumed]

    async def _set_paused(self, action: str, jobs: Sequence[str], reason: str, *, paused: bool) -> Sequence[Job]:
        before = {job.id: job for job in [await self._stored(each) for each in jobs]}

        def rows(after: Sequence[Job]) -> list[tuple[str, str, object, object]]:
            return [(action, f"job:{job.id}", self._record(before[job.id]), self._record(job)) for job in after]

        store, audit = await self._context.open(), self._context.audit_all(rows)
        names = [job.name for job in before.values()]
        return await store.pause_jobs(self._context.namespace, names, paused=paused, reason=reason, audit=audit)

    async def trigger(self, job: str, request_id: str | None = None, *, reason: str = "") -> records.Firing:
        """Fire a job now, by hand; its overlap policy holds. The same request id gives the same firing."""
        context, store = self._context, await self._context.open()
        stored = await self._stored(job)
        await context.admit("runs", runs_of(stored))
        request = request_id or context.new_ids(1)[0]
        firing = await store.trigger(
            context.namespace,
            stored.id,
            request,
            lambda job, fire_at: make_runs(job, fire_at, store.now()),
            audit=context.audit("job.trigger", f"job:{stored.id}", None, firing_record),
        )
        await self._note([stored], reason)
        return firing_record(firing)

    async def backfill(
        self, job: str, since: datetime, until: datetime, *, limit: int = 100, dry_run: bool = False, reason: str = ""
    ) -> records.Backfill:
        """Fire the instants of a past interval, both ends included, that have no run: missed, skipped, or before the
        job was created. At most `limit` instants: `next` in the answer says where to continue."""
        context, store = self._context, await self._context.open()
        stored = await self._stored(job)
        first, last = from_datetime(since, "from"), from_datetime(until, "to")
        found = await survey(store, stored, first, last, limit, context.settings.keep_firings)
        made = found.lacking()
        if made and not dry_run:
            await context.admit("runs", len(made))
            said = {"from": moment(first), "to": moment(last), "reason": reason}
            audit: Audit[list[str]] | None = context.audit(
                "job.backfill", f"job:{stored.id}", None, lambda ids: {**said, "runs": len(ids)}
            )
            made = frozenset(await store.backfill(stored, found.wanted(), audit=audit))
            await self._note([stored], reason)
        return found.record(made, dry_run=dry_run)

    async def sync(self, app: Declaring) -> records.Synced:
        """Make the stored calendars and jobs of an app what its code declares. Jobs that the code declared before and
        no longer does are only named; those that were added otherwise are left alone."""
        store = await self._context.open()
        for calendar in app.calendars.values():
            await store.save_calendar(self._context.namespace, calendar)
        return await self.declare(app.name, app.declared_jobs(store.now()), app.source)

    async def declare(self, app: str, jobs: Sequence[Job], source: str) -> records.Synced:
        """Make these the stored jobs of an app, all or nothing."""
        context, store = self._context, await self._context.open()
        audit: Audit[Saved] | None = context.audit("job.sync", f"app:{app}", None, lambda saved: saved)
        saved = await store.sync_jobs(app, context.namespace, jobs, source=source, audit=audit)
        return msgspec.convert(saved, records.Synced, from_attributes=True)

    async def _note(self, jobs: Sequence[Job], reason: str) -> None:
        """Keep a reason among the events, where the action itself has no place for it."""
        if reason:
            store = await self._context.open()
            now = store.now()
            await store.record_events(
                [
                    Event("job.noted", now, job.namespace, None, job.id, job.name, job.task, reason=reason)
                    for job in jobs
                ]
            )


def _fitting(
    *,
    app: str | None = None,
    task: str | None = None,
    tag: str | None = None,
    queue: str | None = None,
    q: str | None = None,
    state: str | None = None,
) -> Callable[[Job], bool]:
    """Whether a job fits all filters."""
    part = None if q is None else q.lower()
    return lambda job: (
        app in (None, job.app)
        and task in (None, job.task)
        and queue in (None, job.queue)
        and (tag is None or tag in job.options.tags)
        and (part is None or part in job.name.lower())
        and (state is None or state == ("active" if job.paused_at is None else "paused"))
    )


def _place(job: Job, sort: Sort) -> str:
    """The position of a job in an order."""
    if sort == "name":
        return job.name
    return f"{job.next_fire_at if sort == 'next' else job.last_fire_at} {job.id}"


def is_place(text: str) -> bool:
    """Whether a text may be a place in an order of instants: see `Jobs.page`."""
    return re.fullmatch(r"-?\d{1,18}( \S+)?", text, re.ASCII) is not None


def _check_version(job: Job, seen: Versions) -> None:
    versions = {seen} if isinstance(seen, int) else seen
    if versions is not None and job.version not in versions:
        wanted = ", ".join(map(str, sorted(versions)))
        problem = f"job {job.name} has version {job.version}, not {wanted}: read it again, and decide again"
        raise VersionConflict(problem, job.version)


async def _last_run(store: Store, job: Job) -> Run | None:
    """A run of the newest firing that has one that is still kept; of several, one that did not succeed."""
    size = len(job.policy.regions) * job.policy.completions
    rows = [row for row in await store.list_firings(job.id, limit=size) if row.run_id is not None]
    if not rows:
        return None
    newest = [row for row in rows if row.fire_at == rows[0].fire_at]
    telling = next((row for row in newest if row.outcome != SUCCEEDED), newest[0])
    return await if_found(store.get_run(job.namespace, telling.run_id or ""))


def _whole_instants(rows: Sequence[Firing], limit: int) -> Sequence[Firing]:
    """At most `limit` rows, but all rows of an instant or none: the next page begins with the instant before."""
    if len(rows) <= limit:
        return rows
    whole = [row for row in rows[:limit] if row.fire_at != rows[limit].fire_at]
    return whole or rows[:limit]
