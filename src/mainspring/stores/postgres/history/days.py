"""History has partitions by day. Says which days to search for a run, by its id alone."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.core.ids import time_of
from mainspring.core.instants import DAY, Duration, Instant

SLACK: Duration = 2 * DAY
"""Ids come from clocks that may be ahead of the server's. If by more than half of this, all days are searched."""


def day_of(instant: Instant) -> Instant:
    """The beginning of a day, in UTC."""
    return instant // DAY * DAY


def not_before(run_ids: Iterable[str], now: Instant) -> Instant:
    """The day before which none of these runs can have ended: an id begins with the time when it was made."""
    earliest = min((time_of(run_id) or 0 for run_id in run_ids), default=0)
    return day_of(max(earliest - SLACK, 0)) if earliest <= now + SLACK // 2 else 0
