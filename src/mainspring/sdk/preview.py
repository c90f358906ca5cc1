"""When a trigger is due: to try out an expression, and for tests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mainspring.clock import SystemClock
from mainspring.core.instants import load_zone, parse_instant
from mainspring.core.model import Job, JobPolicy
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import Trigger, check_trigger
from mainspring.operations.planning.forecast import forecast


def fire_times(
    trigger: Trigger, count: int = 5, *, after: str | datetime | None = None, calendars: Sequence[Calendar] = ()
) -> list[datetime]:
    """The next instants of a trigger after an instant (now, unless given), without those that calendars exclude.

    They are in the zone of a `cron` trigger, otherwise in UTC. `after` and `manual` triggers have none.
    """
    check_trigger(trigger)
    now = SystemClock().now() if after is None else parse_instant(after, "after")
    known = {each.name: each for each in calendars}
    job = Job(id="", name="", task="", trigger=trigger, policy=JobPolicy(calendars=tuple(known)), created_at=now)
    return [time.fire_at.astimezone(load_zone(time.zone)) for time in forecast(job, known, now, count)]
