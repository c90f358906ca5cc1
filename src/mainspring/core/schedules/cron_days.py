"""The dates of a cron expression, compiled so that finding the next one is a shift of bits.

Which days of a month match depends on nothing but the month's shape: its length and the weekday of its first day.
There are 28 shapes, so an expression's days are 28 masks, and the months that hold any match are one mask over all
months from 1970 to 2199. That mask empty means that the expression never fires.
"""

from __future__ import annotations

import re
from calendar import isleap
from datetime import date

import msgspec

from mainspring.core.schedules.cron_fields import FIRST_YEAR, LAST_YEAR, UNIX_WEEKDAY, Field
from mainspring.errors import InvalidCron

_EPOCH_ORDINAL = date(FIRST_YEAR, 1, 1).toordinal()
_THURSDAY = 4
_SHAPES = 28
_YEARS = range(FIRST_YEAR, LAST_YEAR + 1)
_EVERY_JANUARY = sum(1 << 12 * (year - FIRST_YEAR) for year in _YEARS)
_EVERY_WEEK = sum(1 << 7 * week for week in range(5))

_RELATIVE_DAY = re.compile(r"(?:([Ll])(?:-([0-9]+))?|([0-9]+))([Ww])?")
_WEEKDAY_OF_MONTH = re.compile(r"([0-9A-Za-z]+?)(?:#([0-9]+)|[Ll])")
_LAST_WEEK = 0


def lowest_bit(mask: int) -> int:
    """The number of the lowest bit that is set; the mask must not be 0."""
    return (mask & -mask).bit_length() - 1


def _shape(first_weekday: int, length: int) -> int:
    return (length - 28) * 7 + first_weekday


def _shapes_of_all_months() -> bytes:
    shapes = bytearray()
    weekday = _THURSDAY
    for year in _YEARS:
        for length in (31, 29 if isleap(year) else 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31):
            shapes.append(_shape(weekday, length))
            weekday = (weekday + length) % 7
    return bytes(shapes)


_SHAPE_OF_MONTH = _shapes_of_all_months()
_MONTHS_OF_SHAPE = [0] * _SHAPES
for _month, _found in enumerate(_SHAPE_OF_MONTH):
    _MONTHS_OF_SHAPE[_found] |= 1 << _month


class Days(msgspec.Struct, frozen=True):
    """The dates on which an expression fires, from 1970 to 2199. Days are numbered from 1970-01-01, which is 0."""

    months: int
    """Bit n is set when the n-th month since January 1970 holds a matching day."""
    by_shape: tuple[int, ...]
    """For each shape of a month its matching days: bit n is day n."""

    def first_from(self, day: int) -> int | None:
        """The first matching day that is not before `day`, in constant time; None when there is none up to 2199."""
        start = date.fromordinal(day + _EPOCH_ORDINAL)
        month = (start.year - FIRST_YEAR) * 12 + start.month - 1
        if self.months >> month & 1:
            rest = self.by_shape[_SHAPE_OF_MONTH[month]] >> start.day
            if rest:
                return day + lowest_bit(rest)
        later = self.months >> month + 1
        if not later:
            return None
        month += 1 + lowest_bit(later)
        first = date(FIRST_YEAR + month // 12, month % 12 + 1, 1).toordinal() - _EPOCH_ORDINAL
        return first + lowest_bit(self.by_shape[_SHAPE_OF_MONTH[month]]) - 1

    def contains(self, moment: date) -> bool:
        """Whether that date matches."""
        month = (moment.year - FIRST_YEAR) * 12 + moment.month - 1
        if month < 0 or not self.months >> month & 1:
            return False
        return bool(self.by_shape[_SHAPE_OF_MONTH[month]] >> moment.day & 1)


def compile_days(days: Field, months: Field, weekdays: Field, years: Field | None) -> Days:
    """The dates that four fields name together; refused when there is no such date.

    A date must match day of month and day of week if either field begins with `*` or is `?`; otherwise one of the
    two is enough, as in cron since Vixie's.
    """
    month_days, week_days = _read_month_days(days), _read_week_days(weekdays)
    both = days.starred or weekdays.starred or "?" in (days.text, weekdays.text)
    by_shape = []
    for shape in range(_SHAPES):
        length, first_weekday = 28 + shape // 7, shape % 7
        in_month, in_week = month_days.mask(first_weekday, length), week_days.mask(first_weekday, length)
        matching = in_month & in_week if both else in_month | in_week
        by_shape.append(matching & (2 << length) - 2)
    holding = (months.mask() >> 1) * _EVERY_JANUARY
    if years is not None:
        holding &= _months_of_years(years)
    holding &= sum(_MONTHS_OF_SHAPE[shape] for shape, found in enumerate(by_shape) if found)
    if not holding:
        raise _never(days, months, weekdays, years)
    return Days(holding, tuple(by_shape))


def _months_of_years(years: Field) -> int:
    named = years.mask()
    return sum(0xFFF << 12 * (year - FIRST_YEAR) for year in _YEARS if named >> year & 1)


def _never(days: Field, months: Field, weekdays: Field, years: Field | None) -> InvalidCron:
    named = [field for field in (days, months, weekdays, years) if field and field.text not in ("*", "?")]
    dates = ", ".join(f"{field.kind.name} {field.text!r}" for field in named)
    remedy = "choose a day that exists, or L for the last day of the month"
    return InvalidCron("cron", days.expression, f"never fires: no date has {dates}", remedy)


class _RelativeDay(msgspec.Struct, frozen=True):
    """`L`, `L-3`, `15W`, `LW`: a day that depends on the month's shape."""

    number: int
    from_end: bool
    nearest_weekday: bool

    def mask(self, first_weekday: int, length: int) -> int:
        day = length - self.number if self.from_end else self.number
        if not 1 <= day <= length:
            return 0
        if self.nearest_weekday:
            weekday = (first_weekday + day - 1) % 7
            if weekday == 6:
                day += -1 if day > 1 else 2
            elif weekday == 0:
                day += 1 if day < length else -2
        return 1 << day


class _MonthDays(msgspec.Struct, frozen=True):
    """The day-of-month field. Its mask may hold days that the month does not have."""

    fixed: int
    relative: tuple[_RelativeDay, ...]

    def mask(self, first_weekday: int, length: int) -> int:
        bits = self.fixed
        for day in self.relative:
            bits |= day.mask(first_weekday, length)
        return bits


class _WeekDays(msgspec.Struct, frozen=True):
    """The day-of-week field, numbered from Sunday, which is 0. Its mask may hold days that the month does not have."""

    every: int
    of_month: tuple[tuple[int, int], ...]
    """Pairs of a weekday and which one in the month it is, `_LAST_WEEK` for the last."""

    def mask(self, first_weekday: int, length: int) -> int:
        bits = 0
        for weekday in range(7):
            if self.every >> weekday & 1:
                bits |= _EVERY_WEEK << 1 + (weekday - first_weekday) % 7
        for weekday, week in self.of_month:
            first = 1 + (weekday - first_weekday) % 7
            bits |= 1 << first + 7 * ((length - first) // 7 if week == _LAST_WEEK else week - 1)
        return bits


def _read_month_days(field: Field) -> _MonthDays:
    if field.text == "?":
        return _MonthDays(-1, ())
    fixed, relative = 0, []
    for part in field.parts():
        match = _RELATIVE_DAY.fullmatch(part)
        if match is None or part.isdigit():
            for value in field.values(part):
                fixed |= 1 << value
            continue
        last, before_last, number, nearest = match.groups()
        if before_last and int(before_last) > 30:
            raise field.refusal(part, "reaches before the first of every month", "use L-1 to L-30")
        day = int(before_last or 0) if last else field.value(number, part)
        relative.append(_RelativeDay(day, last is not None, nearest is not None))
    return _MonthDays(fixed, tuple(relative))


def _read_week_days(field: Field) -> _WeekDays:
    if field.text == "?":
        return _WeekDays(-1, ())
    sunday = field.kind.low
    every, of_month = 0, []
    for part in field.parts():
        match = _WEEKDAY_OF_MONTH.fullmatch(part)
        if match is None:
            for value in [_lone_last(field)] if part in ("L", "l") else field.values(part):
                every |= 1 << (value - sunday) % 7
            continue
        text, week = match.groups()
        if week is not None and not 1 <= int(week) <= 5:
            raise field.refusal(part, "asks for a week that no month has", "use #1 to #5, or L for the last, as in 5L")
        of_month.append(((field.value(text, part) - sunday) % 7, _LAST_WEEK if week is None else int(week)))
    return _WeekDays(every, tuple(of_month))


def _lone_last(field: Field) -> int:
    """In Quartz a lone L means the last day of the week, Saturday; elsewhere it is most likely a slip."""
    if field.kind is UNIX_WEEKDAY:
        raise field.refusal("L", "does not say which day", "write 5L for the last Friday, or put L in day of month")
    return field.kind.high
