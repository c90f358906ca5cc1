"""Queues, tallies, errors and the load ahead, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Literal

from mainspring.client.resource import Resource
from mainspring.core.instants import format_duration, parse_duration
from mainspring.core.runs.retry import Length
from mainspring.operations.planning.records import Spread
from mainspring.operations.records import Term
from mainspring.operations.views import records


class Queues(Resource):
    """`client.queues`."""

    async def list(self) -> records.Queues:
        """All queues that have due runs, workers or a pause, by name."""
        return await self._get(records.Queues, "queues")

    async def pause(self, queue: str, reason: str = "") -> records.Queue:
        """Keep the runs of a queue from being claimed."""
        return await self._post(records.Queue, "queues", queue, "pause", reason=reason or None)

    async def resume(self, queue: str, reason: str = "") -> records.Queue:
        """Let the runs of a queue be claimed again."""
        return await self._post(records.Queue, "queues", queue, "resume", reason=reason or None)

    async def gates(self) -> records.Gates:
        """How full gates are, and the longest lines."""
        return await self._get(records.Gates, "gates")


class Actions(Resource):
    """`client.actions`."""

    async def runs(self, action: records.RunAction, **words: object) -> records.ActedRuns:
        """Cancel or retry many runs: `run_ids`, or those that a filter fits (`states`, `job`, `task`, `tag`, `queue`,
        `worker`, `region`, `error`, `since`, `until`); `limit`, `before`, `dry_run`, `reason`."""
        renamed = {"states": "state", "before": "cursor"}
        body = {renamed.get(name, name): value for name, value in words.items() if value}
        return await self._post(records.ActedRuns, "runs:act", action=action, **body)

    async def jobs(self, action: records.JobAction, **words: object) -> records.ActedJobs:
        """Pause, resume or trigger many jobs: `names`, or those that a filter fits (`app`, `task`, `tag`, `queue`, `q`,
        `state`); `limit`, `after`, `dry_run`, `reason`."""
        renamed = {"names": "jobs", "after": "cursor"}
        body = {renamed.get(name, name): value for name, value in words.items() if value}
        return await self._post(records.ActedJobs, "jobs:act", action=action, **body)


class Insight(Resource):
    """`client.insight`."""

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
        query = {"since": since, "until": until, "bucket": bucket, "by": by, "job": job, "task": task, "queue": queue}
        return await self._get(records.Tallies, "tallies", **query, whole=whole or None)

    async def service_levels(
        self, *, since: datetime | None = None, until: datetime | None = None
    ) -> records.ServiceLevels:
        """How many attempts of each priority started within its service level."""
        return await self._get(records.ServiceLevels, "service-levels", since=since, until=until)

    def errors(
        self,
        *,
        since: datetime | None = None,
        job: str | None = None,
        task: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[records.ErrorGroup, None]:
        """Kinds of failure, the one that was seen last first; those of a job or a task among its latest failures."""
        return self._each(records.ErrorGroup, "errors", limit=limit, size=200, since=since, job=job, task=task)

    async def error(self, error: str) -> records.ErrorStory:
        """A kind of failure, what it affects, and one of its errors."""
        return await self._get(records.ErrorStory, "errors", error)

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
        query = {"from": since, "to": until, "bucket": bucket, "queue": queue, "tag": tag}
        return await self._get(records.Load, "load", **query)

    async def load_at(self, since: datetime, until: datetime) -> records.LoadAt:
        """The jobs that are planned to start in a period."""
        return await self._get(records.LoadAt, "load", "at", **{"from": since, "to": until})

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
        words = {"from": since, "to": until, "within": length, "target": target, "queue": queue, "tag": tag}
        return await self._post(Spread, "load:spread", **{name: value for name, value in words.items() if value})

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
        if worker is not None:
            return await self._get(records.Spans, "workers", worker, "spans", since=since, until=until)
        return await self._get(records.Spans, "timeline", since=since, until=until, jobs=jobs or None)

    async def run_relations(self, run_id: str) -> records.RunRelations:
        """What belongs to a run."""
        return await self._get(records.RunRelations, "runs", run_id, "relations")

    async def job_relations(self, job: str) -> records.JobRelations:
        """The jobs before and after a job."""
        return await self._get(records.JobRelations, "jobs", job, "relations")

    async def run_events(self, run_id: str, *, after: int | None = None, limit: int = 200) -> records.EventPage:
        """The stored events of a run."""
        return await self._get(records.EventPage, "runs", run_id, "events", after=after, limit=limit)

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
        query = {"after": after, "since": since, "kind": list(kinds), "limit": limit}
        return await self._get(records.EventPage, "events:page", **query, **named)

    async def ledger(
        self, job: str, *, since: datetime | None = None, until: datetime | None = None, bucket: str | None = None
    ) -> records.FiringWindow:
        """The due instants of a job in a span, newest first."""
        query = {"since": since, "until": until, "bucket": bucket}
        return await self._get(records.FiringWindow, "jobs", job, "ledger", **query)

    def ledgers(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        bucket: str | None = None,
        limit: int | None = None,
    ) -> AsyncGenerator[records.LedgerRow, None]:
        """What ended of each job by period, jobs in order of name."""
        query = {"since": since, "until": until, "bucket": bucket}
        return self._each(records.LedgerRow, "ledger", limit=limit, size=200, **query)

    async def terms(self, since: datetime | None = None, limit: int = 50) -> Sequence[Term]:
        """The latest terms of leadership, newest first."""
        return (await self._get(records.Terms, "terms", since=since, limit=limit)).items

    async def tasks(self) -> records.Tasks:
        """The tasks that live workers know."""
        return await self._get(records.Tasks, "tasks")

    async def task(self, task: str) -> records.TaskStory:
        """A task as a worker announced it."""
        return await self._get(records.TaskStory, "tasks", task)

    async def facets(self, of: str, prefix: str = "") -> records.Facets:
        """Values that a filter may have."""
        return await self._get(records.Facets, "facets", of=of, prefix=prefix or None)
