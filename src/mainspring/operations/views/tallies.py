"""Tallies and error groups, as the loop that counts events keeps them: nothing here counts runs."""

from __future__ import annotations

import re
from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any, Final, Literal

from mainspring.core.answers import ErrorGroup as Group
from mainspring.core.ids import encode_time
from mainspring.core.instants import (
    DAY,
    HOUR,
    Duration,
    Instant,
    format_duration,
    from_datetime,
    parse_duration,
)
from mainspring.core.model import Run
from mainspring.core.runs.errors import kind_of_error
from mainspring.core.runs.retry import Length
from mainspring.core.runs.tallies import PERIODS, Kind, Tally, TallyKey, period_of, quantile
from mainspring.core.states import FAILED
from mainspring.errors import InvalidInput, NotFound
from mainspring.operations.context import InContext
from mainspring.operations.values.from_rows import moment, moment_or_none, same_fields, seconds
from mainspring.operations.views.records import (
    ErrorGroup,
    ErrorGroups,
    ErrorStory,
    ServiceLevel,
    ServiceLevels,
    Tallies,
    TallyBucket,
)
from mainspring.store import RunFilter, Store

MOST_ROWS: Final = 20_000
MOST_PERIODS: Final = 2_016
"""A week of five minutes."""
TREND_PERIODS: Final = 24
LONGEST_PERIOD_HOURS: Final = 30
MOST_LOOKED_AT: Final = 200
MOST_SEEN: Final = 500
"""Of how many of the latest failures the jobs are counted, and the groups of one job or task are found."""


class Tallied(InContext):
    """What `/v1/tallies`, `/v1/service-levels`, `/v1/errors`, and the commands of these names show."""

    async def tallies(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        bucket: Length | None = None,
        by: Literal["job", "task", "queue"] | None = None,
        job: str | None = None,
        task: str | None = None,
        queue: str | None = None,
        whole: bool = False,
    ) -> Tallies:
        """What ended from `since` (a day ago) to `until` (now), by period: of the namespace, of one job, task or queue,
        or of each of them (`by`). A bucket is a multiple of five minutes; of jobs and tasks, of an hour. The `whole`
        span has an entry for each period, also where nothing ended."""
        given: dict[Kind, str | None] = {"job": job, "task": task, "queue": queue}
        named: list[tuple[Kind, str]] = [(kind, name) for kind, name in given.items() if name is not None]
        if len(named) + (by is not None) > 1:
            raise InvalidInput(
                "by", by, "is given together with a job, a task or a queue", "give one of by, job, task and queue"
            )
        store = await self._context.open()
        kind, name = named[0] if named else (by or "all", None)
        width = _width(kind, bucket)
        last = store.now() if until is None else from_datetime(until, "until")
        first = last - DAY if since is None else from_datetime(since, "since")
        counted = (await store.tallied(), await _counted_until(store))
        rows = await store.list_tallies(
            self._context.namespace, kind, period_of(kind, first), last, name=name, limit=MOST_ROWS + 1
        )
        found = _merged(rows[:MOST_ROWS], width)
        if whole and by is None:
            found = _every_period(found, first, last, width, name or "")
        items = [_bucket(at, each, tally, kind) for (at, each), tally in found.items()]
        total = Tally({}, {}, {})
        for _, tally in rows[:MOST_ROWS]:
            total.add(tally)
        summed = _bucket(first, name or "", total, kind) if rows and by is None else None
        return Tallies(items, format_duration(width), *counted, len(rows) > MOST_ROWS, summed)

    async def service_levels(self, *, since: datetime | None = None, until: datetime | None = None) -> ServiceLevels:
        """How many attempts of each priority started within its service level, from `since` (a day ago) to `until`
        (now), in periods of five minutes. Priorities of which nothing started are listed if they have a level."""
        store = await self._context.open()
        last = store.now() if until is None else from_datetime(until, "until")
        first = period_of("priority", last - DAY if since is None else from_datetime(since, "since"))
        levels = dict(self._context.settings.service_levels)
        counted = (await store.tallied(), await _counted_until(store))
        found = {str(priority): Tally({}, {}, {}) for priority in levels}
        rows = await store.list_tallies(self._context.namespace, "priority", first, last, limit=MOST_ROWS)
        for key, tally in rows:
            found.setdefault(key.name, Tally({}, {}, {})).add(tally)
        items = [_level(int(name), levels.get(int(name)), tally) for name, tally in found.items()]
        items.sort(key=lambda item: item.priority)
        return ServiceLevels(items, moment(first), moment(last), *counted)

    async def errors(
        self,
        *,
        since: datetime | None = None,
        job: str | None = None,
        task: str | None = None,
        before: str | None = None,
        limit: int = 50,
    ) -> ErrorGroups:
        """Error groups, the one that failed last first: those that failed since an instant, beyond a place. Those of a
        job or a task are the groups of its latest failures, on one page: each counts these failures alone."""
        store = await self._context.open()
        if job is not None or task is not None:
            return await self._errors_of(store, since, job, task, limit)
        first = 0 if since is None else from_datetime(since, "since")
        instant, _, group = (before or "").partition(" ")
        place = None if before is None else (int(instant), group)
        counted_until = await _counted_until(store)
        found = await store.list_errors(self._context.namespace, since=first, before=place, limit=limit + 1)
        trends = await self._trends(store, found[:limit], first)
        following = f"{found[limit - 1].last_at} {found[limit - 1].id}" if len(found) > limit else None
        seen = await self._seen(store, first) if found else {}
        items = [
            ErrorGroup(**_fields(each), trend=trends[each.id], job_count=_jobs_of(seen.get(each.id, ())))
            for each in found[:limit]
        ]
        return ErrorGroups(items, following, counted_until)

    async def _errors_of(
        self, store: Store, since: datetime | None, job: str | None, task: str | None, limit: int
    ) -> ErrorGroups:
        first = 0 if since is None else from_datetime(since, "since")
        counted_until = await _counted_until(store)
        seen = await self._seen(store, first, job=job, task=task)
        found = []
        for error in list(seen)[:limit]:
            with suppress(NotFound):  # A group that is not counted yet.
                found.append(await store.get_error(self._context.namespace, error))
        trends = await self._trends(store, found, first)
        items = []
        for each in found:
            runs = seen[each.id]
            ended = [run.finished_at or run.due_at for run in runs]
            own = {"count": len(runs), "first_at": moment(min(ended)), "last_at": moment(max(ended))}
            fields = _fields(each) | own | {"last_run": runs[0].id}
            items.append(ErrorGroup(**fields, trend=trends[each.id], job_count=_jobs_of(runs)))
        return ErrorGroups(items, None, counted_until)

    async def _seen(
        self, store: Store, first: Instant, *, job: str | None = None, task: str | None = None
    ) -> dict[str, list[Run]]:
        """The newest failed runs by their group, the newest group first. Which group a run is in follows from its
        error, so this is one query."""
        oldest = encode_time(max(first, 0))
        where = RunFilter(self._context.namespace, (FAILED,), limit=MOST_SEEN, since=oldest, job=job, task=task)
        found: dict[str, list[Run]] = {}
        for run in await store.list_runs(where):
            found.setdefault(kind_of_error(run).id, []).append(run)
        return found

    async def error(self, error: str) -> ErrorStory:
        """An error group, the jobs and tasks that it affects, and an error of it as it is."""
        store = await self._context.open()
        group = await store.get_error(self._context.namespace, error)
        runs = await store.runs_of_error(self._context.namespace, error, limit=MOST_LOOKED_AT)
        trend = (await self._trends(store, [group]))[group.id]
        return ErrorStory(
            **_fields(group),
            trend=trend,
            job_count=_jobs_of(runs),
            jobs=sorted({run.job for run in runs if run.job is not None}),
            tasks=sorted({run.task for run in runs}),
            sample=self._context.read(runs[0].error) if runs else None,
        )

    async def _trends(self, store: Store, groups: Iterable[Group], since: Instant = 0) -> dict[str, list[int]]:
        """How often each failed in each period: see `ErrorGroup.trend`."""
        end = period_of("error", store.now()) + HOUR
        hours = min(max(round((end - since) / (TREND_PERIODS * HOUR)), 1), LONGEST_PERIOD_HOURS) if since else 1
        first = end - TREND_PERIODS * hours * HOUR
        trends = {each.id: [0] * TREND_PERIODS for each in groups}
        most = TREND_PERIODS * hours
        for key, tally in await store.newest_tallies(self._context.namespace, "error", [*trends], first, most):
            if key.began_at < end:
                trends[key.name][(key.began_at - first) // (hours * HOUR)] += tally.outcomes.get("failed", 0)
        return trends


async def _counted_until(store: Store) -> datetime | None:
    """Until when events are counted; None if all are. Asked before the counts: a page asks again only if this says so,
    and would miss what is counted in between."""
    return moment_or_none(await store.uncounted_since())


def _width(kind: Kind, bucket: Length | None) -> Duration:
    smallest = PERIODS[kind]
    if bucket is None:
        return max(smallest, HOUR)
    width = parse_duration(bucket, "bucket")
    if width < smallest or width % smallest:
        fault = f"is no multiple of {format_duration(smallest)}"
        raise InvalidInput("bucket", bucket, fault, f"give {format_duration(smallest)} or a multiple of it")
    return width


def _merged(rows: Iterable[tuple[TallyKey, Tally]], width: Duration) -> dict[tuple[Instant, str], Tally]:
    found: dict[tuple[Instant, str], Tally] = {}
    for key, tally in rows:
        place = (key.began_at - key.began_at % width, key.name)
        found.setdefault(place, Tally({}, {}, {})).add(tally)
    return found


def _every_period(
    found: dict[tuple[Instant, str], Tally], first: Instant, last: Instant, width: Duration, name: str
) -> dict[tuple[Instant, str], Tally]:
    if (last - first) // width > MOST_PERIODS:
        raise InvalidInput("bucket", format_duration(width), f"divides the span into more than {MOST_PERIODS} periods",
                           "give larger buckets, or a shorter span")  # fmt: skip
    every = {(at, name): Tally({}, {}, {}) for at in range(first - first % width, last, width)}
    return dict(sorted((every | found).items()))


def _bucket(at: Instant, name: str, tally: Tally, kind: Kind) -> TallyBucket:
    return TallyBucket(
        at=moment(at),
        name=name,
        accepted=tally.accepted if kind == "queue" else None,
        **tally.outcomes,
        late_p50=seconds(quantile(tally.late, 0.5)),
        late_p99=seconds(quantile(tally.late, 0.99)),
        took_p50=seconds(quantile(tally.took, 0.5)),
        took_p95=seconds(quantile(tally.took, 0.95)),
    )


def _level(priority: int, within: Duration | None, tally: Tally) -> ServiceLevel:
    starts = sum(tally.late.values())
    return ServiceLevel(
        priority=priority,
        within=None if within is None else format_duration(within),
        starts=starts,
        late=tally.beyond,
        met=None if within is None or not starts else 1 - tally.beyond / starts,
        late_p50=seconds(quantile(tally.late, 0.5)),
        late_p99=seconds(quantile(tally.late, 0.99)),
    )


def _jobs_of(runs: Iterable[Run]) -> int:
    return len({run.job for run in runs if run.job is not None})


def _fields(group: Group) -> dict[str, Any]:
    return {"error": group.id, **same_fields(group, ErrorGroup)}


def is_error_place(text: str) -> bool:
    """Whether a text may be a place in the list of groups: see `Tallied.errors`."""
    return re.fullmatch(r"\d{1,18} [0-9a-f]{16}", text, re.ASCII) is not None
