"""When a job fires next, and what the clocks of its zone do between its fire times."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import msgspec

from mainspring.core.instants import Instant, format_instant, to_datetime, transition_between
from mainspring.core.model import Job
from mainspring.core.planning.plans import next_fire_at
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import CronTrigger, transition_note
from mainspring.operations.records import FireTime


def forecast(
    job: Job,
    calendars: Mapping[str, Calendar],
    now: Instant,
    count: int,
    zone: str | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> list[FireTime]:
    """The next `count` fire times of a job, from its own next one on; fewer once `enough` answers True."""
    shown = zone or (job.trigger.tz if isinstance(job.trigger, CronTrigger) else "UTC")
    instants: list[Instant] = []
    # Instants that came due during a pause are skipped when it ends.
    instant = next_fire_at(job, now, calendars) if job.next_fire_at is None or job.paused_at else job.next_fire_at
    while instant is not None and len(instants) < count and not (instants and enough()):
        instants.append(instant)
        # The instants before it have fired by then: a job with a limit of firings ends.
        ahead = msgspec.structs.replace(job, fired=job.fired + len(instants))
        instant = next_fire_at(ahead, instant, calendars)
    return [
        FireTime(to_datetime(instant), format_instant(instant, shown), shown, _note(before, instant, shown))
        for before, instant in pairwise((now, *instants))
    ]


def _note(before: Instant, instant: Instant, zone: str) -> str:
    """What the clocks do between two instants; empty if nothing."""
    changed = transition_between(before, instant, zone) if before < instant else None
    if changed is None:
        return ""
    day = to_datetime(changed, zone).date()
    note = transition_note(changed, zone) or ""
    return note if day == to_datetime(instant, zone).date() else f"{day}: {note}"
