"""Queues, tallies, errors and the load ahead, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Literal

from mainspring.client.connection import Connection, Request, path_of
from mainspring.client.pages import each
from mainspring.core.instants import format_duration, parse_duration
from mainspring.core.runs.retry import Length
from mainspring.operations.planning.records import Spread
from mainspring.operations.records import Term
from mainspring.operations.views import records


class Queues:
    """`client.queues`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> records.Queues:
        """All queues that have due runs, workers or a pause, by name."""
        return await self._connection.ask(Request("GET", path_of("queues")), records.Queues)

    async def pause(self, queue: str, reason: str = "") -> records.Queue:
        """Keep the runs of a queue from being claimed."""
        body = {"reason": reason} if reason else {}
        return await self._connection.ask(Request("POST", path_of("queues", queue, "pause"), body=body), records.Queue)

    async def resume(self, queue: str, reason: str = "") -> records.Queue:
        """Let the runs of a queue be claimed again."""
        body = {"reason": reason} if reason else {}
        return await self._connection.ask(Request("POST", path_of("queues", queue, "resume"), body=body), records.Queue)

    async def gates(self) -> records.Gates:
        """How full gates are, and the longest lines."""
        return await self._connection.ask(Request("GET", path_of("gates")), records.Gates)


class Actions:
    """`client.actions`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def runs(self, action: records.RunAction, **words: object) -> records.ActedRuns:
        """Cancel or retry many runs: `run_ids`, or those that a filter fits (`states`, `job`, `task`, `tag`, `queue`,
        `worker`, `region`, `error`, `since`, `until`); `limit`, `before`, `dry_run`, `reason`."""
        renamed = {"states": "state", "before": "cursor"}
        body = {renamed.get(name, name): _plain(value) for name, value in words.items() if value}
        request = Request("POST", path_of("runs:act"), body={"action": action, **body})
        return await self._connection.ask(request, records.ActedRuns)

    async def jobs(self, action: records.JobAction, **words: object) -> records.ActedJobs:
        """Pause, resume or trigger many jobs: `names`, or those that a filter fits (`app`, `task`, `tag`, `queue`, `q`,
        `state`); `limit`, `after`, `dry_run`, `reason`."""
        renamed = {"names": "jobs", "after": "cursor"}
        body = {renamed.get(name, name): _plain(value) for name, value in words.items() if value}
        request = Request("POST", path_of("jobs:act"), body={"action": action, **body})
        return await self._connection.ask(request, records.ActedJobs)


class Insight:
    """`client.insight`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def tallies(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        bucket: str | None = None,
        by: Literal["job", "task", "queue"] | None = None,
        job: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        whole: bool = False,
    ) -> records.Tallies:
        """What ended, by period; with `whole`, an entry for each period, also where nothing ended."""
        query = {**_span(since=since, until=until), "bucket": bucket, "by": by}
        query |= {"job": job, "task": task, "queue": queue}
        query |= {"whole": True} if whole else {}
        return await self._connection.ask(Request("GET", path_of("tallies"), query), records.Tallies)

    async def service_levels(
        self, *, since: datetime | None = None, until: datetime | None = None
    ) -> records.ServiceLevels:
        """How many attempts of each priority started within its service level."""
        request = Request("GET", path_of("service-levels"), _span(since=since, until=until))
        return await self._connection.ask(request, records.ServiceLevels)

    def errors(
        self,
        *,
        since: datetime | None = None,
        job: str | None = None,
        task: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[records.ErrorGroup, None]:
        """Kinds of failure, the one that was seen last first; those of a job or a task among its latest failures."""
        query = {**_span(since=since), "job": job, "task": task}
        return each(self._connection, path_of("errors"), query, records.ErrorGroup, limit, size=200)

    async def error(self, error: str) -> records.ErrorStory:
        """A kind of failure, what it affects, and one of its errors."""
        return await self._connection.ask(Request("GET", path_of("errors", error)), records.ErrorStory)

    async def load(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        bucket: Length = "5m",
        queue: str | None = None,
        tag: str | None = None,
    ) -> records.Load:
        """What is planned to start, by period."""
        query = {**_span(**{"from": since, "to": until}), "bucket": bucket, "queue": queue, "tag": tag}
        return await self._connection.ask(Request("GET", path_of("load"), query), records.Load)

    async def load_at(self, since: datetime, until: datetime) -> records.LoadAt:
        """The jobs that are planned to start in a period."""
        query = _span(**{"from": since, "to": until})
        return await self._connection.ask(Request("GET", path_of("load", "at"), query), records.LoadAt)

    async def spread(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        within: Length = "15m",
        target: int = 0,
        queue: str | None = None,
        tag: str | None = None,
    ) -> Spread:
        """Which jobs to move, by at most `within`, so that fewer runs start in the fullest minute. Nothing is
        stored."""
        length = format_duration(parse_duration(within, "within"))
        words = {"within": length, "target": target, "queue": queue, "tag": tag}
        body = {**_span(**{"from": since, "to": until}), **{name: value for name, value in words.items() if value}}
        return await self._connection.ask(Request("POST", path_of("load:spread"), body=body), Spread)

    async def timeline(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        worker: str | None = None,
        jobs: bool = False,
    ) -> records.Spans:
        """When runs were executed; of one worker, if it is named. With `jobs`, each has the queue and the tags of its
        job; not where a worker is named."""
        path = path_of("timeline") if worker is None else path_of("workers", worker, "spans")
        query = {**_span(since=since, until=until), "jobs": True if jobs and worker is None else None}
        return await self._connection.ask(Request("GET", path, query), records.Spans)

    async def run_relations(self, run_id: str) -> records.RunRelations:
        """What belongs to a run."""
        return await self._connection.ask(Request("GET", path_of("runs", run_id, "relations")), records.RunRelations)

    async def job_relations(self, job: str) -> records.JobRelations:
        """The jobs before and after a job."""
        return await self._connection.ask(Request("GET", path_of("jobs", job, "relations")), records.JobRelations)

    async def run_events(self, run_id: str, *, after: int | None = None, limit: int = 200) -> records.EventPage:
        """The stored events of a run."""
        query = {"after": after, "limit": limit}
        return await self._connection.ask(Request("GET", path_of("runs", run_id, "events"), query), records.EventPage)

    async def events(
        self,
        *,
        after: int | None = None,
        since: datetime | None = None,
        kinds: Sequence[str] = (),
        limit: int = 50,
        **named: str | None,
    ) -> records.EventPage:
        """Stored events in order: of a `job`, a `task`, a `run` or a `worker`."""
        query = {"after": after, **_span(since=since), "kind": list(kinds), "limit": limit, **named}
        return await self._connection.ask(Request("GET", path_of("events:page"), query), records.EventPage)

    async def ledger(
        self, job: str, *, since: datetime | None = None, until: datetime | None = None, bucket: str | None = None
    ) -> records.FiringWindow:
        """The due instants of a job in a span, newest first."""
        query = {**_span(since=since, until=until), "bucket": bucket}
        return await self._connection.ask(Request("GET", path_of("jobs", job, "ledger"), query), records.FiringWindow)

    def ledgers(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        bucket: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[records.LedgerRow, None]:
        """What ended of each job by period, jobs in order of name."""
        query = {**_span(since=since, until=until), "bucket": bucket}
        return each(self._connection, path_of("ledger"), query, records.LedgerRow, limit, size=200)

    async def terms(self, since: datetime | None = None, limit: int = 50) -> Sequence[Term]:
        """The latest terms of leadership, newest first."""
        query = {**_span(since=since), "limit": limit}
        return (await self._connection.ask(Request("GET", path_of("terms"), query), records.Terms)).items

    async def tasks(self) -> records.Tasks:
        """The tasks that live workers know."""
        return await self._connection.ask(Request("GET", path_of("tasks")), records.Tasks)

    async def task(self, task: str) -> records.TaskStory:
        """A task as a worker announced it."""
        return await self._connection.ask(Request("GET", path_of("tasks", task)), records.TaskStory)

    async def facets(self, of: str, prefix: str = "") -> records.Facets:
        """Values that a filter may have."""
        query = {"of": of, "prefix": prefix or None}
        return await self._connection.ask(Request("GET", path_of("facets"), query), records.Facets)


def _plain(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else value


def _span(**bounds: datetime | None) -> dict[str, object]:
    return {name: instant.isoformat() for name, instant in bounds.items() if instant is not None}
