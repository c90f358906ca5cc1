"""Instants for people: in a zone, and from now."""

from __future__ import annotations

from datetime import datetime

from mainspring.core.instants import SECOND, Duration, Instant, from_datetime, to_datetime
from mainspring.core.runs.why import about
from mainspring.operations.records import Run

When = Instant | datetime
"""An instant, as it is stored or as it is shown."""


def instant_of(when: When) -> Instant:
    """The instant of a datetime or of an instant."""
    return from_datetime(when) if isinstance(when, datetime) else when


def moment(when: When, zone: str | None = None) -> str:
    """Weekday, date, time and offset, e.g. `Mon 2026-03-02 02:00:00 +01:00`; in the machine's zone by default."""
    instant = instant_of(when)
    local = to_datetime(instant).astimezone() if zone is None else to_datetime(instant, zone)
    offset = local.strftime("%z")
    return f"{local:%a %Y-%m-%d %H:%M:%S} {offset[:3]}:{offset[3:5]}"


def clock_time(when: When) -> str:
    """The time of day on this machine, to the millisecond."""
    local = to_datetime(instant_of(when)).astimezone()
    return f"{local:%H:%M:%S}.{local.microsecond // 1000:03d}"


def relative(when: When, now: Instant) -> str:
    """`in 3h12m`, `2m ago`, `now`."""
    instant = instant_of(when)
    if abs(instant - now) < SECOND:
        return "now"
    return f"in {about(instant - now)}" if instant > now else f"{about(now - instant)} ago"


def both(when: When, now: Instant) -> str:
    """The moment, and how far it is from now."""
    return f"{moment(when)}  ({relative(when, now)})"


def seconds_of(run: Run) -> float:
    """How long the last attempt of a run took; 0 if it has not ended."""
    if run.started_at is None or run.finished_at is None:
        return 0.0
    return max((run.finished_at - run.started_at).total_seconds(), 0.0)


def length(duration: Duration) -> str:
    """How long something took: `1.24s`, `12ms`, `0.3ms`, `4m30s`."""
    if duration < SECOND:
        return f"{duration / 1000:.1f}ms" if duration < 10_000 else f"{duration // 1000}ms"
    return f"{duration / SECOND:.3g}s" if duration < 60 * SECOND else about(duration)
