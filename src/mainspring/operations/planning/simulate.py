"""What a changed job would have done, or will do: a simulation over a past or coming span, with what history says of
its durations."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from statistics import median
from typing import Final, Literal, NamedTuple

from mainspring.core.instants import DAY, MINUTE, SECOND, Duration, Instant, from_datetime
from mainspring.core.model import Job
from mainspring.core.planning.firing_limits import check_firings
from mainspring.core.planning.simulation import Outage, PredictedFiring, Prediction, simulate
from mainspring.core.schedules.words import in_words
from mainspring.errors import InvalidInput
from mainspring.operations.context import Context, time_limit
from mainspring.operations.planning.load import LONGEST, LONGEST_S, LoadAhead
from mainspring.operations.planning.records import SimulatedLoad, Simulation
from mainspring.operations.values.from_rows import moment, same_fields
from mainspring.operations.views.explain import look_around
from mainspring.operations.views.records import FiringCell
from mainspring.store import Store

LONGEST_SPAN: Final[Duration] = 366 * DAY
MOST_HISTORY: Final = 1_000
"""Firings of the past whose durations are looked at."""
_WIDTH: Final = 5 * MINUTE

Span = tuple[datetime, datetime]


class History(NamedTuple):
    """What is known of the durations of a job's runs."""

    source: Literal["given", "history", "unknown"]
    usual: Duration
    known: Sequence[tuple[Instant, Duration]] = ()
    """Instants of earlier runs and how long they took, in order."""
    unfinished: Sequence[PredictedFiring] = ()
    """Runs that had started when the span began, and ended in it."""

    def took(self, instant: Instant) -> Duration:
        """How long a run takes: as the last one before it did; beyond what is known, as one usually does."""
        index = bisect_right(self.known, (instant, LONGEST_SPAN))
        return self.known[index - 1][1] if index > 0 and instant <= self.known[-1][0] else self.usual


async def simulate_job(
    context: Context,
    draft: Job,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    outages: Sequence[Span] = (),
    took: Duration | None = None,
) -> Simulation:
    """What a job would do from `since` (a week ago) to `until` (a week later), while the scheduler is down in
    `outages`. Its runs take as long as they did, or as `took` says. A job with an id is compared with its own past."""
    check_firings(draft, context.settings.firing_rate_of(draft.namespace))
    store = await context.open()
    now = store.now()
    first = now - 7 * DAY if since is None else from_datetime(since, "from")
    last = first + 7 * DAY if until is None else from_datetime(until, "to")
    _check_span(first, last)
    down = [_outage(number, span, first, last) for number, span in enumerate(outages)]
    calendars = await store.list_calendars(context.namespace)
    if unknown := [name for name in draft.policy.calendars if name not in calendars]:
        remedy = "`mainspring calendar list` shows those that do"
        raise InvalidInput("calendars", unknown[0], "does not exist", remedy)
    history = await _history(store, draft, first, last) if took is None else History("given", took)
    span = draft, calendars, first, last
    enough = time_limit(LONGEST_S)
    found = await asyncio.to_thread(simulate, *span, history.took, down, history.unfinished, enough)
    is_ahead = first >= now and last - first <= LONGEST
    return _record(draft, found, history, await _load(context, draft, found, first, last) if is_ahead else None)


def _check_span(first: Instant, last: Instant) -> None:
    if not first < last <= first + LONGEST_SPAN:
        remedy = "give a span of up to 366 days"
        raise InvalidInput("to", str(moment(last)), "is not after `from`, or more than 366 days later", remedy)


def _outage(number: int, span: Span, first: Instant, last: Instant) -> Outage:
    begin, end = (from_datetime(each, f"outages[{number}]") for each in span)
    if not first <= begin < end <= last:
        problem = "is not within the span, or ends before it begins"
        raise InvalidInput(f"outages[{number}]", str(moment(end)), problem, "give a beginning and a later end in it")
    return Outage(begin, end)


async def _history(store: Store, job: Job, first: Instant, last: Instant) -> History:
    """The durations of the newest runs before the end of the span."""
    if not job.id:
        return History("unknown", 0)
    rows = await store.list_firings(job.id, before=last, limit=MOST_HISTORY)
    runs = await store.finished([row.run_id for row in rows if row.run_id is not None])
    known = sorted(
        (run.fire_at, run.finished_at - run.started_at)
        for run in runs
        if run.fire_at is not None and run.finished_at is not None and run.started_at is not None
    )
    if not known:
        return History("unknown", 0)
    across = [
        PredictedFiring(run.fire_at or 0, "succeeded", region=run.region, run_id=run.id, finished_at=run.finished_at)
        for run in runs
        if (run.fire_at or first) < first < (run.finished_at or 0)
    ]
    return History("history", round(median(length for _, length in known)), known, across)


async def _load(context: Context, job: Job, found: Prediction, first: Instant, last: Instant) -> SimulatedLoad | None:
    """The fullest of the periods in which the job starts."""
    ours = Counter((row.started_at - first) // _WIDTH for row in found.rows if row.started_at is not None)
    others = await LoadAhead(context).by_period(first, last, _WIDTH, without=job.id)
    if not ours:
        return None
    number = max(ours, key=lambda each: (others.starts[each] + ours[each], -each))
    work = sum((row.finished_at or 0) - (row.started_at or 0) for row in found.rows if row.started_at is not None
               and (row.started_at - first) // _WIDTH == number)  # fmt: skip
    living = (await look_around(context, context.namespace)).living()
    return SimulatedLoad(
        at=moment(first + number * _WIDTH),
        others=others.starts[number],
        starts=others.starts[number] + ours[number],
        busy=round((others.work_s[number] * SECOND + work) / _WIDTH, 3),
        capacity=sum(each.concurrency for each in living if each.state == "active"),
    )


def _record(job: Job, found: Prediction, history: History, load: SimulatedLoad | None) -> Simulation:
    counts: Counter[str] = Counter()
    for row in found.rows:
        counts[row.outcome] += max(row.count, 1)
    return Simulation(
        items=[_cell(row) for row in found.rows],
        counts=dict(counts),
        schedule=in_words(job.trigger),
        took=history.source,
        took_s=None if history.source == "unknown" else history.usual / SECOND,
        most_at_once=found.most_at_once(),
        longest_wait_s=found.longest_wait() / SECOND,
        load=load,
        partial=found.partial,
    )


def _cell(row: PredictedFiring) -> FiringCell:
    started, finished = row.started_at, row.finished_at
    cell = {
        "kind": "scheduled",
        "run_id": None,
        "index": row.idx,
        "late_s": None if started is None else max(started - row.fire_at, 0) / SECOND,
        "took_s": None if started is None or finished is None else (finished - started) / SECOND,
        "attempts": row.attempts or None,
        "note": "",
    }
    return FiringCell(**same_fields(row, FiringCell) | cell)
