"""Calendars: named sets of wall-clock times at which jobs do not fire.

A calendar excludes what any of its rules excludes; a job's calendars exclude what any of them excludes. Rules read the
clocks of their calendar's zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, time, timedelta
from functools import lru_cache
from typing import NamedTuple

import msgspec

from mainspring.core.instants import DAY, LATEST, Instant, from_wall, load_zone, to_datetime, transition_between
from mainspring.core.runs.graph import check_acyclic
from mainspring.core.schedules.calendar_rules import (
    DEEPEST,
    WEEKDAYS,
    Blackout,
    CronRule,
    DailyWindow,
    Dates,
    Not,
    Other,
    Rule,
    SimpleRule,
    Weekdays,
    check_rules,
    count_parts,
    ends_of,
    references,
)
from mainspring.core.schedules.cron import ALL_SECONDS, Cron, parse_cron
from mainspring.errors import InvalidInput, NotFound

MOST_PARTS = 1_000
"""Rules and days of a calendar, with those of the calendars that it refers to."""
MOST_RULES = 100
"""The same without single days, which are found by a look-up. Each instant is compared with every rule: a calendar with
very many would delay the planner."""
MOST_CALENDARS, MOST_PARTS_OF_ALL = 1_000, 20_000
"""Those of one namespace: a planner holds all of them."""
SEARCHED_DAYS = 731
_ONE_DAY = timedelta(days=1)
_MICROSECOND = timedelta(microseconds=1)


class Calendar(msgspec.Struct, frozen=True):
    """A named set of exclusions."""

    name: str
    rules: tuple[Rule, ...]
    tz: str = "UTC"


def excluded(names: Iterable[str], instant: Instant, calendars: Mapping[str, Calendar]) -> str | None:
    """Why an instant is excluded, naming the calendar and what in it matched; None if all these calendars allow it."""
    reading = _Reading(instant, calendars)
    for name in names:
        found = reading.exclusion(name)
        if found is not None:
            return f"calendar {name} excludes {found}"
    return None


def excluded_until(names: Iterable[str], instant: Instant, calendars: Mapping[str, Calendar]) -> Instant | None:
    """An instant after an excluded one, a day later at most, before which all others are excluded too; else None.

    It lets a search cross a long exclusion in few steps. What it returns may itself be excluded: ask again there.
    """
    reading = _Reading(instant, calendars)
    if all(reading.exclusion(name) is None for name in names):
        return None
    return reading.steady_until()


def count_rules(names: Iterable[str], calendars: Mapping[str, Calendar]) -> int:
    """How many rules an instant is compared with: those of these calendars, and of all that they refer to."""
    return sum(_count_rules(calendars[name].rules) for name in _reached(names, calendars))


def next_allowed_day(
    instant: Instant, names: Iterable[str], calendars: Mapping[str, Calendar], zone: str, days: int = SEARCHED_DAYS
) -> Instant | None:
    """The same time by the clocks of `zone` on the next day on which it is allowed; None if none comes in these days.

    Where the clocks skip that time, it is the instant of the jump; where they show it twice, the first.
    """
    names = tuple(names)
    wall = to_datetime(instant, zone).replace(tzinfo=None)
    last_day = min(days, (LATEST - instant) // DAY - 1)
    for number in range(1, last_day + 1):
        candidate = from_wall(wall + timedelta(days=number), zone)
        if excluded(names, candidate, calendars) is None:
            return candidate
    return None


class ExcludedDay(NamedTuple):
    """A day by the clocks of a calendar's zone that it excludes, wholly or in part, and what in it matched first."""

    day: date
    whole: bool
    reason: str


def excluded_day(name: str, day: date, calendars: Mapping[str, Calendar]) -> ExcludedDay | None:
    """What a calendar excludes of a day of its zone; None if it allows all of it."""
    zone = calendars[name].tz
    instant = from_wall(datetime.combine(day, time()), zone)
    end = from_wall(datetime.combine(day + _ONE_DAY, time()), zone)
    reason, whole = None, True
    while instant < end and (reason is None or whole):
        reading = _Reading(instant, calendars)
        found = reading.exclusion(name)
        reason, whole = reason or found, whole and found is not None
        instant = reading.steady_until()
    return None if reason is None else ExcludedDay(day, whole, reason)


class _Reading:
    """What calendars say about one instant. Each is read once, however many others refer to it."""

    def __init__(self, instant: Instant, calendars: Mapping[str, Calendar]) -> None:
        self._instant = instant
        self._calendars = calendars
        self._found: dict[str, str | None] = {}
        self._open: list[str] = []
        self._consulted: list[tuple[SimpleRule, datetime]] = []

    def exclusion(self, name: str) -> str | None:
        """What in a calendar excludes the instant; None if it allows it."""
        if name not in self._found:
            self._found[name] = self._read(name)
        return self._found[name]

    def steady_until(self) -> Instant:
        """Before this instant, all that was found so far stays as it is."""
        changes = (_next_change(rule, moment) - moment for rule, moment in self._consulted)
        until = self._instant + min(changes, default=_ONE_DAY) // _MICROSECOND
        for name in self._found:
            # Where the clocks are turned, time to a reading of theirs is not the difference between the readings.
            turned = transition_between(self._instant, until, self._calendars[name].tz)
            until = until if turned is None else turned
        return until

    def _read(self, name: str) -> str | None:
        if name in self._open:
            # Raises, with the circle: two edits at the same time can close one that neither of them saw.
            check_acyclic(_edges(self._calendars), "rules")
        calendar = self._calendars.get(name)
        if calendar is None:
            raise NotFound(f"there is no calendar {name!r}: create it, or take it off the job or calendar naming it")
        moment = to_datetime(self._instant, calendar.tz).replace(tzinfo=None)
        self._open.append(name)
        found = self._first_match(calendar.rules, moment)
        self._open.pop()
        return found

    def _first_match(self, rules: Iterable[Rule], moment: datetime) -> str | None:
        for rule in rules:
            found = self._match(rule, moment)
            if found is not None:
                return found
        return None

    def _match(self, rule: Rule, moment: datetime) -> str | None:
        if isinstance(rule, Other):
            found = self.exclusion(rule.calendar)
            return None if found is None else f"{found} (calendar {rule.calendar})"
        if isinstance(rule, Not):
            return _describe(rule) if self._first_match(rule.rules, moment) is None else None
        self._consulted.append((rule, moment))
        return _match(rule, moment)


def _match(rule: SimpleRule, moment: datetime) -> str | None:
    if isinstance(rule, CronRule):
        return _describe(rule) if _excluding(rule.expression).matches_wall(moment) else None
    # ISO texts of one form sort as the times that they stand for, and a shorter one as its own beginning. So a rule's
    # texts are compared as they are, and need no parsing at each evaluation.
    shown = moment.isoformat()
    match rule:
        case Weekdays(days):
            day = WEEKDAYS[moment.weekday()]
            return day if day in days else None
        case Dates(dates):
            return _covering(tuple(dates), shown[:10])
        case DailyWindow(start, end):
            clock = shown[11:]
            matches = start <= clock < end if start < end else clock >= start or clock < end
        case Blackout(start, end):
            matches = start <= shown < end
    return _describe(rule) if matches else None


def _covering(dates: tuple[str, ...], day: str) -> str | None:
    """Which of the texts of a `Dates` rule names a day."""
    single, ranges = _split_dates(dates)
    found = single.get(day) or single.get(day[len("2026-") :])
    return found or next((text for text in ranges if _covers(text, day)), None)


@lru_cache(maxsize=1024)
def _split_dates(dates: tuple[str, ...]) -> tuple[Mapping[str, str], tuple[str, ...]]:
    """The texts of a `Dates` rule: those of single days, by day, and the ranges."""
    return {ends_of(text)[0]: text for text in dates if "/" not in text}, tuple(text for text in dates if "/" in text)


def _covers(text: str, day: str) -> bool:
    first, last = ends_of(text)
    shown = day[-len(first) :]
    return first <= shown <= last if first <= last else shown >= first or shown <= last


@lru_cache(maxsize=4096)
def _excluding(expression: str) -> Cron:
    """The expression of a rule. One without seconds excludes whole minutes."""
    cron = parse_cron(expression)
    return cron if len(expression.split()) >= 6 else msgspec.structs.replace(cron, seconds=ALL_SECONDS)


def _next_change(rule: SimpleRule, moment: datetime) -> datetime:
    """The first reading after `moment`, midnight at the latest, at which the rule may cease or begin to match."""
    if isinstance(rule, CronRule):
        return _excluding(rule.expression).changes_at(moment)
    today = datetime.combine(moment, time())
    match rule:
        case DailyWindow(start, end):
            marks = [datetime.combine(moment, time.fromisoformat(text)) for text in (start, end)]
        case Blackout(start, end):
            marks = [datetime.fromisoformat(text) for text in (start, end)]
        case Dates() | Weekdays():
            marks = []
    return min(mark for mark in (*marks, today + _ONE_DAY) if mark > moment)


def _describe(rule: Rule) -> str:
    match rule:
        case Dates(parts) | Weekdays(parts):
            return ", ".join(parts)
        case DailyWindow(start, end) | Blackout(start, end):
            return f"{start} to {end}"
        case CronRule(expression):
            return f"cron {expression}"
        case Other(name):
            return f"calendar {name}"
        case Not(rules):
            return "all but " + ", ".join(map(_describe, rules))


def check_calendar(calendar: Calendar, known: Mapping[str, Calendar]) -> None:
    """Refuse a calendar that could not be read, naming the field. `known` are the others, and perhaps its older self.

    Its rules may refer to known calendars only, and never lead back to itself.
    """
    if not calendar.name:
        raise InvalidInput("name", calendar.name, "is empty", "give the calendar a name")
    load_zone(calendar.tz)
    calendars = {**known, calendar.name: calendar}
    if count_parts(calendar.rules) > MOST_PARTS:
        problem = f"are more than {MOST_PARTS} rules and days"
        raise InvalidInput("rules", calendar.name, problem, "write ranges of days as one")
    check_rules(calendar.rules, calendars)
    # All of them: a reference added at the bottom makes every calendar above it deeper.
    edges = _edges(calendars)
    check_acyclic(edges, "rules")
    parts = {name: count_parts(each.rules) for name, each in calendars.items()}
    rules = {name: _count_rules(each.rules) for name, each in calendars.items()}
    _check_room(calendar.name, known, sum(parts.values()))
    heights: dict[str, int] = {}
    for name in edges:
        reached = _follow(name, edges)
        if (total := sum(parts[each] for each in reached)) > MOST_PARTS:
            problem = f"has {total} rules and days, with those of the calendars that it refers to"
            raise InvalidInput("rules", name, problem, f"use at most {MOST_PARTS}; a range of days counts as one")
        if (total := sum(rules[each] for each in reached)) > MOST_RULES:
            problem = f"has {total} rules and ranges of days, with those of the calendars that it refers to"
            raise InvalidInput("rules", name, problem, f"use at most {MOST_RULES}; single days do not count")
        if _height(name, edges, heights) > DEEPEST:
            problem = f"refers to calendars that refer to others, more than {DEEPEST} deep"
            raise InvalidInput("rules", name, problem, "name the last of them directly")


def _check_room(name: str, known: Mapping[str, Calendar], parts: int) -> None:
    if name not in known and len(known) >= MOST_CALENDARS:
        problem, remedy = f"would be more than the {MOST_CALENDARS} of a namespace", "remove those that nothing uses"
        raise InvalidInput("name", name, problem, remedy)
    if parts > MOST_PARTS_OF_ALL:
        problem = f"would make more than {MOST_PARTS_OF_ALL} rules and days in all calendars of the namespace"
        raise InvalidInput("rules", name, problem, "remove calendars that nothing uses, and days that have passed")


def settled(calendar: Calendar) -> Calendar:
    """The calendar as a store returns it: authors may write lists where tuples are declared, and the two are
    not equal. InvalidInput if it is no calendar at all."""
    try:
        return msgspec.convert(msgspec.to_builtins(calendar), Calendar)
    except (msgspec.MsgspecError, TypeError) as error:
        remedy = 'write Calendar("name", rules=(weekends(), ...))'
        raise InvalidInput("calendar", calendar, f"is no calendar: {error}", remedy) from None


def calendars_over(name: str, calendars: Mapping[str, Calendar]) -> frozenset[str]:
    """A calendar and all that refer to it, also by way of others: what changes when it does."""
    edges = _edges(calendars)
    return frozenset(each for each in {*edges, name} if name in _follow(each, edges))


def _reached(names: Iterable[str], calendars: Mapping[str, Calendar]) -> set[str]:
    """Calendars and all that they refer to, as far as they are known."""
    found, left = set[str](), [*names]
    while left:
        name = left.pop()
        if name not in found and name in calendars:
            found.add(name)
            left += references(calendars[name].rules)
    return found


def _count_rules(rules: Iterable[Rule]) -> int:
    total = 0
    for rule in rules:
        if isinstance(rule, Not):
            total += _count_rules(rule.rules)
        total += 1 + len(_split_dates(tuple(rule.dates))[1]) if isinstance(rule, Dates) else 1
    return total


def _follow(name: str, edges: Mapping[str, tuple[str, ...]]) -> set[str]:
    """A calendar and all that it refers to."""
    found, left = {name}, [name]
    while left:
        new = set(edges.get(left.pop(), ())) - found
        found |= new
        left += new
    return found


def _height(name: str, edges: Mapping[str, tuple[str, ...]], heights: dict[str, int]) -> int:
    if name not in heights:
        heights[name] = 1 + max((_height(other, edges, heights) for other in edges.get(name, ())), default=0)
    return heights[name]


def _edges(calendars: Mapping[str, Calendar]) -> dict[str, tuple[str, ...]]:
    return {name: tuple(references(calendar.rules)) for name, calendar in calendars.items()}
