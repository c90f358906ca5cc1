"""Jobs, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Unpack

import msgspec

from mainspring.client.calendars import Calendars
from mainspring.client.connection import Connection, Request, path_of
from mainspring.client.pages import each
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


class _Found(msgspec.Struct):
    items: list[records.Job]


class Jobs:
    """`client.jobs`. A job is named by its name or its id."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
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
        return await self._connection.ask(Request("GET", await self._path(job)), records.JobStory)

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
        query = {**filters, "last": last or None, "recent": recent or None, "times": times or None}
        query["sort"] = None if sort == "name" else sort
        return each(self._connection, path_of("jobs"), query, records.ListedJob, limit)

    async def count(self) -> JobCounts:
        """How many jobs there are, and how many of them are paused."""
        return await self._connection.ask(Request("GET", path_of("jobs:count")), JobCounts)

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
        request = Request("PATCH", await self._path(job), body=change, headers=_if_match(version))
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
        body: dict[str, Any] = {"job": job, "change": _change(trigger, clear, words)}
        body |= {name: at.isoformat() for name, at in (("from", since), ("to", until)) if at is not None}
        body["outages"] = [{"from": begin.isoformat(), "to": end.isoformat()} for begin, end in outages]
        if took is not None:
            body["took"] = parse_duration(took, "took") / SECOND
        return await self._connection.ask(Request("POST", path_of("jobs:simulate"), body=body), Simulation)

    async def replace(self, job: str, body: Mapping[str, object], *, version: int | None = None) -> records.Job:
        """Replace a definition, in the words of the API: what is left out is as if the job were new."""
        request = Request("PUT", await self._path(job), body=body, headers=_if_match(version))
        return await self._connection.ask(request, records.Job)

    async def remove(self, job: str, *, reason: str = "", version: int | None = None) -> None:
        """Remove a definition. Its unfinished runs go on, and the ledger stays."""
        query = {"reason": reason or None}
        await self._connection.send(Request("DELETE", await self._path(job), query, headers=_if_match(version)))

    async def pause(self, *jobs: str, reason: str = "") -> Sequence[records.Job]:
        """Stop jobs from firing, one after the other: instants that come due meanwhile are recorded as skipped."""
        return [await self._act(job, "pause", reason) for job in jobs]

    async def resume(self, *jobs: str, reason: str = "") -> Sequence[records.Job]:
        """Let paused jobs fire again, from their next instants after now."""
        return [await self._act(job, "resume", reason) for job in jobs]

    async def _path(self, job: str, *more: str) -> str:
        """The path of a job. A name that a path cannot contain is looked up first."""
        if "/" in job or job in (".", ".."):
            found = await self._connection.ask(Request("GET", path_of("jobs"), {"name": job}), _Found)
            if not found.items:
                raise NotFound(f"there is no job {job!r}: `mainspring job list` shows those that exist")
            job = found.items[0].job_id
        return path_of("jobs", job, *more)

    async def _act(self, job: str, verb: str, reason: str) -> records.Job:
        body = {"reason": reason} if reason else {}
        return await self._connection.ask(Request("POST", await self._path(job, verb), body=body), records.Job)

    async def trigger(self, job: str, request_id: str | None = None) -> records.Firing:
        """Fire a job now, by hand. Repeated with the same request id, it is the same firing."""
        body = {} if request_id is None else {"request_id": request_id}
        return await self._connection.ask(Request("POST", await self._path(job, "trigger"), body=body), records.Firing)

    async def backfill(
        self, job: str, since: datetime, until: datetime, *, limit: int = 100, dry_run: bool = False, reason: str = ""
    ) -> records.Backfill:
        """Fire the instants of a past interval that never ran, at most `limit`; `next` in the answer says where to go
        on."""
        interval = {"from": since.isoformat(), "to": until.isoformat()}
        words = {"limit": limit, "dry_run": dry_run, **({"reason": reason} if reason else {})}
        request = Request("POST", await self._path(job, "backfill"), body={**interval, **words})
        return await self._connection.ask(request, records.Backfill)

    async def next(self, job: str, count: int = 10, zone: str | None = None) -> Sequence[records.FireTime]:
        """When a job will fire, in its own zone or another."""
        request = Request("GET", await self._path(job, "next"), {"count": count, "timezone": zone})
        return (await self._connection.ask(request, records.FireTimes)).items

    async def firings(
        self, job: str, limit: int | None = None, *, region: str | None = None
    ) -> AsyncGenerator[records.Firing, None]:
        """What became of a job's due instants, newest first; in one region, or in all."""
        path, query = await self._path(job, "firings"), {"region": region}
        async for firing in each(self._connection, path, query, records.Firing, limit):
            yield firing

    async def runs(self, job: str, limit: int | None = None) -> AsyncGenerator[records.Run, None]:
        """The runs of a job, newest first."""
        async for run in each(self._connection, await self._path(job, "runs"), {}, records.Run, limit):
            yield run

    async def sync(self, app: Mainspring) -> records.Synced:
        """Make the stored calendars and jobs of an app what its code declares. Others of its jobs are only named."""
        for calendar in app.calendars.values():
            await self._calendars.save(calendar)
        declared = app.declared_jobs(self._connection.now())
        body: dict[str, Any] = {"app": app.name, "source": app.source, "jobs": [body_of(job) for job in declared]}
        return await self._connection.ask(Request("POST", path_of("jobs:sync"), body=body), records.Synced)


def _change(trigger: Trigger | None, clear: Collection[str], words: JobWords) -> dict[str, Any]:
    """What should be different about a job, in the words of the API."""
    changed = word_values(read_words(words, JobWords, "a job")) | dict.fromkeys(clear)
    return changed | ({} if trigger is None else {**dict.fromkeys(_COMPANIONS), **trigger_body(trigger)})


def _if_match(version: int | None) -> dict[str, str]:
    return {} if version is None else {"If-Match": f'"{version}"'}
