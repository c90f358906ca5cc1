"""The load ahead: what is planned to start in each period, and how many slots it keeps busy.

Jobs with the same trigger, calendars and bounds fire at the same instants, which are computed once. The computation
runs in a thread and ends after two seconds: an answer that was cut short says so.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant, format_duration, from_datetime
from mainspring.core.instants import parse_duration as read_duration
from mainspring.core.model import Job
from mainspring.core.planning.firing_limits import runs_of
from mainspring.core.planning.plans import next_fire_at
from mainspring.core.runs.retry import Length
from mainspring.core.runs.tallies import Tally, quantile
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger
from mainspring.errors import InvalidInput
from mainspring.operations.context import InContext, fitting_jobs, time_limit
from mainspring.operations.values.from_rows import moment
from mainspring.operations.views.explain import look_around
from mainspring.operations.views.records import Load, LoadAt, LoadBucket, LoadJob, QuietPeriod
from mainspring.store import Store

MOST_JOBS: Final = 20_000
MOST_INSTANTS: Final = 200_000
LONGEST: Final[Duration] = 31 * DAY
LONGEST_S: Final = 2.0
MOST_BUCKETS: Final = 2_016
"""A week of five minutes."""
MOST_SHOWN: Final = 200
FEW: Final = 0.02
"""Periods with up to this share of the peak's starts, and half of the mean at most, are quiet."""
SHORTEST_QUIET: Final = 6
"""A quiet stretch has at least this many periods: half an hour of five minutes."""
MOST_QUIET: Final = 3
PINNED: Final = "pinned"
"""The tag of jobs that must not be moved."""


class Plan(NamedTuple):
    """Jobs that fire at the same instants, and these instants."""

    jobs: Sequence[Job]
    instants: Sequence[Instant]


class Periods(NamedTuple):
    """What starts in each period, by its number, and how many seconds of work that is."""

    starts: Counter[int]
    work_s: defaultdict[int, float]
    jobs: int
    partial: bool


class LoadAhead(InContext):
    """What `/v1/load` and `mainspring load` show."""

    async def show(
        self, *, since: datetime | None = None, until: datetime | None = None, bucket: Length = "5m", **only: str | None
    ) -> Load:
        """Starts and busy slots from `since` (now) to `until` (a day later), by period. `queue` and `tag` narrow the
        jobs."""
        store = await self._context.open()
        width = read_duration(bucket, "bucket")
        first, last = bounds(store.now(), since, until)
        first -= first % max(width, 1)
        if width < MINUTE or (last - first) // width > MOST_BUCKETS:
            raise InvalidInput("bucket", bucket, f"is too short for {format_duration(last - first)}",
                               f"give at least 1m, and at most {MOST_BUCKETS} buckets")  # fmt: skip
        found = await self.by_period(first, last, width, **only)
        items = [
            LoadBucket(moment(at), found.starts[number], round(found.work_s[number] * SECOND / width, 3))
            for number, at in enumerate(range(first, last, width))
        ]
        peak = max(items, key=lambda each: each.starts, default=None)
        living = (await look_around(self._context, self._context.namespace)).living()
        return Load(
            items=items,
            bucket=format_duration(width),
            capacity=sum(each.concurrency for each in living if each.state == "active"),
            jobs=found.jobs,
            peak=peak if peak is not None and peak.starts else None,
            # What was not computed is not quiet.
            quiet=[] if found.partial else quiet_periods([each.starts for each in items], first, width),
            partial=found.partial,
        )

    async def by_period(
        self, first: Instant, last: Instant, width: Duration, *, without: str | None = None, **only: str | None
    ) -> Periods:
        """What starts in each period of a width; `without` is the id of a job to leave out."""
        store = await self._context.open()
        plans, partial = await self.plans(first, last, **only)
        took = await self._durations(store)
        starts: Counter[int] = Counter()
        work_s: defaultdict[int, float] = defaultdict(float)
        for plan in plans:
            jobs = [job for job in plan.jobs if job.id != without]
            runs = sum(map(runs_of, jobs))
            seconds = sum(runs_of(job) * took.get(job.name, 0.0) for job in jobs)
            for instant in plan.instants:
                number = (instant - first) // width
                starts[number] += runs
                work_s[number] += seconds
        return Periods(starts, work_s, sum(len(plan.jobs) for plan in plans), partial)

    async def at(self, since: datetime, until: datetime, **only: str | None) -> LoadAt:
        """The jobs that start from `since` to before `until`, most starts first; at most 200 are named."""
        store = await self._context.open()
        first, last = bounds(store.now(), since, until)
        plans, _ = await self.plans(first, last, **only)
        found = [
            LoadJob(job.name, len(plan.instants) * runs_of(job), moment(plan.instants[0]), is_movable(job))
            for plan in plans
            if plan.instants
            for job in plan.jobs
        ]
        found.sort(key=lambda each: (-each.starts, each.name))
        return LoadAt(found[:MOST_SHOWN], sum(each.starts for each in found))

    async def plans(
        self, first: Instant, last: Instant, queue: str | None = None, tag: str | None = None
    ) -> tuple[list[Plan], bool]:
        """The active jobs and their instants in a span; and whether that was cut short."""
        store = await self._context.open()

        def fits(job: Job) -> bool:
            is_planned = job.paused_at is None and job.next_fire_at is not None
            return is_planned and queue in (None, job.queue) and (tag is None or tag in job.options.tags)

        jobs = await fitting_jobs(store, self._context.namespace, fits, MOST_JOBS)
        calendars = await store.list_calendars(self._context.namespace)
        return await asyncio.to_thread(plan_load, jobs, calendars, first, last, time_limit(LONGEST_S))

    async def _durations(self, store: Store) -> dict[str, float]:
        """How long a run of each job takes, in seconds: the median of the last day."""
        now, found = store.now(), dict[str, Tally]()
        for key, tally in await store.list_tallies(self._context.namespace, "job", now - DAY - HOUR, now, limit=50_000):
            found.setdefault(key.name, Tally({}, {}, {})).add(tally)
        return {name: (quantile(tally.took, 0.5) or 0) / SECOND for name, tally in found.items()}


def plan_load(
    jobs: Sequence[Job],
    calendars: Mapping[str, Calendar],
    first: Instant,
    last: Instant,
    enough: Callable[[], bool] = lambda: False,
) -> tuple[list[Plan], bool]:
    """The instants of each set of jobs that fire alike, from `first` to before `last`; and whether it was cut short."""
    alike: defaultdict[bytes, list[Job]] = defaultdict(list)
    for job in jobs:
        policy = job.policy
        parts = (job.trigger, job.next_fire_at, policy.calendars, policy.on_excluded, policy.end_at, policy.max_firings)
        alike[msgspec.json.encode((*parts, None if policy.max_firings is None else job.fired))].append(job)
    plans, total = list[Plan](), 0
    for same in alike.values():
        instants = []
        for instant in _instants(same[0], calendars, first, last):
            instants.append(instant)
            total += 1
            if total >= MOST_INSTANTS or (total % 100 == 0 and enough()):
                return [*plans, Plan(same, instants)], True
        plans.append(Plan(same, instants))
        if enough():
            return plans, len(plans) < len(alike)
    return plans, False


def _instants(job: Job, calendars: Mapping[str, Calendar], first: Instant, last: Instant) -> Iterator[Instant]:
    fired, instant = job.fired, job.next_fire_at
    if instant is not None and instant < first:
        instant = next_fire_at(job, first - 1, calendars)
    while instant is not None and instant < last:
        yield instant
        fired += 1
        instant = next_fire_at(msgspec.structs.replace(job, fired=fired), instant, calendars)


def quiet_periods(starts: Sequence[int], first: Instant, width: Duration) -> list[QuietPeriod]:
    """The longest stretches in which little starts, given the starts of each period."""
    little = min(FEW * max(starts, default=0), sum(starts) / max(len(starts), 1) / 2)
    found, begin = list[tuple[int, int]](), 0
    for number, count in enumerate([*starts, little + 1]):
        if count > little:
            if number - begin >= SHORTEST_QUIET:
                found.append((begin, number))
            begin = number + 1
    found.sort(key=lambda each: each[0] - each[1])
    return [
        QuietPeriod(moment(first + begin * width), moment(first + end * width), sum(starts[begin:end]))
        for begin, end in found[:MOST_QUIET]
    ]


def is_movable(job: Job) -> bool:
    """Whether a job may start a little later: it follows the clock at a fixed minute, or an interval, and its tags do
    not pin it."""
    if PINNED in job.options.tags:
        return False
    if isinstance(job.trigger, CronTrigger):
        fields = job.trigger.expression.split()
        return fields[1 if len(fields) > 5 else 0].isdecimal()
    return isinstance(job.trigger, EveryTrigger)


def bounds(now: Instant, since: datetime | None, until: datetime | None) -> tuple[Instant, Instant]:
    """The span that is asked for: from now, for a day, unless it is said; at most 31 days."""
    first = now if since is None else from_datetime(since, "from")
    last = first + DAY if until is None else from_datetime(until, "to")
    if not first < last <= first + LONGEST:
        raise InvalidInput(
            "to", until, "is not after `from`, or more than 31 days later", "give a span of up to 31 days"
        )
    return first, last
