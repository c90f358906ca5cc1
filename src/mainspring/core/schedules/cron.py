"""Cron expressions: reading them, and finding the next instant at which one fires.

Unix spelling: `minute hour day-of-month month day-of-week`, or six fields with seconds first, or a macro (@yearly,
@annually, @monthly, @weekly, @daily, @midnight, @hourly). Day of week is 0 to 7, both ends Sunday.

Quartz spelling: `second minute hour day-of-month month day-of-week [year]`, day of week 1 to 7 from Sunday. It is
chosen by `dialect="quartz"`, or by a `?` in an expression of six or seven fields. One of the two day fields must be
`?`, since Quartz knows no rule for both. `/15` stands for `*/15`, and all ranges but those of years may wrap.

Both know `*`, lists, ranges, steps (`*/5`, `1-10/2`, and `5/15` for "from 5 to the end by 15"), names in any case, and

    L, L-3      the last day of the month, the third before it
    15W, LW     the Monday-to-Friday day nearest to the 15th, to the last day (L-3W too); never in another month
    5L, FRI#2   in day of week: the last such day of the month, the second one

A day that a month does not have (31, 31W, L-30, #5) is left out in that month. In the Unix spelling ranges of weekdays
may wrap (FRI-MON); others may not. Expressions that can never fire (30 February) are refused when they are read.

Daylight saving, by the shape of the expression as in Debian's cron. If the hour or the minute field begins with `*`,
the expression follows elapsed time: it fires whenever the wall clock shows a matching time, so in both passes of a
repeated hour, and nothing stands in for times that were skipped. Otherwise it follows the wall clock: a matching time
that is skipped fires at the first instant after the gap, one that comes twice fires the first time only.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from zoneinfo import ZoneInfo

import msgspec

from mainspring.core.instants import SECOND, Instant, load_zone
from mainspring.core.schedules.cron_days import Days, compile_days, lowest_bit
from mainspring.core.schedules.cron_fields import LAST_YEAR, QUARTZ_FIELDS, UNIX_FIELDS, Field
from mainspring.errors import InvalidCron

_LONGEST_EXPRESSION = 256
MACROS = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
"""What each macro of Unix cron stands for."""

_NAMED_STEP = re.compile(r"[A-Za-z]{3}.*/[0-9]+")
_WALL_EPOCH = datetime(1970, 1, 1)
_DAY_S = 86_400
_HOUR_S, _MINUTE_S = 3_600, 60
ALL_SECONDS = _ALL_MINUTES = (1 << 60) - 1
_NO_OFFSET = timedelta()
# Later than the end of the last year in every zone; beyond it nothing fires, and far beyond datetime would overflow.
_END_S = (datetime(LAST_YEAR + 1, 1, 3) - _WALL_EPOCH).days * _DAY_S


class Cron(msgspec.Struct, frozen=True):
    """A cron expression, read and checked. It fires at whole seconds, from 1970 to 2199."""

    expression: str
    dialect: str
    """`unix` or `quartz`."""
    follows_wall_clock: bool
    """The daylight-saving policy: the wall clock, or else elapsed time."""
    days: Days
    hours: int
    minutes: int
    seconds: int

    def next_after(self, after: Instant, zone: str) -> Instant | None:
        """The first instant strictly after `after` at which this fires in that zone; None when it never will again."""
        start = max(after // SECOND + 1, 0)
        if start > _END_S:
            return None
        if zone == "UTC":
            fire = self._next_wall(start)
        elif self.follows_wall_clock:
            fire = self._next_by_wall_clock(start, load_zone(zone))
        else:
            fire = self._next_by_elapsed_time(start, load_zone(zone))
        return None if fire is None else fire * SECOND

    def matches_wall(self, moment: datetime) -> bool:
        """Whether a wall clock that shows this naive datetime matches all fields; fractions of a second are ignored."""
        return bool(
            self.hours >> moment.hour & self.minutes >> moment.minute & self.seconds >> moment.second & 1
        ) and self.days.contains(moment)

    def changes_at(self, moment: datetime) -> datetime:
        """The first wall-clock time after a naive datetime, midnight at the latest, at which it may begin or cease to
        match. A match that goes on from one minute or hour to the next may be cut short there."""
        today = datetime(moment.year, moment.month, moment.day)
        found: int | None = _DAY_S
        if self.days.contains(moment):
            clock = moment.hour * _HOUR_S + moment.minute * _MINUTE_S + moment.second
            found = self._end_of_match(moment) if self.matches_wall(moment) else self._next_clock(clock + 1)
        return today + timedelta(seconds=_DAY_S if found is None else found)

    def _end_of_match(self, moment: datetime) -> int:
        hour, minute, second = moment.hour, moment.minute, moment.second
        second = _first_missing(self.seconds, second)
        if second < 60:
            return hour * _HOUR_S + minute * _MINUTE_S + second
        minute = _first_missing(self.minutes, minute) if self.seconds == ALL_SECONDS else minute + 1
        if minute < 60 or self.seconds != ALL_SECONDS:
            return hour * _HOUR_S + minute * _MINUTE_S
        return (_first_missing(self.hours, hour) if self.minutes == _ALL_MINUTES else hour + 1) * _HOUR_S

    def __repr__(self) -> str:
        return f"Cron({self.expression!r}, dialect={self.dialect!r})"

    def _next_by_wall_clock(self, start: int, zone: ZoneInfo) -> int | None:
        # From the second before, so that at the very instant of a jump the times that it skips are seen.
        wall = self._next_wall(_wall_at(start - 1, zone) + 1)
        while wall is not None:
            first, second = _passes(wall, zone)
            if first > second:
                return _change_between(second, first, zone)
            if first >= start:
                return first
            # The second pass of a repeated hour: all that matches in it has fired in the first.
            wall = self._next_wall(wall + _change_between(first, second, zone) - first)
        return None

    def _next_by_elapsed_time(self, start: int, zone: ZoneInfo) -> int | None:
        wall = _wall_at(start, zone)
        first, second = _passes(wall, zone)
        found = self._next_wall(wall)
        if start == first < second:
            # The first pass of a repeated hour: its wall times come again before any that lie beyond it.
            change = _change_between(first, second, zone)
            if found is not None and found - wall < change - start:
                return start + found - wall
            start = change
            found = self._next_wall(_wall_at(change, zone))
        while found is not None:
            first, second = _passes(found, zone)
            if first <= second:
                return first if first >= start else second
            found = self._next_wall(_wall_at(_change_between(second, first, zone), zone))
        return None

    def _next_wall(self, wall: int) -> int | None:
        """The first matching wall time that is not before `wall`, both in seconds of the wall clock since 1970."""
        day, clock = divmod(max(wall, 0), _DAY_S)
        found = self.days.first_from(day)
        if found == day:
            later = self._next_clock(clock)
            if later is not None:
                return day * _DAY_S + later
            found = self.days.first_from(day + 1)
        if found is None:
            return None
        return found * _DAY_S + lowest_bit(self.hours) * 3600 + lowest_bit(self.minutes) * 60 + lowest_bit(self.seconds)

    def _next_clock(self, clock: int) -> int | None:
        """The first matching time of day, in seconds, that is not before `clock`."""
        hour, rest = divmod(clock, 3600)
        if self.hours >> hour & 1:
            minute, second = divmod(rest, 60)
            if self.minutes >> minute & 1:
                seconds = self.seconds >> second
                if seconds:
                    return clock + lowest_bit(seconds)
            minutes = self.minutes >> minute + 1
            if minutes:
                return hour * 3600 + (minute + 1 + lowest_bit(minutes)) * 60 + lowest_bit(self.seconds)
        hours = self.hours >> hour + 1
        if hours:
            hour += 1 + lowest_bit(hours)
            return hour * 3600 + lowest_bit(self.minutes) * 60 + lowest_bit(self.seconds)
        return None


def _first_missing(mask: int, start: int) -> int:
    """The first number from `start` on whose bit is not set."""
    return start + lowest_bit(~(mask >> start))


def _offset_s(moment: datetime, zone: ZoneInfo) -> int:
    offset = zone.utcoffset(moment) or _NO_OFFSET
    return offset.days * _DAY_S + offset.seconds


def _wall_at(second: int, zone: ZoneInfo) -> int:
    """What the zone's wall clock shows at that instant; both in seconds since 1970."""
    return second + _offset_s(datetime.fromtimestamp(second, zone), zone)


def _passes(wall: int, zone: ZoneInfo) -> tuple[int, int]:
    """The instants at which the wall clock shows that time: equal, except around a change of the zone's offset.

    A time that comes twice gives its two instants in order. One that is skipped gives an instant after the gap and
    then one before it.
    """
    moment = _WALL_EPOCH + timedelta(seconds=wall)
    return wall - _offset_s(moment, zone), wall - _offset_s(moment.replace(fold=1), zone)


def _change_between(low: int, high: int, zone: ZoneInfo) -> int:
    """The instant after `low`, up to `high`, at which the offset changes.

    One change is taken for granted: in zone data since 1970 no gap or fold is longer than a day, and no two changes
    are closer than six days.
    """
    offset = _wall_at(low, zone) - low
    while high - low > 1:
        middle = (low + high) // 2
        if _wall_at(middle, zone) - middle == offset:
            low = middle
        else:
            high = middle
    return high


def parse_cron(expression: str, dialect: str | None = None) -> Cron:
    """Read an expression; those read lately are remembered.

    Raises InvalidCron, in well under a millisecond, for everything that cannot be read or can never fire.
    """
    if not isinstance(expression, str):
        raise InvalidCron("cron", expression, "is not a text", 'write it like "0 2 * * *"')
    if dialect not in (None, "unix", "quartz"):
        raise InvalidCron("dialect", dialect, "is not a dialect of cron", "use unix or quartz, or leave it out")
    if len(expression) > _LONGEST_EXPRESSION:
        problem = f"is longer than {_LONGEST_EXPRESSION} characters"
        raise InvalidCron("cron", expression[:_LONGEST_EXPRESSION], problem, "use ranges and steps, or several jobs")
    return _parse(expression, dialect)


@lru_cache(maxsize=4096)
def _parse(given: str, dialect: str | None) -> Cron:
    expression = given.strip(" \t")
    texts = re.split("[ \t]+", _without_macro(expression, dialect))
    if dialect is None:
        dialect = "quartz" if len(texts) in (6, 7) and "?" in expression else "unix"
    years = None
    if dialect == "unix":
        second, minute, hour, day, month, weekday = _unix_fields(expression, texts)
    else:
        second, minute, hour, day, month, weekday, *rest = _quartz_fields(expression, texts)
        years = rest[0] if rest else None
    return Cron(
        expression=expression,
        dialect=dialect,
        follows_wall_clock=not (hour.starred or minute.starred),
        seconds=second.mask(),
        minutes=minute.mask(),
        hours=hour.mask(),
        days=compile_days(day, month, weekday, years),
    )


def _without_macro(expression: str, dialect: str | None) -> str:
    if not expression:
        raise InvalidCron("cron", expression, "is empty", 'write it like "0 2 * * *"')
    if not expression.startswith("@"):
        return expression
    if expression.lower() == "@reboot":
        remedy = "there is no boot to wait for: give a time, or trigger the job where the machine starts"
        raise InvalidCron("cron", expression, "is not supported", remedy)
    if expression.lower() not in MACROS:
        raise InvalidCron("cron", expression, "is not a macro of cron", "use one of " + ", ".join(MACROS))
    if dialect == "quartz":
        raise InvalidCron("cron", expression, "is a macro, which Quartz does not have", "leave the dialect out")
    return MACROS[expression.lower()]


def _unix_fields(expression: str, texts: list[str]) -> list[Field]:
    if len(texts) == 7:
        problem = "has 7 fields, as only the Quartz spelling may"
        raise InvalidCron("cron", expression, problem, 'give dialect="quartz", or put ? in one of the day fields')
    if len(texts) not in (5, 6):
        remedy = "write minute, hour, day of month, month, day of week; with seconds before them if needed"
        raise InvalidCron("cron", expression, _count(texts), remedy)
    if len(texts) == 5:
        texts = ["0", *texts]
    fields = [Field(expression, text, kind) for text, kind in zip(texts, UNIX_FIELDS, strict=True)]
    for field in fields:
        if field.text == "?":
            raise field.refusal("?", "belongs to the Quartz spelling, which has seconds first", "write *")
    return fields


def _quartz_fields(expression: str, texts: list[str]) -> list[Field]:
    if len(texts) not in (6, 7):
        remedy = "Quartz needs second, minute, hour, day of month, month, day of week, and year if wanted"
        raise InvalidCron("cron", expression, _count(texts), remedy)
    fields = [Field(expression, text, kind) for text, kind in zip(texts, QUARTZ_FIELDS[: len(texts)], strict=True)]
    day, weekday = fields[3], fields[5]
    if day.text == weekday.text == "?":
        raise weekday.refusal("?", "and day of month '?' leave the day open", "write * in one of them")
    if not {day.text, weekday.text} & {"?", "*"}:
        problem = f"cannot be combined with day of month {day.text!r} in the Quartz spelling"
        raise weekday.refusal(weekday.text, problem, "write ? in one of them")
    return fields


def check_cron(expression: str, dialect: str | None = None) -> None:
    """Refuse what cannot be read, and, in the Quartz spelling, what Quartz refuses, or takes and does not heed. Jobs
    that were stored before this was checked go on firing: `parse_cron` reads them."""
    cron = parse_cron(expression, dialect)
    if cron.dialect != "quartz":
        return
    day, month, weekday = _quartz_fields(cron.expression, re.split("[ \t]+", cron.expression))[3:6]
    if "?" not in (day.text, weekday.text):
        problem = f"and day of month {day.text!r} are both given, which Quartz does not know"
        raise weekday.refusal(weekday.text, problem, "write ? in one of them, or leave the dialect out")
    parts = weekday.parts()
    for part in parts:
        if len(parts) > 1 and ("#" in part or part[-1] in "Ll"):
            raise weekday.refusal(part, "cannot be in a list in the Quartz spelling", "use a job of its own for it")
    for field in (month, weekday):
        for part in field.parts():
            if _NAMED_STEP.fullmatch(part):
                raise field.refusal(part, "has a step, which Quartz ignores after names", "write numbers, as in 2-6/2")


def _count(texts: list[str]) -> str:
    return f"has {len(texts)} field{'' if len(texts) == 1 else 's'}"
