"""Jobs, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from mainspring.client.calendars import Calendars
from mainspring.client.connection import Connection, Request, path_of
from mainspring.client.resource import Resource
from mainspring.core.instants import SECOND, parse_duration
from mainspring.core.runs.retry import Length, Retry, RetryPolicy
from mainspring.core.schedules.triggers import Trigger
from mainspring.errors import Conflict, NotFound
from mainspring.operations import records
from mainspring.operations.filters import JobFilters
from mainspring.operations.jobs.jobs import Sort
from mainspring.operations.jobs.options import JobWords, read_policy, read_words, word_values
from mainspring.operations.planning.records import Simulation
from mainspring.operations.values.bodies import body_of, trigger_body
from mainspring.operations.views.records import JobCounts

if TYPE_CHECKING:
    from mainspring.sdk.app import Mainspring

_COMPANIONS = ("timezone", "dialect", "anchor", "when", "on_failure")
"""What belongs to a trigger, and is cleared with it."""


class Jobs(Resource):
    """`client.jobs`. A job is named by its name or its id."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(connection)
        self._calendars = Calendars(connection)

    async def add(
        self,
        name: str,
        trigger: Trigger,
        *,
        task: str,
        args: Mapping[str, object] | None = None,
        replace: bool = False,
        idempotency_key: str | None = None,
        **words: Unpack[JobWords],
    ) -> records.NewJob:
        """Store a new job. Conflict if there is one of that name; with `replace`, that one gets this definition."""
        values = read_words(words, JobWords, "a job")
        read_policy(values)
        body = {"name": name, "task": task, "args": args or {}, **trigger_body(trigger), **word_values(values)}
        request = Request("POST", path_of("jobs"), body=body, key=idempotency_key)
        try:
            return await self._connection.ask(request, records.NewJob)
        except Conflict:
            if not replace:
                raise
        replaced = await self.replace(name, body)
        return records.NewJob(**msgspec.structs.asdict(replaced), status="scheduled", retry_count=0)

    async def get(self, job: str) -> records.JobStory:
        """A job, and what keeps it from firing."""
        return await self._get(records.JobStory, "jobs", await self._named(job))

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
        query: dict[str, Any] = {**filters, "last": last or None, "recent": recent or None, "times": times or None}
        query["sort"] = None if sort == "name" else sort
        return self._each(records.ListedJob, "jobs", limit=limit, **query)

    async def count(self) -> JobCounts:
        """How many jobs there are, and how many of them are paused."""
        return await self._get(JobCounts, "jobs:count")

    async def preview(self, trigger: Trigger, *, count: int = 10, **words: Unpack[JobWords]) -> records.Preview:
        """What a job with this trigger and these options would do, without storing it."""
        body = {**trigger_body(trigger), **word_values(read_words(words, JobWords, "a job"))}
        request = Request("POST", path_of("jobs:preview"), {"count": count}, body=body)
        return await self._connection.ask(request, records.Preview)

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
        version: int | None = None,
        **words: Unpack[JobWords],
    ) -> records.Job:
        """Change what is named: `retries` alone leaves how long to wait, `retry_policy` alone how often. `clear` names
        options to take away. With a `version`, Conflict if the job has been changed since."""
        change = _change(trigger, clear, words)
        change |= {name: value for name, value in (("task", task), ("args", args)) if value is not None}
        if retries is not None or retry_policy is not None:
            Retry(retries, policy=retry_policy)
            retry = {"retries": retries, "policy": retry_policy}
            change["retry"] = {name: value for name, value in retry.items() if value is not None}
        request = Request("PATCH", path_of("jobs", await self._named(job)), body=change, headers=_if_match(version))
        return await self._connection.ask(request, records.Job)

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
        """What a job would have done or will do if it were edited like this, from `since` (a week ago) to `until` (a
        week later), while the scheduler is down in `outages`. Nothing is stored."""
        body: dict[str, Any] = {"job": job, "change": _change(trigger, clear, words), "from": since, "to": until}
        body["outages"] = [{"from": begin.isoformat(), "to": end.isoformat()} for begin, end in outages]
        if took is not None:
            body["took"] = parse_duration(took, "took") / SECOND
        return await self._post(Simulation, "jobs:simulate", **body)

    async def replace(self, job: str, body: Mapping[str, object], *, version: int | None = None) -> records.Job:
        """Replace a definition, in the words of the API: what is left out is as if the job were new."""
        request = Request("PUT", path_of("jobs", await self._named(job)), body=body, headers=_if_match(version))
        return await self._connection.ask(request, records.Job)

    async def remove(self, job: str, *, reason: str = "", version: int | None = None) -> None:
        """Remove a definition. Its unfinished runs go on, and the ledger stays."""
        path = path_of("jobs", await self._named(job))
        await self._connection.send(Request("DELETE", path, {"reason": reason or None}, headers=_if_match(version)))

    async def pause(self, *jobs: str, reason: str = "") -> Sequence[records.Job]:
        """Stop jobs from firing, one after the other: instants that come due meanwhile are recorded as skipped."""
        return [await self._act(job, "pause", reason) for job in jobs]

    async def resume(self, *jobs: str, reason: str = "") -> Sequence[records.Job]:
        """Let paused jobs fire again, from their next instants after now."""
        return [await self._act(job, "resume", reason) for job in jobs]

    async def _named(self, job: str) -> str:
        """How a path names a job: by its id, if a path cannot contain its name."""
        if "/" not in job and job not in (".", ".."):
            return job
        async for found in self._each(records.ListedJob, "jobs", limit=1, name=job):
            return found.job_id
        raise NotFound(f"there is no job {job!r}: `mainspring job list` shows those that exist")

    async def _act(self, job: str, verb: str, reason: str) -> records.Job:
        return await self._post(records.Job, "jobs", await self._named(job), verb, reason=reason or None)

    async def trigger(self, job: str, request_id: str | None = None) -> records.Firing:
        """Fire a job now, by hand. Repeated with the same request id, it is the same firing."""
        return await self._post(records.Firing, "jobs", await self._named(job), "trigger", request_id=request_id)

    async def backfill(
        self, job: str, since: datetime, until: datetime, *, limit: int = 100, dry_run: bool = False, reason: str = ""
    ) -> records.Backfill:
        """Fire the instants of a past interval that never ran, at most `limit`; `next` in the answer says where to go
        on."""
        body = {"from": since, "to": until, "limit": limit, "dry_run": dry_run, "reason": reason or None}
        return await self._post(records.Backfill, "jobs", await self._named(job), "backfill", **body)

    async def next(self, job: str, count: int = 10, zone: str | None = None) -> Sequence[records.FireTime]:
        """When a job will fire, in its own zone or another."""
        name = await self._named(job)
        return (await self._get(records.FireTimes, "jobs", name, "next", count=count, timezone=zone)).items

    async def firings(
        self, job: str, limit: int | None = None, *, region: str | None = None
    ) -> AsyncGenerator[records.Firing, None]:
        """What became of a job's due instants, newest first; in one region, or in all."""
        path = ("jobs", await self._named(job), "firings")
        async for firing in self._each(records.Firing, *path, limit=limit, region=region):
            yield firing

    async def runs(self, job: str, limit: int | None = None) -> AsyncGenerator[records.Run, None]:
        """The runs of a job, newest first."""
        async for run in self._each(records.Run, "jobs", await self._named(job), "runs", limit=limit):
            yield run

    async def sync(self, app: Mainspring) -> records.Synced:
        """Make the stored calendars and jobs of an app what its code declares. Others of its jobs are only named."""
        for calendar in app.calendars.values():
            await self._calendars.save(calendar)
        declared = app.declared_jobs(self._connection.now())
        jobs = [body_of(job) for job in declared]
        return await self._post(records.Synced, "jobs:sync", app=app.name, source=app.source, jobs=jobs)


def _change(trigger: Trigger | None, clear: Collection[str], words: JobWords) -> dict[str, Any]:
    """What should be different about a job, in the words of the API."""
    changed = word_values(read_words(words, JobWords, "a job")) | dict.fromkeys(clear)
    return changed | ({} if trigger is None else {**dict.fromkeys(_COMPANIONS), **trigger_body(trigger)})


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}
