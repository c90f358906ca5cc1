"""When a job will fire: its next fire times, and what the clocks of its zone do between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import NamedTuple

import msgspec

from mainspring.core.instants import Instant, format_instant, to_datetime, transition_between
from mainspring.core.model import Job
from mainspring.core.planning.plans import next_fire_at
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import CronTrigger, transition_note
from mainspring.operations.views import View


class Forecast(NamedTuple):
    """A job and the instants at which it will fire, as seen at `now` in a zone."""

    job: Job
    zone: str
    now: Instant
    instants: tuple[Instant, ...]

    def notes(self) -> list[str]:
        """What the clocks do between each instant and the one before it (the first: now); empty if nothing."""
        return [_note(before, instant, self.zone) for before, instant in pairwise((self.now, *self.instants))]


def _note(before: Instant, instant: Instant, zone: str) -> str:
    changed = transition_between(before, instant, zone) if before < instant else None
    if changed is None:
        return ""
    day = to_datetime(changed, zone).date()
    note = transition_note(changed, zone) or ""
    return note if day == to_datetime(instant, zone).date() else f"{day}: {note}"


def forecast(
    job: Job,
    calendars: Mapping[str, Calendar],
    now: Instant,
    count: int,
    zone: str | None = None,
    enough: Callable[[], bool] = lambda: False,
) -> Forecast:
    """The next `count` fire times of a job, from its own next one on; fewer once somebody says that it is enough."""
    shown = zone or (job.trigger.tz if isinstance(job.trigger, CronTrigger) else "UTC")
    instants: list[Instant] = []
    # What came due in a pause is skipped when it ends.
    instant = next_fire_at(job, now, calendars) if job.next_fire_at is None or job.paused_at else job.next_fire_at
    while instant is not None and len(instants) < count and not (instants and enough()):
        instants.append(instant)
        # Those before it will have fired by then: a job with a limit of firings ends.
        ahead = msgspec.structs.replace(job, fired=job.fired + len(instants))
        instant = next_fire_at(ahead, instant, calendars)
    return Forecast(job, shown, now, tuple(instants))


def forecast_view(seen: Forecast) -> list[View]:
    """For programs."""
    return [
        {
            "fire_at": format_instant(instant),
            "local": format_instant(instant, seen.zone),
            "zone": seen.zone,
            "note": note,
        }
        for instant, note in zip(seen.instants, seen.notes(), strict=True)
    ]
