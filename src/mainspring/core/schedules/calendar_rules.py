"""The rules of which calendars are made: how they are written, and what is refused."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from contextlib import suppress
from datetime import date, datetime, time
from functools import lru_cache
from typing import Final

import msgspec

from mainspring.core.schedules.cron import parse_cron
from mainspring.errors import InvalidCron, InvalidInput

WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")

# Deep enough for real calendars, shallow enough that none can exhaust the stack of the scheduler that reads it.
DEEPEST: Final = 8
_DAY = re.compile(r"(?:(\d{4})-|(?:--)?)(\d\d)-(\d\d)", re.ASCII)
_CLOCK = r"(?:[01]\d|2[0-3]):\d\d(?::\d\d)?"
"""Python 3.14 also reads 24:00, which older nodes of the same fleet would refuse."""
_TIME = re.compile(_CLOCK, re.ASCII)
_MOMENT = re.compile(rf"\d{{4}}-\d\d-\d\d(?:T{_CLOCK})?", re.ASCII)


class Dates(msgspec.Struct, frozen=True, tag_field="kind", tag="dates"):
    """Excludes whole days: `2026-12-25`, yearly `12-25` (or `--12-25`), or ranges with both ends, `12-24/01-02`."""

    dates: tuple[str, ...]


class Weekdays(msgspec.Struct, frozen=True, tag_field="kind", tag="weekdays"):
    """Excludes days of the week: `mon` to `sun`."""

    days: tuple[str, ...]


class DailyWindow(msgspec.Struct, frozen=True, tag_field="kind", tag="daily_window"):
    """Excludes a time of every day, `HH:MM` or `HH:MM:SS`, the end not included; it may pass midnight."""

    start: str
    end: str


class Blackout(msgspec.Struct, frozen=True, tag_field="kind", tag="blackout"):
    """Excludes one stretch of time, `2026-11-27T18:00` to `2026-11-30T06:00`, the end not included."""

    start: str
    end: str


class CronRule(msgspec.Struct, frozen=True, tag_field="kind", tag="cron"):
    """Excludes the wall-clock times that an expression matches: seconds if it has seconds, else whole minutes."""

    expression: str


class Other(msgspec.Struct, frozen=True, tag_field="kind", tag="calendar"):
    """Excludes what another calendar excludes, in that calendar's zone."""

    calendar: str


class Not(msgspec.Struct, frozen=True, tag_field="kind", tag="not"):
    """Excludes what none of its rules excludes."""

    rules: tuple[Rule, ...]


SimpleRule = Dates | Weekdays | DailyWindow | Blackout | CronRule
Rule = SimpleRule | Other | Not


def holidays(*dates: str | date) -> Dates:
    """Excludes these days, as dates or in the forms of `Dates`: `holidays("2026-04-06", "12-25", "12-31/01-01")`."""
    rule = Dates(tuple(map(str, dates)))
    _check_simple(rule, "holidays")
    return rule


def weekends() -> Weekdays:
    """Excludes Saturdays and Sundays."""
    return Weekdays(("sat", "sun"))


def business_hours(start: str, end: str) -> Not:
    """Excludes all times of the day but these: `business_hours("09:00", "17:00")`. Add `weekends()` for the days."""
    rule = DailyWindow(start, end)
    _check_simple(rule, "business_hours")
    return Not((rule,))


def blackout(start: str, end: str) -> Blackout:
    """Excludes one stretch of time: `blackout("2026-11-27T18:00", "2026-11-30T06:00")`, the end not included."""
    rule = Blackout(start, end)
    _check_simple(rule, "blackout")
    return rule


@lru_cache(maxsize=4096)
def ends_of(dates: str) -> tuple[str, str]:
    """The first and the last day of one of the texts of a `Dates` rule, yearly ones as `12-25`."""
    first, slash, last = dates.partition("/")
    return first.removeprefix("--"), (last if slash else first).removeprefix("--")


def references(rules: Iterable[Rule]) -> Iterator[str]:
    """The calendars that these rules name."""
    for rule in rules:
        if isinstance(rule, Other):
            yield rule.calendar
        elif isinstance(rule, Not):
            yield from references(rule.rules)


def count_parts(rules: Iterable[Rule]) -> int:
    """How much there is to look at: rules, and the days that they name."""
    total = 0
    for rule in rules:
        match rule:
            case Dates(parts) | Weekdays(parts):
                total += 1 + len(parts)
            case Not(inner):
                total += 1 + count_parts(inner)
            case _:
                total += 1
    return total


def check_rules(rules: tuple[Rule, ...], calendars: Collection[str], path: str = "rules", depth: int = 1) -> None:
    """Refuse rules that could not be evaluated, naming the field; those that name a calendar need it in `calendars`."""
    if depth > DEEPEST:
        raise InvalidInput(path, rules, f"is nested more than {DEEPEST} deep", "put fewer rules inside rules")
    for position, rule in enumerate(rules):
        field = f"{path}[{position}]"
        if isinstance(rule, Not):
            if not rule.rules:
                raise InvalidInput(f"{field}.rules", (), "would exclude all times", "name what it should leave")
            check_rules(rule.rules, calendars, f"{field}.rules", depth + 1)
        elif isinstance(rule, Other):
            if rule.calendar not in calendars:
                problem, remedy = "is not a known calendar", "create that calendar first"
                raise InvalidInput(f"{field}.calendar", rule.calendar, problem, remedy)
        else:
            _check_simple(rule, field)


def _check_simple(rule: SimpleRule, field: str) -> None:
    match rule:
        case Dates(dates):
            for position, text in enumerate(dates):
                _check_dates(text, f"{field}.dates[{position}]")
        case Weekdays(days):
            for position, day in enumerate(days):
                if day not in WEEKDAYS:
                    raise InvalidInput(f"{field}.days[{position}]", day, "is not a day", f"use {', '.join(WEEKDAYS)}")
        case DailyWindow(start, end):
            if _parse_time(start, f"{field}.start") == _parse_time(end, f"{field}.end"):
                remedy = "choose another time; for whole days there are weekdays and dates"
                raise InvalidInput(f"{field}.end", end, "equals the start", remedy)
        case Blackout(start, end):
            if _parse_moment(start, f"{field}.start") >= _parse_moment(end, f"{field}.end"):
                raise InvalidInput(f"{field}.end", end, f"is not after the start, {start}", "choose a later end")
        case CronRule(expression):
            try:
                parse_cron(expression)
            except InvalidCron as error:
                raise InvalidCron(f"{field}.expression", error.value, error.problem, error.remedy) from None


def _check_dates(text: str, field: str) -> None:
    first, slash, last = text.partition("/")
    for day in (first, last) if slash else (first,):
        _check_day(day, field, text)
    start, end = ends_of(text)
    if _is_yearly(start) != _is_yearly(end):
        raise InvalidInput(field, text, "mixes a yearly day with a date", "give both ends with a year, or both without")
    if start > end and not _is_yearly(start):
        raise InvalidInput(field, text, "ends before it begins", "put the earlier date first")


def _is_yearly(day: str) -> bool:
    return len(day) == len("12-25")


def _check_day(day: str, field: str, text: str) -> None:
    if parts := _DAY.fullmatch(day):
        with suppress(ValueError):
            # A leap year stands for any year: 02-29 is a day, if not of every year.
            date(int(parts[1] or 2000), int(parts[2]), int(parts[3]))
            return
    remedy = "write 2026-12-25, yearly 12-25, or a range like 2026-12-24/2027-01-02"
    raise InvalidInput(field, text, "is not a date", remedy)


def _parse_time(text: str, field: str) -> time:
    if _TIME.fullmatch(text):
        with suppress(ValueError):
            return time.fromisoformat(text)
    raise InvalidInput(field, text, "is not a time of day", "write 09:00 or 09:00:30; midnight is 00:00")


def _parse_moment(text: str, field: str) -> datetime:
    if _MOMENT.fullmatch(text):
        with suppress(ValueError):
            return datetime.fromisoformat(text)
    remedy = "write 2026-11-27T18:00, or 2026-11-27 for its midnight; no offset, since the calendar has a zone"
    raise InvalidInput(field, text, "is not a local date and time", remedy)
