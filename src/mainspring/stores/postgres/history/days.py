"""History has partitions by day. Says which days to search for a run, by its id alone."""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.core.ids import ALPHABET
from mainspring.core.instants import DAY, MILLISECOND, Duration, Instant

SLACK: Duration = 2 * DAY
"""Ids come from clocks that may be ahead of the server's. If by more than half of this, all days are searched."""
_VALUES = {character: value for value, character in enumerate(ALPHABET)}


def day_of(instant: Instant) -> Instant:
    """The beginning of a day, in UTC."""
    return instant // DAY * DAY


def not_before(run_ids: Iterable[str], now: Instant) -> Instant:
    """The day before which none of these runs can have ended: an id begins with the time when it was made."""
    earliest = min((_made_at(run_id) for run_id in run_ids), default=0)
    return day_of(max(earliest - SLACK, 0)) if earliest <= now + SLACK // 2 else 0


def _made_at(run_id: str) -> Instant:
    """0 for an id that contains no time."""
    number = 0
    for character in run_id[:10]:
        value = _VALUES.get(character)
        if value is None:
            return 0
        number = number << 5 | value
    return number * MILLISECOND if len(run_id) >= 10 else 0
