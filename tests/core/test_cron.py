"""What cron expressions mean, and which are refused. All in UTC: zones are in test_cron_zones."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.instants import DAY, SECOND, Instant, format_instant, parse_instant
from mainspring.core.schedules.cron import parse_cron


def fires(expression: str, after: str, count: int, dialect: str | None = None) -> list[str]:
    cron = parse_cron(expression, dialect)
    found: list[str] = []
    instant: Instant | None = parse_instant(after)
    while len(found) < count and instant is not None:
        instant = cron.next_after(instant, "UTC")
        found.append("never" if instant is None else format_instant(instant).removesuffix(":00Z").removesuffix("Z"))
    return found


def days(expression: str, after: str, count: int, dialect: str | None = None) -> list[str]:
    return [text[:10] for text in fires(expression, after, count, dialect)]


MEANINGS = [
    ("* * * * *", ["2026-01-01T00:01", "2026-01-01T00:02"]),
    ("*/20 * * * *", ["2026-01-01T00:20", "2026-01-01T00:40", "2026-01-01T01:00"]),
    ("5/15 3 * * *", ["2026-01-01T03:05", "2026-01-01T03:20", "2026-01-01T03:35", "2026-01-01T03:50"]),
    ("1-10/4 0 * * *", ["2026-01-01T00:01", "2026-01-01T00:05", "2026-01-01T00:09", "2026-01-02T00:01"]),
    ("7,3,5-6 12 * * *", ["2026-01-01T12:03", "2026-01-01T12:05", "2026-01-01T12:06", "2026-01-01T12:07"]),
    ("0 */24 * * *", ["2026-01-02T00:00", "2026-01-03T00:00"]),
    ("05 09 08 07 *", ["2026-07-08T09:05", "2027-07-08T09:05"]),
    ("0 0 1 feb,Apr *", ["2026-02-01T00:00", "2026-04-01T00:00", "2027-02-01T00:00"]),
    ("0 0 1 JAN-MAR *", ["2026-02-01T00:00", "2026-03-01T00:00", "2027-01-01T00:00"]),
    ("0 9 * * MON-fri", ["2026-01-01T09:00", "2026-01-02T09:00", "2026-01-05T09:00"]),
    ("30 * * * * *", ["2026-01-01T00:00:30", "2026-01-01T00:01:30"]),
    ("*/25 59 23 * * *", ["2026-01-01T23:59", "2026-01-01T23:59:25", "2026-01-01T23:59:50", "2026-01-02T23:59"]),
    ("59 59 23 31 12 *", ["2026-12-31T23:59:59", "2027-12-31T23:59:59"]),
    (" 0\t0  1 1 *\t", ["2027-01-01T00:00"]),
]


@pytest.mark.parametrize(("expression", "expected"), MEANINGS)
def test_an_expression_fires_when_its_fields_say(expression: str, expected: list[str]) -> None:
    assert fires(expression, "2026-01-01T00:00:00Z", len(expected)) == expected


@pytest.mark.parametrize(
    ("macro", "expression"),
    [
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 1 *"),
        ("@monthly", "0 0 1 * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@daily", "0 0 * * *"),
        ("@midnight", "0 0 * * *"),
        ("@Hourly", "0 * * * *"),
    ],
)
def test_a_macro_fires_as_the_expression_it_stands_for(macro: str, expression: str) -> None:
    start = "2026-05-05T05:05:05Z"
    assert fires(macro, start, 5) == fires(expression, start, 5)
    assert parse_cron(macro).follows_wall_clock == parse_cron(expression).follows_wall_clock


# January 2026 begins on a Thursday: the 4th, 11th, 18th, 25th are Sundays.
WEEKDAYS = [
    ("0 0 * * 0", ["2026-01-04", "2026-01-11"]),
    ("0 0 * * 7", ["2026-01-04", "2026-01-11"]),
    ("0 0 * * 6-7", ["2026-01-03", "2026-01-04", "2026-01-10"]),
    ("0 0 * * 1-7/3", ["2026-01-04", "2026-01-05", "2026-01-08", "2026-01-11"]),
    ("0 0 * * FRI-MON", ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05", "2026-01-09"]),
    ("0 0 * * 5-1", ["2026-01-02", "2026-01-03", "2026-01-04", "2026-01-05", "2026-01-09"]),
    ("0 0 * * FRI-MON/2", ["2026-01-02", "2026-01-04", "2026-01-09"]),
    ("0 0 * * SAT-SUN", ["2026-01-03", "2026-01-04", "2026-01-10"]),
    ("0 0 * * */2", ["2026-01-03", "2026-01-04", "2026-01-06", "2026-01-08"]),
    ("0 0 * * 4/2", ["2026-01-03", "2026-01-08", "2026-01-10"]),
]


@pytest.mark.parametrize(("expression", "expected"), WEEKDAYS)
def test_weekdays_count_from_sunday_and_may_wrap(expression: str, expected: list[str]) -> None:
    assert days(expression, "2026-01-01T12:00:00Z", len(expected)) == expected


DAY_RULE = [
    # Both restricted: either is enough.
    ("0 0 13 * FRI", ["2026-01-02", "2026-01-09", "2026-01-13", "2026-01-16"]),
    # One begins with a star: both must match.
    ("0 0 */2 * FRI", ["2026-01-09", "2026-01-23", "2026-02-13"]),
    ("0 0 13 * */5", ["2026-02-13", "2026-03-13", "2026-09-13"]),
    ("0 0 13 * *", ["2026-01-13", "2026-02-13"]),
    ("0 0 * * FRI", ["2026-01-02", "2026-01-09"]),
    # Mondays remain, although February never has a 30th.
    ("0 0 30 2 MON", ["2026-02-02", "2026-02-09"]),
    # April 2026 has neither a 31st nor a fifth Friday; April 2027 has the latter.
    ("0 0 31 4-5 FRI#5", ["2026-05-29", "2026-05-31", "2027-04-30", "2027-05-31"]),
    ("0 0 31 4-5 MON#5", ["2026-05-31", "2027-05-31", "2028-05-29", "2028-05-31"]),
]


@pytest.mark.parametrize(("expression", "expected"), DAY_RULE)
def test_either_day_field_is_enough_unless_one_begins_with_a_star(expression: str, expected: list[str]) -> None:
    assert days(expression, "2026-01-01T12:00:00Z", len(expected)) == expected


# Weekends in 2026: 31 January is a Saturday, 28 February a Saturday, 1 and 15 February Sundays, 31 May a Sunday.
SPECIAL_DAYS = [
    ("0 0 L * *", ["2026-01-31", "2026-02-28", "2026-03-31", "2026-04-30"]),
    ("0 0 L 2 *", ["2026-02-28", "2027-02-28", "2028-02-29"]),
    ("0 0 l-3 * *", ["2026-01-28", "2026-02-25", "2026-03-28"]),
    ("0 0 L-30 * *", ["2026-03-01", "2026-05-01", "2026-07-01"]),
    ("0 0 1,L * *", ["2026-01-31", "2026-02-01", "2026-02-28"]),
    ("0 0 LW * *", ["2026-01-30", "2026-02-27", "2026-03-31", "2026-04-30", "2026-05-29"]),
    ("0 0 L-1W * *", ["2026-01-30", "2026-02-27", "2026-03-30", "2026-04-29", "2026-05-29"]),
    ("0 0 15W * *", ["2026-01-15", "2026-02-16", "2026-03-16", "2026-04-15", "2026-05-15", "2026-06-15"]),
    ("0 0 1w * *", ["2026-02-02", "2026-03-02", "2026-04-01", "2026-05-01", "2026-06-01", "2026-07-01", "2026-08-03"]),
    ("0 0 31W * *", ["2026-01-30", "2026-03-31", "2026-05-29", "2026-07-31"]),
    ("0 0 1W,15W * *", ["2026-01-15", "2026-02-02", "2026-02-16"]),
    ("0 0 * * 5L", ["2026-01-30", "2026-02-27", "2026-03-27"]),
    ("0 0 * * friL", ["2026-01-30", "2026-02-27", "2026-03-27"]),
    ("0 0 * * 7L", ["2026-01-25", "2026-02-22", "2026-03-29"]),
    ("0 0 * * MON#2", ["2026-01-12", "2026-02-09", "2026-03-09"]),
    ("0 0 * * 1#2", ["2026-01-12", "2026-02-09", "2026-03-09"]),
    ("0 0 * * 0#1", ["2026-01-04", "2026-02-01", "2026-03-01"]),
    ("0 0 * * SUN#5", ["2026-03-29", "2026-05-31", "2026-08-30"]),
    ("0 0 * * MON#1,FRI#3", ["2026-01-05", "2026-01-16", "2026-02-02", "2026-02-20"]),
    ("0 0 * 2 MON#5", ["2044-02-29", "2072-02-29", "2112-02-29"]),
]


@pytest.mark.parametrize(("expression", "expected"), SPECIAL_DAYS)
def test_days_may_be_derived_from_the_shape_of_the_month(expression: str, expected: list[str]) -> None:
    assert days(expression, "2026-01-01T12:00:00Z", len(expected)) == expected


QUARTZ = [
    ("0 0 12 ? * MON-FRI", ["2026-01-01T12:00", "2026-01-02T12:00", "2026-01-05T12:00"]),
    ("0 0 12 ? * 2-6", ["2026-01-01T12:00", "2026-01-02T12:00", "2026-01-05T12:00"]),
    ("0 0 0 ? * 1", ["2026-01-04T00:00", "2026-01-11T00:00"]),
    ("0 0 0 ? * 7", ["2026-01-03T00:00", "2026-01-10T00:00"]),
    ("0 0 0 ? * L", ["2026-01-03T00:00", "2026-01-10T00:00"]),
    ("0 0 0 ? * 7-1", ["2026-01-03T00:00", "2026-01-04T00:00", "2026-01-10T00:00"]),
    ("0 15 10 L-3 * ?", ["2026-01-28T10:15", "2026-02-25T10:15", "2026-03-28T10:15"]),
    ("0 15 10 ? * 6#3", ["2026-01-16T10:15", "2026-02-20T10:15", "2026-03-20T10:15"]),
    ("0 0 0 LW * ?", ["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-31T00:00"]),
    ("0 0/30 8 * * ?", ["2026-01-01T08:00", "2026-01-01T08:30", "2026-01-02T08:00"]),
    ("0 0 0 1 1 ? 2028/2", ["2028-01-01T00:00", "2030-01-01T00:00"]),
    ("0 0 0 29 2 ? 2027-2029", ["2028-02-29T00:00", "never"]),
    ("59 59 23 31 12 ? 2199", ["2199-12-31T23:59:59", "never"]),
]


@pytest.mark.parametrize(("expression", "expected"), QUARTZ)
def test_a_question_mark_in_six_or_seven_fields_means_the_quartz_spelling(expression: str, expected: list[str]) -> None:
    assert parse_cron(expression).dialect == "quartz"
    assert fires(expression, "2026-01-01T00:00:00Z", len(expected)) == expected


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("0 0 0 * * 2", ["2026-01-05", "2026-01-12"]),
        ("0 0 0 5 * *", ["2026-01-05", "2026-02-05"]),
        ("0 0 0 * * *", ["2026-01-02", "2026-01-03"]),
        ("0 0 0 * * 2 2027", ["2027-01-04", "2027-01-11"]),
    ],
)
def test_the_quartz_spelling_can_be_asked_for_and_then_a_star_stands_for_a_question_mark(
    expression: str, expected: list[str]
) -> None:
    assert days(expression, "2026-01-01T12:00:00Z", len(expected), "quartz") == expected


def test_six_fields_without_a_question_mark_are_unix_with_seconds() -> None:
    assert parse_cron("0 0 0 * * 1").dialect == "unix"
    assert days("0 0 0 * * 1", "2026-01-01T12:00:00Z", 2) == ["2026-01-05", "2026-01-12"]


def test_quartz_years_come_to_an_end() -> None:
    yearly = "0 15 10 ? * 6L 2026-2030"
    found = days(yearly, "2026-01-01T00:00:00Z", 100)
    assert len(found) == 5 * 12 + 1
    assert found[:2] == ["2026-01-30", "2026-02-27"]
    assert found[-2:] == ["2030-12-27", "never"]


def test_years_that_have_passed_are_no_error_but_never_come_again() -> None:
    assert fires("0 0 0 1 1 ? 1999-2005", "2026-01-01T00:00:00Z", 1) == ["never"]


def test_the_next_fire_is_strictly_later_and_on_a_whole_second() -> None:
    cron = parse_cron("* * * * * *")
    noon = parse_instant("2026-01-01T12:00:00Z")
    assert cron.next_after(noon, "UTC") == noon + SECOND
    assert cron.next_after(noon - 1, "UTC") == noon
    assert cron.next_after(noon + 1, "UTC") == noon + SECOND
    assert cron.next_after(noon + SECOND - 1, "UTC") == noon + SECOND


def test_nothing_fires_before_1970_or_after_2199() -> None:
    cron = parse_cron("0 0 * * *")
    assert cron.next_after(-(10**30), "UTC") == 0
    assert cron.next_after(-1, "UTC") == 0
    assert cron.next_after(parse_instant("2199-12-30T00:00:00Z"), "UTC") == parse_instant("2199-12-31T00:00:00Z")
    for zone in ("UTC", "Pacific/Kiritimati", "Pacific/Midway", "Europe/Berlin"):
        assert cron.next_after(parse_instant("2200-01-01T12:00:00Z"), zone) is None
        assert cron.next_after(10**30, zone) is None


@given(st.sampled_from(["*/7 * * * *", "0 0 29 2 *", "0 0 L * 1#5", "*/11 3 * * * *"]), st.integers(0, 100 * 365 * DAY))
def test_a_fire_matches_the_wall_clock_of_its_own_instant(expression: str, after: Instant) -> None:
    cron = parse_cron(expression)
    fire = cron.next_after(after, "UTC")
    assert fire is not None
    assert cron.matches_wall(datetime.fromtimestamp(fire // SECOND, UTC).replace(tzinfo=None))


def test_a_wall_time_matches_only_if_every_field_does() -> None:
    cron = parse_cron("1 2 3 4 5 ? 2030", "quartz")
    match = datetime(2030, 5, 4, 3, 2, 1)
    assert cron.matches_wall(match)
    assert cron.matches_wall(match.replace(microsecond=999_999))
    other = datetime(2031, 6, 5, 4, 3, 2)
    for part in ("year", "month", "day", "hour", "minute", "second"):
        change: Any = {part: getattr(other, part)}
        assert not cron.matches_wall(match.replace(**change))
    everything = parse_cron("* * * * * *")
    assert not everything.matches_wall(datetime(1969, 12, 31))
    assert not everything.matches_wall(datetime(2200, 1, 1))


def test_an_expression_is_remembered_and_cannot_be_changed() -> None:
    cron = parse_cron("0 0 * * *")
    assert parse_cron("0 0 * * *") is cron
    assert (cron.expression, cron.dialect) == ("0 0 * * *", "unix")
    for name in ("expression", "dialect", "hours"):
        with pytest.raises(AttributeError):
            setattr(cron, name, getattr(cron, name))
