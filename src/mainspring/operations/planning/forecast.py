"""When a job fires next, and what the clocks of its zone do between its fire times."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Final

import msgspec

from mainspring.core.instants import (
    DAY,
    Duration,
    Instant,
    format_instant,
    from_datetime,
    to_datetime,
    transition_between,
)
from mainspring.core.model import Job
from mainspring.core.planning.plans import next_fire_at
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import CronTrigger, transition_note
from mainspring.operations.records import FireTime

AHEAD: Final[Duration] = 366 * DAY
"""A year has every change of a zone's clocks."""
STEP: Final[Duration] = 10 * DAY
"""No zone changes its clocks twice within this time and is back where it was: Morocco's month of Ramadan is longer."""
CLOSE: Final[Duration] = 7 * DAY
"""A fire time that follows a change of the clocks by more is not what that change moved."""


def forecast(
    job: Job,
    calendars: Mapping[str, Calendar],
    now: Instant,
    count: int,
    zone: str | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> list[FireTime]:
    """The next `count` fire times of a job, from its own next one on; fewer once `enough` answers True."""
    shown = zone or _zone_of(job)
    instants: list[Instant] = []
    # Instants that came due during a pause are skipped when it ends.
    instant = next_fire_at(job, now, calendars) if job.next_fire_at is None or job.paused_at else job.next_fire_at
    while instant is not None and len(instants) < count and not (instants and enough()):
        instants.append(instant)
        # The instants before it have fired by then: a job with a limit of firings ends.
        ahead = msgspec.structs.replace(job, fired=job.fired + len(instants))
        instant = next_fire_at(ahead, instant, calendars)
    return [_fire_time(before, instant, shown) for before, instant in pairwise((now, *instants))]


def forecast_changes(
    job: Job,
    calendars: Mapping[str, Calendar],
    known: Sequence[FireTime],
    zone: str | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> list[FireTime]:
    """Of the year after the fire times that are known: the first one after each change of the clocks. None of a job
    whose firings are limited: it may have ended by then."""
    if not known or job.policy.max_firings is not None:
        return []
    shown, last, found = zone or _zone_of(job), from_datetime(known[-1].fire_at), list[FireTime]()
    for early in range(last, last + AHEAD, STEP):
        changed = transition_between(early, early + STEP, shown)
        if changed is None or enough():
            continue
        instant = next_fire_at(job, changed - 1, calendars)
        if instant is not None and max(last, changed - 1) < instant < changed + CLOSE:
            found.append(_fire_time(changed - 1, instant, shown))
    return found


def _zone_of(job: Job) -> str:
    return job.trigger.tz if isinstance(job.trigger, CronTrigger) else "UTC"


def _fire_time(before: Instant, instant: Instant, zone: str) -> FireTime:
    return FireTime(to_datetime(instant), format_instant(instant, zone), zone, _note(before, instant, zone))


def _note(before: Instant, instant: Instant, zone: str) -> str:
    """What the clocks do between two instants; empty if nothing."""
    changed = transition_between(before, instant, zone) if before < instant else None
    if changed is None:
        return ""
    day = to_datetime(changed, zone).date()
    note = transition_note(changed, zone) or ""
    return note if day == to_datetime(instant, zone).date() else f"{day}: {note}"
