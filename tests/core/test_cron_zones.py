"""Daylight saving: what happens at real changes of real zones, each written out by hand."""

from __future__ import annotations

from itertools import pairwise

import pytest

from mainspring.core.instants import Instant, format_instant, parse_instant
from mainspring.core.schedules.cron import parse_cron
from mainspring.errors import InvalidZone


def fires(expression: str, zone: str, after: str, count: int) -> list[str]:
    cron = parse_cron(expression)
    found: list[str] = []
    instant: Instant | None = parse_instant(after)
    for _ in range(count):
        instant = cron.next_after(instant, zone) if instant is not None else None
        found.append("never" if instant is None else format_instant(instant, zone))
    return found


# Europe/Berlin 2026: on 29 March 02:00+01:00 becomes 03:00+02:00, on 25 October 03:00+02:00 becomes 02:00+01:00.
BERLIN_GAP = [
    ("30 2 * * *", ["29T03:00:00+02:00", "30T02:30:00+02:00"]),
    ("0,15,30 2 * * *", ["29T03:00:00+02:00", "30T02:00:00+02:00"]),
    ("0 2,3 * * *", ["29T03:00:00+02:00", "30T02:00:00+02:00", "30T03:00:00+02:00"]),
    ("30 1-3 * * *", ["29T01:30:00+01:00", "29T03:00:00+02:00", "29T03:30:00+02:00", "30T01:30:00+02:00"]),
    ("0/30 2 * * *", ["29T03:00:00+02:00", "30T02:00:00+02:00"]),
    ("15 30 2 * * *", ["29T03:00:00+02:00", "30T02:30:15+02:00"]),
    ("*/20 30 2 * * *", ["29T03:00:00+02:00", "30T02:30:00+02:00", "30T02:30:20+02:00"]),
    ("@daily", ["29T00:00:00+01:00", "30T00:00:00+02:00"]),
    ("*/30 2 * * *", ["30T02:00:00+02:00", "30T02:30:00+02:00"]),
    ("30 */2 29-30 * *", ["29T00:30:00+01:00", "29T04:30:00+02:00", "29T06:30:00+02:00"]),
]


@pytest.mark.parametrize(("expression", "expected"), BERLIN_GAP)
def test_in_a_gap_the_wall_clock_fires_once_at_its_end_and_elapsed_time_not_at_all(
    expression: str, expected: list[str]
) -> None:
    found = fires(expression, "Europe/Berlin", "2026-03-28T22:59:00Z", len(expected))
    assert found == [f"2026-03-{text}" for text in expected]


BERLIN_FOLD = [
    ("30 2 * * *", ["25T02:30:00+02:00", "26T02:30:00+01:00"]),
    ("0 2,3 * * *", ["25T02:00:00+02:00", "25T03:00:00+01:00", "26T02:00:00+01:00"]),
    ("15 30 2 * * *", ["25T02:30:15+02:00", "26T02:30:15+01:00"]),
    ("*/30 30 2 * * *", ["25T02:30:00+02:00", "25T02:30:30+02:00", "26T02:30:00+01:00"]),
    ("59 59 2 * * *", ["25T02:59:59+02:00", "26T02:59:59+01:00"]),
    ("*/30 2 * * *", ["25T02:00:00+02:00", "25T02:30:00+02:00", "25T02:00:00+01:00", "25T02:30:00+01:00"]),
    ("0 * 25 * *", ["25T00:00:00+02:00", "25T01:00:00+02:00", "25T02:00:00+02:00", "25T02:00:00+01:00"]),
    ("15 30 * 25 * *", ["25T00:30:15+02:00", "25T01:30:15+02:00", "25T02:30:15+02:00", "25T02:30:15+01:00"]),
    ("@daily", ["25T00:00:00+02:00", "26T00:00:00+01:00"]),
]


@pytest.mark.parametrize(("expression", "expected"), BERLIN_FOLD)
def test_in_a_repeated_hour_the_wall_clock_fires_the_first_time_and_elapsed_time_both_times(
    expression: str, expected: list[str]
) -> None:
    found = fires(expression, "Europe/Berlin", "2026-10-24T21:59:00Z", len(expected))
    assert found == [f"2026-10-{text}" for text in expected]


@pytest.mark.parametrize(
    ("expression", "after", "expected"),
    [
        # Asked in the first pass, at its last second, at the change, and in the second pass.
        ("0 * * * *", "2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00"),
        ("0 * * * *", "2026-10-25T02:59:59.999999+02:00", "2026-10-25T02:00:00+01:00"),
        ("0 * * * *", "2026-10-25T02:00:00+01:00", "2026-10-25T03:00:00+01:00"),
        ("*/10 2 * * *", "2026-10-25T02:15:00+02:00", "2026-10-25T02:20:00+02:00"),
        ("*/10 2 * * *", "2026-10-25T02:50:00+02:00", "2026-10-25T02:00:00+01:00"),
        ("*/10 2 * * *", "2026-10-25T02:50:00+01:00", "2026-10-26T02:00:00+01:00"),
        ("45 2 * * *", "2026-10-25T02:30:00+02:00", "2026-10-25T02:45:00+02:00"),
        ("45 2 * * *", "2026-10-25T02:50:00+02:00", "2026-10-26T02:45:00+01:00"),
        ("45 2 * * *", "2026-10-25T02:30:00+01:00", "2026-10-26T02:45:00+01:00"),
        ("0 2,3 * * *", "2026-10-25T02:30:00+01:00", "2026-10-25T03:00:00+01:00"),
        ("0,30 2,3 * * *", "2026-10-25T02:15:00+01:00", "2026-10-25T03:00:00+01:00"),
    ],
)
def test_within_a_repeated_hour_the_pass_decides(expression: str, after: str, expected: str) -> None:
    assert fires(expression, "Europe/Berlin", after, 1) == [expected]


# Only what has happened: zone data changes its mind about the future.
OTHER_CHANGES = [
    # America/New_York 2026: a gap on 8 March, a fold on 1 November, both at 02:00.
    (
        "America/New_York",
        "30 2 8-9 3 *",
        "2026-03-01T00:00Z",
        ["2026-03-08T03:00:00-04:00", "2026-03-09T02:30:00-04:00"],
    ),
    (
        "America/New_York",
        "30 1 1-2 11 *",
        "2026-03-01T00:00Z",
        ["2026-11-01T01:30:00-04:00", "2026-11-02T01:30:00-05:00"],
    ),
    (
        "America/New_York",
        "30 * 1 11 *",
        "2026-11-01T05:00Z",
        ["2026-11-01T01:30:00-04:00", "2026-11-01T01:30:00-05:00"],
    ),
    # Australia/Lord_Howe moves by half an hour: the gap is 02:00 to 02:30, the fold 01:30 to 02:00.
    ("Australia/Lord_Howe", "15 2 4 10 *", "2026-10-01T00:00Z", ["2026-10-04T02:30:00+11:00"]),
    (
        "Australia/Lord_Howe",
        "*/15 2 4 10 *",
        "2026-10-01T00:00Z",
        ["2026-10-04T02:30:00+11:00", "2026-10-04T02:45:00+11:00"],
    ),
    (
        "Australia/Lord_Howe",
        "45 1 5-6 4 *",
        "2026-04-01T00:00Z",
        ["2026-04-05T01:45:00+11:00", "2026-04-06T01:45:00+10:30"],
    ),
    ("Australia/Lord_Howe", "0 * 5 4 *", "2026-04-04T14:30Z", ["2026-04-05T02:00:00+10:30"]),
    (
        "Australia/Lord_Howe",
        "*/15 1 5 4 *",
        "2026-04-04T14:15Z",
        ["2026-04-05T01:30:00+11:00", "2026-04-05T01:45:00+11:00", "2026-04-05T01:30:00+10:30"],
    ),
    # America/Sao_Paulo: the day of 4 November 2018 began at 01:00; 16 February 2019 had its last hour twice.
    ("America/Sao_Paulo", "@daily", "2018-11-03T12:00Z", ["2018-11-04T01:00:00-02:00", "2018-11-05T00:00:00-02:00"]),
    (
        "America/Sao_Paulo",
        "0 0,1 4 * *",
        "2018-11-03T12:00Z",
        ["2018-11-04T01:00:00-02:00", "2018-12-04T00:00:00-02:00"],
    ),
    ("America/Sao_Paulo", "*/30 0 4 11 *", "2018-11-03T12:00Z", ["2019-11-04T00:00:00-03:00"]),
    (
        "America/Sao_Paulo",
        "30 23 16 2 *",
        "2019-02-16T12:00Z",
        ["2019-02-16T23:30:00-02:00", "2020-02-16T23:30:00-03:00"],
    ),
    (
        "America/Sao_Paulo",
        "30 * 16 2 *",
        "2019-02-17T01:00Z",
        ["2019-02-16T23:30:00-02:00", "2019-02-16T23:30:00-03:00"],
    ),
    # Africa/Casablanca left its summer time for Ramadan: in 2025 from 23 February 03:00 to 6 April 02:00.
    (
        "Africa/Casablanca",
        "30 2 23 2 *",
        "2025-02-22T12:00Z",
        ["2025-02-23T02:30:00+01:00", "2026-02-23T02:30:00+00:00"],
    ),
    (
        "Africa/Casablanca",
        "30 2 6 4 *",
        "2025-04-05T12:00Z",
        ["2025-04-06T03:00:00+01:00", "2026-04-06T02:30:00+01:00"],
    ),
    (
        "Africa/Casablanca",
        "0 * 23 2 *",
        "2025-02-23T00:30Z",
        ["2025-02-23T02:00:00+01:00", "2025-02-23T02:00:00+00:00"],
    ),
    # Pacific/Apia had no 30 December 2011.
    ("Pacific/Apia", "0 9 30 * *", "2011-12-01T00:00Z", ["2011-12-31T00:00:00+14:00", "2012-01-30T09:00:00+14:00"]),
    (
        "Pacific/Apia",
        "0 9 * * *",
        "2011-12-29T12:00Z",
        ["2011-12-29T09:00:00-10:00", "2011-12-31T00:00:00+14:00", "2011-12-31T09:00:00+14:00"],
    ),
    ("Pacific/Apia", "0 0 * * *", "2011-12-29T12:00Z", ["2011-12-31T00:00:00+14:00", "2012-01-01T00:00:00+14:00"]),
    ("Pacific/Apia", "0 * 29-31 12 *", "2011-12-30T09:00Z", ["2011-12-31T00:00:00+14:00", "2011-12-31T01:00:00+14:00"]),
    ("Pacific/Apia", "0 0 9 30 12 ? 2011", "2011-12-01T00:00Z", ["2011-12-31T00:00:00+14:00", "never"]),
    # Asia/Dhaka repeated the last hour of 2009, after which that year's expressions have nothing later to find.
    (
        "Asia/Dhaka",
        "0 30 * 31 12 ? 2009",
        "2009-12-31T16:00Z",
        ["2009-12-31T23:30:00+07:00", "2009-12-31T23:30:00+06:00", "never"],
    ),
    ("Asia/Dhaka", "0 30 23 31 12 ? 2009", "2009-12-31T16:00Z", ["2009-12-31T23:30:00+07:00", "never"]),
    # Africa/Monrovia changed by 44 minutes and 30 seconds, at no whole minute of UTC.
    ("Africa/Monrovia", "10 0 7 1 *", "1972-01-06T12:00Z", ["1972-01-07T00:44:30+00:00"]),
    ("Africa/Monrovia", "*/15 * * * *", "1972-01-07T00:44:29Z", ["1972-01-07T00:45:00+00:00"]),
    # Asia/Kathmandu has no daylight saving, and an offset of 5:45.
    ("Asia/Kathmandu", "0 6 * * *", "2026-01-01T00:00Z", ["2026-01-01T06:00:00+05:45", "2026-01-02T06:00:00+05:45"]),
]


@pytest.mark.parametrize(("zone", "expression", "after", "expected"), OTHER_CHANGES)
def test_other_zones_change_in_other_ways(zone: str, expression: str, after: str, expected: list[str]) -> None:
    assert fires(expression, zone, after, len(expected)) == expected


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/Sao_Paulo", "UTC"])
@pytest.mark.parametrize("expression", ["*/30 * * * *", "0,30 0-5 * * *", "15 2 * * *", "0 0 9 L-1 * ?"])
def test_fire_times_strictly_grow_over_years_of_changes(zone: str, expression: str) -> None:
    cron = parse_cron(expression)
    instants = [parse_instant("2011-09-01T00:00:00Z")]
    for _ in range(2_000):
        instant = cron.next_after(instants[-1], zone)
        assert instant is not None
        instants.append(instant)
    assert all(earlier < later for earlier, later in pairwise(instants))


def test_a_job_of_every_half_hour_runs_in_every_real_half_hour_of_a_year() -> None:
    cron = parse_cron("*/30 * * * *")
    instant: Instant | None = parse_instant("2026-01-01T00:00:00Z")
    for expected in range(2 * 24 * 365):
        assert instant == parse_instant("2026-01-01T00:00:00Z") + expected * 1_800_000_000
        instant = cron.next_after(instant, "Europe/Berlin")


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(InvalidZone):
        parse_cron("0 0 * * *").next_after(0, "Europe/Atlantis")


@pytest.mark.parametrize("asked", ["2026-03-29T00:59:58Z", "2026-03-29T00:59:59Z", "2026-03-29T00:59:59.500000Z"])
def test_a_skipped_time_is_stood_in_for_however_late_it_is_asked_for(asked: str) -> None:
    expression = parse_cron("0 58 1,2 * * *")
    assert expression.next_after(parse_instant(asked), "Europe/Berlin") == parse_instant("2026-03-29T01:00:00Z")
