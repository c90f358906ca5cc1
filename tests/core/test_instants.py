"""Instants and durations survive every round trip, and what cannot be read is refused with the field named."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta, timezone
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.instants import (
    DAY,
    EARLIEST,
    HOUR,
    LATEST,
    MINUTE,
    SECOND,
    format_duration,
    format_instant,
    from_datetime,
    from_wall,
    load_zone,
    offset_at,
    parse_duration,
    parse_instant,
    to_datetime,
    transition_between,
)
from mainspring.errors import InvalidDuration, InvalidInput, InvalidZone

HUNDRED_YEARS = 36_525 * DAY
ZONES = [
    "UTC",
    "Europe/Berlin",
    "America/New_York",
    "Australia/Lord_Howe",
    "Asia/Beirut",
    "Africa/Casablanca",
    "Asia/Kathmandu",
]

CHANGES = [
    ("Europe/Berlin", datetime(2026, 3, 29, 2)),
    ("Europe/Berlin", datetime(2026, 10, 25, 3)),
    ("America/New_York", datetime(2026, 11, 1, 2)),
    ("Asia/Beirut", datetime(2026, 3, 29)),
    ("America/Havana", datetime(2026, 11, 1, 1)),
    ("Australia/Lord_Howe", datetime(2026, 10, 4, 2)),
    ("Asia/Kathmandu", datetime(2026, 1, 1)),
]

durations = st.integers(0, HUNDRED_YEARS)
instants = st.integers(EARLIEST, LATEST)
modern = st.integers(parse_instant("1972-01-01T00:00:00Z"), parse_instant("2080-01-01T00:00:00Z"))
zones = st.sampled_from(ZONES)


@given(durations)
def test_a_duration_survives_as_text_as_timedelta_and_as_seconds(duration: int) -> None:
    assert parse_duration(format_duration(duration)) == duration
    assert parse_duration(timedelta(microseconds=duration)) == duration
    assert parse_duration(duration // SECOND) == duration // SECOND * SECOND


@pytest.mark.parametrize(
    ("value", "duration"),
    [
        ("30s", 30 * SECOND),
        ("1h30m", 90 * MINUTE),
        (" 1h 30m ", 90 * MINUTE),
        ("1h\t30 m", 90 * MINUTE),
        ("1.5H", 90 * MINUTE),
        ("250ms", SECOND // 4),
        ("7us", 7),
        ("2w1d", 15 * DAY),
        ("0s", 0),
        (0.25, SECOND // 4),
        (90, 90 * SECOND),
        (timedelta(days=1, microseconds=1), DAY + 1),
    ],
)
def test_durations_are_read_as_people_write_them(value: str | float | timedelta, duration: int) -> None:
    assert parse_duration(value) == duration


@pytest.mark.parametrize(
    ("duration", "text"),
    [(0, "0s"), (90 * MINUTE, "1h30m"), (DAY + 1, "1d1us"), (1_500, "1ms500us"), (-SECOND, "-1s")],
)
def test_durations_are_shown_in_whole_units(duration: int, text: str) -> None:
    assert format_duration(duration) == text


@pytest.mark.parametrize(
    "value",
    [
        "",
        "  ",
        "30",
        "s",
        "1h30",
        "-5s",
        "1,5s",
        "1y",
        "1e3s",
        "५s",
        "9" * 19 + "s",
        "101000w",
        -1,
        True,
        None,
        [],
        float("nan"),
        float("inf"),
        10**30,
        timedelta(seconds=-1),
        timedelta.max,
    ],
)
def test_what_is_no_duration_is_refused_with_its_field(value: str) -> None:
    with pytest.raises(InvalidDuration, match=r"^grace: ") as refusal:
        parse_duration(value, "grace")
    assert refusal.value.remedy


@given(st.text(alphabet="0123456789. usmhdw-+e\n", max_size=30) | st.text(max_size=30) | st.floats())
def test_any_duration_is_read_or_refused_but_never_crashes(value: str | float) -> None:
    try:
        duration = parse_duration(value)
    except InvalidDuration:
        return
    assert 0 <= duration <= HUNDRED_YEARS


@given(instants, zones)
def test_an_instant_survives_as_text_and_as_datetime_in_every_zone(instant: int, zone: str) -> None:
    assert parse_instant(format_instant(instant, zone)) == instant
    assert from_datetime(to_datetime(instant, zone)) == instant


@given(instants, instants)
def test_texts_in_utc_with_equal_precision_sort_as_their_instants(one: int, other: int) -> None:
    one, other = one // SECOND * SECOND, other // SECOND * SECOND
    assert (format_instant(one) < format_instant(other)) == (one < other)


@pytest.mark.parametrize(
    ("text", "instant"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:59:59.999999Z", -1),
        ("1970-01-01 00:01Z", MINUTE),
        (" 19700102T000000Z ", DAY),
    ],
)
def test_instants_are_read_as_iso_8601(text: str, instant: int) -> None:
    assert parse_instant(text) == instant


def test_an_instant_is_shown_with_z_in_utc_and_with_its_offset_elsewhere() -> None:
    assert format_instant(0) == "1970-01-01T00:00:00Z"
    assert format_instant(1) == "1970-01-01T00:00:00.000001Z"
    assert format_instant(0, "Europe/Berlin") == "1970-01-01T01:00:00+01:00"
    assert format_instant(0, "Africa/Abidjan") == "1970-01-01T00:00:00+00:00"


@pytest.mark.parametrize(
    "value",
    [
        "",
        "tomorrow",
        "2026-02-30T00:00:00Z",
        "2026-03-01",
        "2026-03-01T09:00:00",
        "2026-03-01T25:00:00Z",
        "2026-03-01T09:00:00+25:00",
        datetime(2026, 3, 1),
        date(2026, 3, 1),
        1_772_355_600,
        None,
    ],
)
def test_what_is_no_instant_is_refused_with_its_field(value: str) -> None:
    with pytest.raises(InvalidInput, match=r"^start_at: ") as refusal:
        parse_instant(value, "start_at")
    assert refusal.value.remedy


@pytest.mark.parametrize(
    "value",
    [
        "9999-12-31T23:59:59-12:00",
        "0001-01-01T00:00:00+12:00",
        datetime.max.replace(tzinfo=UTC),
        datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    ],
)
def test_an_instant_that_some_zone_could_not_show_is_refused(value: str | datetime) -> None:
    with pytest.raises(InvalidInput, match="out of range"):
        parse_instant(value)


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Niue", "Asia/Manila"])
def test_the_first_and_the_last_instant_can_be_shown_in_every_zone(zone: str) -> None:
    for instant in (EARLIEST, LATEST):
        assert parse_instant(format_instant(instant, zone)) == instant
    for instant in (EARLIEST - 1, LATEST + 1):
        with pytest.raises(InvalidInput, match="out of range"):
            from_datetime(to_datetime(instant))


@given(st.text(alphabet="0123456789-:T+Z. W", max_size=35) | st.text(max_size=35))
def test_any_text_is_read_as_an_instant_or_refused_but_never_crashes(text: str) -> None:
    try:
        instant = parse_instant(text)
    except InvalidInput:
        return
    assert parse_instant(format_instant(instant)) == instant


@given(st.text(max_size=20))
def test_any_text_is_a_zone_or_refused_but_never_crashes(name: str) -> None:
    try:
        zone = load_zone(name)
    except InvalidZone:
        return
    assert zone.key == name


@pytest.mark.parametrize(
    "name",
    ["", "Europe", "Europe/Nowhere", "/etc/passwd", "../UTC", "./UTC", "a\0b", "x" * 5_000, "zone.tab", None, 3, []],
)
def test_what_is_no_zone_is_refused_with_its_field(name: str) -> None:
    with pytest.raises(InvalidZone, match=r"^timezone: ") as refusal:
        load_zone(name, "timezone")
    assert "Europe/Berlin" in refusal.value.remedy


@pytest.mark.parametrize("name", ["localtime", "posixrules", "right/Europe/Berlin", "posix/Europe/Berlin"])
def test_zones_that_differ_from_host_to_host_are_refused(name: str) -> None:
    with pytest.raises(InvalidZone):
        load_zone(name)


@given(st.sampled_from(CHANGES), st.integers(-3 * HOUR, 3 * HOUR))
def test_a_wall_time_is_the_first_instant_at_which_the_clocks_show_it_or_more(
    change: tuple[str, datetime], distance: int
) -> None:
    zone, wall = change[0], change[1] + timedelta(microseconds=distance)

    def shown(instant: int) -> datetime:
        return to_datetime(instant, zone).replace(tzinfo=None)

    instant = from_wall(wall, zone)
    assert shown(instant) >= wall
    assert all(shown(instant - 1 - quarter * 15 * MINUTE) < wall for quarter in range(4 * 24))


@pytest.mark.parametrize(
    ("zone", "wall", "instant"),
    [
        ("Europe/Berlin", datetime(2026, 6, 1, 12), "2026-06-01T12:00:00+02:00"),
        # Skipped: the first instant that exists.
        ("Europe/Berlin", datetime(2026, 3, 29, 2, 30), "2026-03-29T03:00:00+02:00"),
        ("Asia/Beirut", datetime(2026, 3, 29, 0, 0), "2026-03-29T01:00:00+03:00"),
        ("Australia/Lord_Howe", datetime(2026, 10, 4, 2, 10), "2026-10-04T02:30:00+11:00"),
        ("Pacific/Apia", datetime(2011, 12, 30, 15), "2011-12-31T00:00:00+14:00"),
        # Shown twice: the first time.
        ("Europe/Berlin", datetime(2026, 10, 25, 2, 30), "2026-10-25T02:30:00+02:00"),
        ("Europe/Berlin", datetime(2026, 10, 25, 2, 30, fold=1), "2026-10-25T02:30:00+02:00"),
    ],
)
def test_wall_times_around_a_change_of_the_clocks(zone: str, wall: datetime, instant: str) -> None:
    assert format_instant(from_wall(wall, zone), zone) == instant


@given(modern, st.integers(1, 2 * DAY) | st.integers(100 * DAY, 250 * DAY), zones)
def test_a_transition_is_where_the_offset_becomes_what_it_is_at_the_end(early: int, span: int, zone: str) -> None:
    late = early + span
    change = transition_between(early, late, zone)
    if change is None:
        assert offset_at(early, zone) == offset_at(late, zone)
    else:
        assert early < change <= late
        assert offset_at(change, zone) == offset_at(late, zone) != offset_at(change - 1, zone)


@given(modern, zones)
def test_the_offset_is_what_the_zone_database_says(instant: int, zone: str) -> None:
    moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=instant)
    assert timedelta(microseconds=offset_at(instant, zone)) == moment.astimezone(ZoneInfo(zone)).utcoffset()


def test_offsets_are_positive_east_of_greenwich() -> None:
    assert offset_at(0, "Asia/Tokyo") == 9 * HOUR
    assert offset_at(0, "America/New_York") == -5 * HOUR
