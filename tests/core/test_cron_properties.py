"""Random expressions against two oracles: brute force over every instant around real changes, and cronsim.

Expressions are drawn together with their meaning, so the brute force shares no code with what it judges: not the
reading, not the calendar, not the daylight-saving policy.
"""

from __future__ import annotations

from bisect import bisect_left
from calendar import monthrange
from collections.abc import Callable, Iterable
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from itertools import islice
from typing import NamedTuple
from zoneinfo import ZoneInfo

from cronsim import CronSim
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mainspring.core.instants import Instant, from_datetime
from mainspring.core.schedules.cron import parse_cron
from mainspring.errors import InvalidCron

MONTHS = ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"]
WEEKDAYS = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"]


# --- Expressions, drawn with their meaning ---------------------------------------------------------------------------


class Values(NamedTuple):
    """The text of a field, and the values that it names."""

    text: str
    values: frozenset[int]


class Dates(NamedTuple):
    """The text of a field, and whether a date matches it."""

    text: str
    match: Callable[[date], bool]


class Expression(NamedTuple):
    text: str
    second: frozenset[int]
    minute: frozenset[int]
    hour: frozenset[int]
    on: Callable[[date], bool]
    follows_wall_clock: bool

    def match(self, wall: datetime) -> bool:
        return (
            wall.second in self.second
            and wall.minute in self.minute
            and wall.hour in self.hour
            and self.on(wall.date())
        )


def plain_parts(low: int, high: int) -> st.SearchStrategy[Values]:
    """`7`, `3-9`, `3-9/2`, `*/5`, `5/15`; small values more often, since clocks change in the small hours."""
    numbers = st.integers(low, high) | st.integers(low, min(high, low + 4))
    steps = st.integers(1, min(high - low, 20))

    def ranged(ends: list[int], step: int | None) -> Values:
        first, last = sorted(ends)
        text = f"{first}-{last}" if step is None else f"{first}-{last}/{step}"
        return Values(text, frozenset(range(first, last + 1, step or 1)))

    return st.one_of(
        numbers.map(lambda number: Values(str(number), frozenset([number]))),
        st.builds(ranged, st.lists(numbers, min_size=2, max_size=2, unique=True), st.none() | steps),
        steps.map(lambda step: Values(f"*/{step}", frozenset(range(low, high + 1, step)))),
        st.builds(
            lambda first, step: Values(f"{first}/{step}", frozenset(range(first, high + 1, step))), numbers, steps
        ),
    )


def joined(parts: list[Values]) -> Values:
    return Values(",".join(part.text for part in parts), frozenset().union(*(part.values for part in parts)))


def plain(low: int, high: int) -> st.SearchStrategy[Values]:
    star = st.just(Values("*", frozenset(range(low, high + 1))))
    parts = st.lists(plain_parts(low, high), min_size=1, max_size=3).map(joined)
    return st.one_of(star, parts, parts)


def months() -> st.SearchStrategy[Values]:
    star = st.just(Values("*", frozenset(range(1, 13))))
    named = st.integers(1, 12).map(lambda month: Values(MONTHS[month - 1].title(), frozenset([month])))
    return st.one_of(star, star, star, plain(1, 12), named)


def length_of(day: date) -> int:
    return monthrange(day.year, day.month)[1]


def nearest_weekday(day: date, wanted: int) -> bool:
    """Whether `day` is the Monday-to-Friday day of its month that lies nearest to the one numbered `wanted`."""
    if not 1 <= wanted <= length_of(day):
        return False
    workdays = [n for n in range(1, length_of(day) + 1) if day.replace(day=n).weekday() < 5]
    return day.day == min(workdays, key=lambda n: abs(n - wanted))


def special_days_of_month() -> st.SearchStrategy[Dates]:
    return st.one_of(
        st.just(Dates("L", lambda day: day.day == length_of(day))),
        st.just(Dates("LW", lambda day: nearest_weekday(day, length_of(day)))),
        st.integers(0, 30).map(lambda n: Dates(f"L-{n}", lambda day: day.day == length_of(day) - n)),
        st.integers(1, 31).map(lambda n: Dates(f"{n}W", lambda day: nearest_weekday(day, n))),
    )


def weekday(day: date) -> int:
    return day.isoweekday() % 7


def special_weekdays() -> st.SearchStrategy[Dates]:
    def wrapped(first: int, span: int) -> Dates:
        named = [(first + n) % 7 for n in range(span + 1)]
        return Dates(f"{WEEKDAYS[named[0]]}-{WEEKDAYS[named[-1]]}", lambda day: weekday(day) in named)

    def last(n: int) -> Dates:
        return Dates(f"{n}L", lambda day: weekday(day) == n % 7 and day.day + 7 > length_of(day))

    def nth(n: int, week: int) -> Dates:
        return Dates(f"{n}#{week}", lambda day: weekday(day) == n % 7 and (day.day + 6) // 7 == week)

    days = st.integers(0, 7)
    return st.one_of(
        st.builds(wrapped, st.integers(0, 6), st.integers(0, 6)),
        days.map(last),
        st.builds(nth, days, st.integers(1, 5)),
    )


def on_dates(values: Values, number: Callable[[date], int], alias: int) -> Dates:
    """A plain field of days as a predicate; `alias` is a second number for the value 0, or 0."""
    named = values.values | {0} if alias in values.values else values.values
    return Dates(values.text, lambda day: number(day) in named)


def either(parts: list[Dates]) -> Dates:
    return Dates(",".join(part.text for part in parts), lambda day: any(part.match(day) for part in parts))


def days_of_month(special: bool) -> st.SearchStrategy[Dates]:
    fields = plain(1, 31).map(lambda values: on_dates(values, lambda day: day.day, 0))
    star = st.just(Dates("*", lambda day: True))
    mixed = st.lists(special_days_of_month() | fields, min_size=1, max_size=2).map(either)
    return st.one_of(star, star, mixed if special else fields)


def days_of_week(special: bool) -> st.SearchStrategy[Dates]:
    fields = plain(0, 7).map(lambda values: on_dates(values, weekday, 7))
    star = st.just(Dates("*", lambda day: True))
    mixed = st.lists(special_weekdays() | fields, min_size=1, max_size=2).map(either)
    return st.one_of(star, star, mixed if special else fields)


def assemble(
    *, seconds: Values | None, minute: Values, hour: Values, day: Dates, month: Values, week: Dates
) -> Expression:
    texts = [field.text for field in (seconds, minute, hour, day, month, week) if field is not None]
    both = day.text[0] == "*" or week.text[0] == "*"

    def on(wall: date) -> bool:
        judged = day.match(wall), week.match(wall)
        return wall.month in month.values and (all(judged) if both else any(judged))

    wall_clock = minute.text[0] != "*" and hour.text[0] != "*"
    named = frozenset([0]) if seconds is None else seconds.values
    return Expression(" ".join(texts), named, minute.values, hour.values, lru_cache(on), wall_clock)


def expressions(seconds: bool = False, special: bool = True) -> st.SearchStrategy[Expression]:
    return st.builds(
        assemble,
        seconds=plain(0, 59) if seconds else st.none(),
        minute=plain(0, 59),
        hour=plain(0, 23),
        day=days_of_month(special),
        month=months(),
        week=days_of_week(special),
    )


# --- Brute force -----------------------------------------------------------------------------------------------------


class Moment(NamedTuple):
    instant: Instant
    wall: datetime


CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00Z"),
    ("America/New_York", "2026-03-08T07:00Z"),
    ("America/New_York", "2026-11-01T06:00Z"),
    ("Australia/Lord_Howe", "2026-04-04T15:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30Z"),
    ("America/Sao_Paulo", "2018-11-04T03:00Z"),
    ("America/Sao_Paulo", "2019-02-17T02:00Z"),
    ("Africa/Casablanca", "2026-02-15T02:00Z"),
    ("Africa/Casablanca", "2026-03-22T02:00Z"),
    ("Pacific/Apia", "2011-12-30T10:00Z"),
    ("Asia/Dhaka", "2009-12-31T17:00Z"),
    ("Asia/Kathmandu", "2026-02-28T18:15Z"),
    ("UTC", "2028-02-29T12:00Z"),
]


@lru_cache
def moments(zone: str, change: str, reach: timedelta, step: timedelta) -> list[Moment]:
    """Every instant from `reach` before the change to `reach` after it, with what the wall clock shows."""
    middle, place = datetime.fromisoformat(change), ZoneInfo(zone)
    found = []
    for count in range(-(reach // step), reach // step):
        instant = middle + count * step
        found.append(Moment(from_datetime(instant), instant.astimezone(place).replace(tzinfo=None)))
    return found


def by_the_minute(zone: str, change: str) -> list[Moment]:
    """Long enough on both sides to hold the change, which skips a whole day in Apia."""
    return moments(zone, change, timedelta(hours=36 if zone == "Pacific/Apia" else 8), timedelta(minutes=1))


def by_the_second(zone: str, change: str) -> list[Moment]:
    return moments(zone, change, timedelta(minutes=100), timedelta(seconds=1))


def brute_force(expression: Expression, window: list[Moment]) -> list[Instant]:
    """All fires in the window, by the policy as DESIGN states it and nothing cleverer."""
    if not expression.follows_wall_clock:
        return [moment.instant for moment in window if expression.match(moment.wall)]
    first_shown: dict[datetime, Instant] = {}
    for moment in window:
        first_shown.setdefault(moment.wall, moment.instant)
    shown, step = sorted(first_shown), window[1].wall - window[0].wall
    fires = set()
    for count in range((shown[-1] - shown[0]) // step + 1):
        wall = shown[0] + count * step
        if expression.match(wall):
            fires.add(first_shown[shown[bisect_left(shown, wall)]])
    return sorted(fires)


def fires_between(text: str, zone: str, after: Instant, before: Instant) -> Iterable[Instant]:
    cron = parse_cron(text)
    fire = cron.next_after(after, zone)
    while fire is not None and fire < before:
        assert fire > after
        yield fire
        after, fire = fire, cron.next_after(fire, zone)


def readable(expression: Expression) -> bool:
    try:
        parse_cron(expression.text)
    except InvalidCron:
        return False
    return True


@settings(max_examples=400, deadline=None)
@given(expressions(), st.sampled_from(CHANGES))
def test_around_a_change_of_offset_an_expression_fires_as_brute_force_by_the_minute_says(
    expression: Expression, change: tuple[str, str]
) -> None:
    assume(readable(expression))
    window = by_the_minute(*change)
    found = list(fires_between(expression.text, change[0], window[0].instant - 1, window[-1].instant + 1))
    assert found == brute_force(expression, window)


@settings(max_examples=40, deadline=None)
@given(expressions(seconds=True), st.sampled_from([change for change in CHANGES if change[0] != "Pacific/Apia"]))
def test_around_a_change_of_offset_an_expression_fires_as_brute_force_by_the_second_says(
    expression: Expression, change: tuple[str, str]
) -> None:
    assume(readable(expression))
    window = by_the_second(*change)
    found = list(fires_between(expression.text, change[0], window[0].instant - 1, window[-1].instant + 1))
    assert found == brute_force(expression, window)


@settings(max_examples=300, deadline=None)
@given(expressions(), st.sampled_from(CHANGES), st.floats(0, 1) | st.floats(0.4, 0.6))
def test_from_any_microsecond_the_next_fire_is_the_first_that_brute_force_finds_later(
    expression: Expression, change: tuple[str, str], share: float
) -> None:
    assume(readable(expression))
    window = by_the_minute(*change)
    after = window[0].instant + int(share * (window[-1].instant - window[0].instant))
    later = [fire for fire in brute_force(expression, window) if fire > after]
    found = parse_cron(expression.text).next_after(after, change[0])
    if later:
        assert found == later[0]
    else:
        assert found is None or found > window[-1].instant


@settings(max_examples=150, deadline=None)
@given(expressions())
def test_an_expression_is_refused_if_and_only_if_no_date_matches(expression: Expression) -> None:
    # Within 28 years a month of every length has begun on every weekday.
    start = date(2001, 1, 1)
    dates = (start + timedelta(days=count) for count in range(28 * 366))
    assert readable(expression) == any(expression.on(day) for day in dates)


@settings(max_examples=150, deadline=None)
@given(expressions(seconds=True), st.datetimes(datetime(1970, 1, 1), datetime(2199, 12, 31)))
def test_a_wall_time_matches_as_the_fields_say(expression: Expression, wall: datetime) -> None:
    assume(readable(expression))
    assert parse_cron(expression.text).matches_wall(wall) == expression.match(wall)


# --- cronsim ---------------------------------------------------------------------------------------------------------


@settings(max_examples=80, deadline=None)
@given(
    st.booleans().flatmap(lambda seconds: expressions(seconds, special=False)),
    st.datetimes(datetime(1990, 1, 1), datetime(2090, 1, 1)),
)
def test_in_utc_an_expression_fires_as_cronsim_says(expression: Expression, start: datetime) -> None:
    assume(readable(expression))
    start = start.replace(tzinfo=UTC)
    cron, after = parse_cron(expression.text), from_datetime(start)
    for expected in islice(CronSim(expression.text, start), 4):
        fire = cron.next_after(after, "UTC")
        assert fire == from_datetime(expected)
        after = fire
