"""Proposals that flatten a peak: which jobs to move by how much, and what the peak is then. Nothing is written."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple

import msgspec

from mainspring.core.instants import (
    MINUTE,
    Duration,
    Instant,
    format_duration,
    format_instant,
    from_datetime,
    parse_duration,
)
from mainspring.core.load.spreading import Firing, shift_trigger, spread
from mainspring.core.model import Job
from mainspring.core.planning.firing_limits import runs_of
from mainspring.core.planning.plans import next_fire_at
from mainspring.core.runs.retry import Length
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import describe
from mainspring.core.schedules.words import in_words
from mainspring.errors import InvalidInput
from mainspring.operations.context import Context, time_limit
from mainspring.operations.planning.load import LONGEST_S, PINNED, LoadAhead, Plan, bounds, is_movable, plan_load
from mainspring.operations.planning.records import Peak, Spread, SpreadEdit, StayingJob
from mainspring.operations.values.bodies import trigger_body
from mainspring.operations.values.from_rows import moment

WITHIN: Final = "15m"
MOST_WITHIN: Final[Duration] = 60 * MINUTE
MOST_STAYING: Final = 200


class _Moved(NamedTuple):
    """A job, the minutes by which it moves, and the job after that."""

    job: Job
    minutes: int
    edited: Job
    planned: Sequence[Instant]
    """Its instants now."""
    wanted: Sequence[Instant]
    """Its instants after the move."""


async def propose_spread(
    context: Context,
    *,
    since: datetime | None = None,
    until: datetime | None = None,
    within: Length = WITHIN,
    target: int = 0,
    **only: str | None,
) -> Spread:
    """Which jobs to move, by at most `within`, so that fewer runs start in the fullest minute from `since` (now) to
    `until` (a day later). It stops at a peak of `target`. `queue` and `tag` narrow the jobs."""
    store = await context.open()
    first, last = bounds(store.now(), since, until)
    first -= first % MINUTE
    reach = parse_duration(within, "within")
    if not MINUTE <= reach <= MOST_WITHIN:
        raise InvalidInput("within", within, "is not between a minute and an hour", "choose 1m to 1h, like 15m")
    plans, cut = await LoadAhead(context).plans(first, last, **only)
    calendars = await store.list_calendars(context.namespace)
    moved, late = await asyncio.to_thread(
        _moves, plans, calendars, first, last, reach // MINUTE, target, time_limit(LONGEST_S)
    )
    return _record(plans, moved, first, format_duration(reach), partial=cut or late)


def _moves(
    plans: Sequence[Plan],
    calendars: Mapping[str, Calendar],
    first: Instant,
    last: Instant,
    reach: int,
    target: int,
    enough: Callable[[], bool],
) -> tuple[list[_Moved], bool]:
    """The jobs that move, with the instants that they then really have; and whether time ran out."""
    jobs = [(job, plan.instants) for plan in plans for job in plan.jobs]
    firings = [Firing(instants, runs_of(job), _shifts(job, reach)) for job, instants in jobs]
    found = spread(firings, first, target, enough)
    edited = [_edited(jobs[number][0], minutes, first, calendars) for number, minutes in found.items()]
    again, _ = plan_load([job for job in edited if job.next_fire_at is not None], calendars, first, last)
    instants = {job.id: plan.instants for plan in again for job in plan.jobs}
    moves = zip(found.items(), edited, strict=True)
    return [
        _Moved(jobs[number][0], minutes, job, jobs[number][1], instants.get(job.id, ()))
        for (number, minutes), job in moves
    ], enough()


def _shifts(job: Job, reach: int) -> list[int]:
    if not is_movable(job):
        return []
    shifts = [minutes for minutes in range(-reach, reach + 1) if minutes]
    return [minutes for minutes in shifts if shift_trigger(job.trigger, minutes, job.created_at) is not None]


def _edited(job: Job, minutes: int, first: Instant, calendars: Mapping[str, Calendar]) -> Job:
    trigger = shift_trigger(job.trigger, minutes, job.created_at) or job.trigger
    moved = msgspec.structs.replace(job, trigger=trigger)
    return msgspec.structs.replace(moved, next_fire_at=next_fire_at(moved, first - 1, calendars))


def _record(plans: Sequence[Plan], moved: Sequence[_Moved], first: Instant, within: str, *, partial: bool) -> Spread:
    wanted = {each.job.id: each.wanted for each in moved}
    before: Counter[Instant] = Counter()
    after: Counter[Instant] = Counter()
    for plan in plans:
        for job in plan.jobs:
            for load, instants in ((before, plan.instants), (after, wanted.get(job.id, plan.instants))):
                for at in instants:
                    load[_minute(at, first)] += runs_of(job)
    peak = _peak(after)
    return Spread(
        edits=[_edit(each, before, first, within) for each in sorted(moved, key=lambda each: each.job.name)],
        before=_peak(before),
        after=peak,
        staying=[] if peak is None else _staying(plans, from_datetime(peak.at), wanted),
        partial=partial,
    )


def _minute(at: Instant, first: Instant) -> Instant:
    return at - (at - first) % MINUTE


def _peak(load: Counter[Instant]) -> Peak | None:
    if not load:
        return None
    at = max(load, key=lambda minute: (load[minute], -minute))
    return Peak(moment(at), load[at])


def _edit(each: _Moved, before: Counter[Instant], first: Instant, within: str) -> SpreadEdit:
    fullest = max((_minute(at, first) for at in each.planned), key=lambda at: before[at])
    others = before[fullest] - runs_of(each.job)
    return SpreadEdit(
        job=each.job.name,
        version=each.job.version,
        minutes=each.minutes,
        schedule=in_words(each.job.trigger),
        to=in_words(each.edited.trigger),
        change=trigger_body(each.edited.trigger),
        reason=f"{others:,} other runs start in the minute of {format_instant(fullest)}; it may move by up to {within}",
    )


def _staying(plans: Sequence[Plan], peak: Instant, moved: Mapping[str, Sequence[Instant]]) -> list[StayingJob]:
    """The jobs that still start in the fullest minute, and why they do not move."""
    found = []
    for plan in plans:
        for job in plan.jobs:
            instants = moved.get(job.id, plan.instants)
            if any(peak <= at < peak + MINUTE for at in instants):
                found.append(StayingJob(job.name, _why_staying(job, is_moved=job.id in moved)))
    return sorted(found, key=lambda each: each.job)[:MOST_STAYING]


def _why_staying(job: Job, *, is_moved: bool) -> str:
    if is_moved:
        return "it moves here"
    if PINNED in job.options.tags:
        return f"its tag {PINNED} keeps it"
    if not is_movable(job):
        return f"its schedule ({describe(job.trigger)}) has no single minute that could move"
    return "no minute that it may move to would be emptier"
