"""Cron expressions by the rules of other programs, by an evaluator apart from `core`, so that the two can differ.

Only the plain grammar is known here: five fields with `*`, lists, ranges, steps and names, and macros. An expression
beyond it has no fire times to compare.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Literal, NamedTuple
from zoneinfo import ZoneInfo

from mainspring.core.instants import Instant, from_datetime, load_zone, to_datetime
from mainspring.core.schedules.cron import MACROS
from mainspring.core.schedules.triggers import CronTrigger, Trigger
from mainspring.ops.migrate.found import FireTimes

Rules = Literal["debian", "robfig", "airflow"]
"""Debian's cron; the library of Kubernetes' CronJobs; Airflow's timetables.

| | a time that a clock change skips | a time that comes twice | `*/2` for the day beside a weekday |
|---|---|---|---|
| debian | right after the gap, if hour and minute are fixed | once, if hour and minute are fixed | needs both |
| robfig | never | twice | either |
| airflow | as much later as the gap is long | once | either |
"""
_MONTHS = dict(
    zip(("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), range(1, 13), strict=True)
)
_WEEKDAYS = dict(zip(("sun", "mon", "tue", "wed", "thu", "fri", "sat"), range(7), strict=True))
_PART = re.compile(r"(\*|(\w+)(?:-(\w+))?)(?:/(\d+))?")
_HOUR, _MINUTE = timedelta(hours=1), timedelta(minutes=1)
_SEARCHED = timedelta(days=5 * 366)
"""A leap day is at most eight years away, and is not worth a second of search."""


class TheirCron(NamedTuple):
    """An expression as sets of numbers. Weekdays are 0 to 6 from Sunday."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    either_day: bool
    """Whether a day matches by its number or by its weekday; otherwise it needs both."""
    is_fixed: bool
    """Whether neither the hour nor the minute begins with a star."""
    rules: Rules

    def has_day(self, moment: datetime) -> bool:
        """Whether the date of a wall clock matches."""
        by_number, by_week = moment.day in self.days, moment.isoweekday() % 7 in self.weekdays
        either = by_number or by_week if self.either_day else by_number and by_week
        return moment.month in self.months and either

    def fires(self, after: Instant, zone: str) -> Iterator[Instant]:
        """The instants at which it fires in a zone."""
        place = load_zone(zone)
        if self.rules == "robfig" or (self.rules == "debian" and not self.is_fixed):
            return self._by_instants(after, place)
        return self._by_wall_clock(after, place)

    def _by_instants(self, after: Instant, place: ZoneInfo) -> Iterator[Instant]:
        """Each minute whose wall clock matches, however often it shows that time."""
        moment = to_datetime(after).replace(second=0, microsecond=0) + _MINUTE
        end = moment + _SEARCHED
        while moment < end:
            wall = moment.astimezone(place)
            if not self.has_day(wall) or wall.hour not in self.hours:
                moment += _HOUR - timedelta(minutes=wall.minute)
                continue
            if wall.minute in self.minutes:
                yield from_datetime(moment)
            moment += _MINUTE

    def _by_wall_clock(self, after: Instant, place: ZoneInfo) -> Iterator[Instant]:
        """Each matching time of the wall clock, once."""
        wall = to_datetime(after).astimezone(place).replace(tzinfo=None, second=0, microsecond=0) - 2 * _HOUR
        end, last = wall + _SEARCHED, after
        while wall < end:
            if not self.has_day(wall) or wall.hour not in self.hours:
                wall += _HOUR - timedelta(minutes=wall.minute)
                continue
            if wall.minute in self.minutes and (due := from_datetime(self._settle(wall, place))) > last:
                last = due
                yield due
            wall += _MINUTE

    def _settle(self, wall: datetime, place: ZoneInfo) -> datetime:
        """The instant of a wall clock time; of one that is skipped, the one that these rules choose."""
        # Before a gap, fold=0 counts with the earlier offset: the result is as much later as the gap is long.
        instant = wall.replace(tzinfo=place).astimezone(UTC)
        back = instant.astimezone(place).replace(tzinfo=None)
        if back == wall or self.rules == "airflow":
            return instant
        while (instant - _MINUTE).astimezone(place).replace(tzinfo=None) > wall:
            instant -= _MINUTE
        return instant


def their_fires(trigger: Trigger, rules: Rules) -> FireTimes | None:
    """The fire times of a cron trigger by the rules of another program; None if there are none to compare."""
    theirs = read_their_cron(trigger.expression, rules) if isinstance(trigger, CronTrigger) else None
    return partial(theirs.fires, zone=trigger.tz) if theirs and isinstance(trigger, CronTrigger) else None


def read_their_cron(expression: str, rules: Rules) -> TheirCron | None:
    """An expression by the rules of another program; None if it is beyond the plain grammar."""
    fields = MACROS.get(expression.strip().lower(), expression).split()
    if len(fields) != 5:
        return None
    try:
        minutes, hours, days = _read(fields[0], 0, 59), _read(fields[1], 0, 23), _read(fields[2], 1, 31)
        months, weekdays = _read(fields[3], 1, 12, _MONTHS), _read(fields[4], 0, 7, _WEEKDAYS)
    except ValueError:
        return None
    starred = any(field.startswith("*") for field in fields[2::2]) if rules == "debian" else "*" in fields[2::2]
    is_fixed = not fields[0].startswith("*") and not fields[1].startswith("*")
    return TheirCron(minutes, hours, days, months, frozenset(day % 7 for day in weekdays), not starred, is_fixed, rules)


def _read(field: str, low: int, high: int, names: dict[str, int] | None = None) -> frozenset[int]:
    found: set[int] = set()
    for part in field.replace("?", "*").split(","):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(part)
        whole, first, last, step = match.groups()
        begin = low if whole == "*" else _number(first, names)
        end = high if whole == "*" or (last is None and step) else _number(last or first, names)
        if not low <= begin <= end <= high:
            raise ValueError(part)
        found |= set(range(begin, end + 1, int(step or 1)))
    return frozenset(found)


def _number(text: str, names: dict[str, int] | None) -> int:
    named = (names or {}).get(text.lower()[:3]) if not text.isdigit() else None
    return int(text) if named is None else named
