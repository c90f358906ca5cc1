"""When jobs are due: each trigger's next instant, how triggers are written, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.core.instants import (
    DAY,
    EARLIEST,
    HOUR,
    LATEST,
    MILLISECOND,
    MINUTE,
    SECOND,
    Instant,
    format_instant,
    parse_instant,
    to_datetime,
)
from mainspring.core.schedules.triggers import (
    PAST_TOLERANCE,
    SHORTEST_PERIOD,
    AfterTrigger,
    AtTrigger,
    CronTrigger,
    EveryTrigger,
    ManualTrigger,
    Trigger,
    after,
    at,
    check_not_past,
    check_trigger,
    cron,
    describe,
    every,
    manual,
    next_fire,
    transition_note,
)
from mainspring.errors import InvalidCron, InvalidDuration, InvalidInput, InvalidZone

NOON = parse_instant("2026-03-01T12:00:00Z")
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut", "Asia/Kathmandu"]

instants = st.integers(parse_instant("1975-01-01T00:00:00Z"), parse_instant("2080-01-01T00:00:00Z"))
near_noon = st.integers(NOON - 2 * DAY, NOON + 2 * DAY)
periods = st.integers(SHORTEST_PERIOD, 400 * DAY) | st.sampled_from([SECOND, MINUTE, HOUR, DAY])
zones = st.sampled_from(ZONES)
expressions = st.sampled_from(
    ["* * * * *", "*/15 * * * *", "30 2 * * *", "0 9-17 * * mon-fri", "*/20 10 12 * * *", "0 0 12 1 * ?"]
)
triggers = st.one_of(
    st.builds(CronTrigger, expressions, zones),
    st.builds(EveryTrigger, periods, st.none() | instants),
    st.builds(AtTrigger, instants),
    st.just(ManualTrigger()),
    st.builds(
        AfterTrigger,
        st.lists(st.text(min_size=1), min_size=1, unique=True).map(tuple),
        st.sampled_from(["all_succeeded", "any_finished"]),
        st.sampled_from(["skip", "fail", "run"]),
    ),
)


@given(triggers, instants, instants)
def test_the_next_fire_is_strictly_later_and_nothing_lies_between(trigger: Trigger, start: int, anchor: int) -> None:
    fire = next_fire(trigger, start, anchor)
    if fire is not None:
        assert fire > start
        # Asked from any instant in between, the answer is the same; asked from the fire itself, it is a later one.
        assert {next_fire(trigger, between, anchor) for between in (fire - 1, (start + fire) // 2)} == {fire}
        following = next_fire(trigger, fire, anchor)
        assert following is None or following > fire


@given(periods, instants, st.integers(-50, 50), st.integers(-1, 1))
def test_every_fires_at_the_first_multiple_of_its_period_after_the_anchor(
    period: int, anchor: int, periods_on: int, offset: int
) -> None:
    start = anchor + periods_on * period + offset
    due = (anchor + k * period for k in range(1, 60))
    assert next_fire(EveryTrigger(period), start, anchor) == next(instant for instant in due if instant > start)


@given(periods, instants, st.lists(st.integers(0, 10**9), min_size=20, max_size=20))
def test_every_never_drifts_however_late_it_is_asked(period: int, anchor: int, delays: list[int]) -> None:
    now, fires = anchor, []
    for delay in delays:
        fire = next_fire(EveryTrigger(period), now, anchor)
        assert fire is not None
        fires.append(fire)
        now = fire + delay % period
    assert fires == [anchor + k * period for k in range(1, 21)]


def test_every_counts_from_its_own_anchor_if_it_has_one() -> None:
    trigger = every("1h", anchor="2026-03-01T00:20:00Z")
    assert next_fire(trigger, NOON, anchor=NOON) == NOON + 20 * MINUTE


def test_every_with_an_anchor_to_come_fires_one_period_after_it() -> None:
    assert next_fire(every("1h", anchor="2026-03-01T15:00:00Z"), NOON, NOON) == NOON + 4 * HOUR


def test_every_follows_elapsed_time_when_the_clocks_are_turned() -> None:
    start = parse_instant("2026-03-28T12:00:00+01:00")
    fire = next_fire(every("24h"), start, start)
    assert fire is not None
    assert format_instant(fire, "Europe/Berlin") == "2026-03-29T13:00:00+02:00"


def test_every_ends_where_instants_end() -> None:
    trigger = EveryTrigger(400 * DAY)
    assert next_fire(trigger, LATEST - 400 * DAY - 1, LATEST - 400 * DAY) == LATEST
    assert next_fire(trigger, LATEST, LATEST - 400 * DAY) is None


@given(near_noon, near_noon)
def test_at_fires_once(instant: int, start: int) -> None:
    assert next_fire(AtTrigger(instant), start, anchor=0) == (instant if instant > start else None)


@given(triggers.filter(lambda trigger: isinstance(trigger, ManualTrigger | AfterTrigger)), instants)
def test_manual_and_after_are_never_due_by_themselves(trigger: Trigger, start: int) -> None:
    assert next_fire(trigger, start, anchor=0) is None


@given(st.sampled_from(["*/15 * * * *", "30 2 * * *", "0 9-17/4 * * mon-fri"]), near_noon)
def test_cron_fires_when_its_fields_match(expression: str, start: int) -> None:
    conditions: dict[str, Callable[[datetime], bool]] = {
        "*/15 * * * *": lambda moment: moment.minute % 15 == 0,
        "30 2 * * *": lambda moment: (moment.hour, moment.minute) == (2, 30),
        "0 9-17/4 * * mon-fri": lambda m: m.minute == 0 and m.hour in (9, 13, 17) and m.weekday() < 5,
    }
    matches = conditions[expression]
    minutes = range(start // MINUTE + 1, start // MINUTE + 4 * 24 * 60)
    expected = next(minute * MINUTE for minute in minutes if matches(to_datetime(minute * MINUTE)))
    assert next_fire(cron(expression), start, anchor=0) == expected


def test_cron_is_read_in_its_zone_and_its_dialect() -> None:
    local = next_fire(cron("0 2 * * *", tz="Asia/Tokyo"), NOON, anchor=0)
    quartz = next_fire(cron("0 0 2 ? * 1", dialect="quartz"), NOON, anchor=0)
    assert local == parse_instant("2026-03-02T02:00:00+09:00")
    assert quartz == parse_instant("2026-03-08T02:00:00Z")  # A Sunday, where Unix would mean Monday.


@pytest.mark.parametrize(
    "value", ["30s", timedelta(seconds=30), 30, 30.0], ids=["text", "timedelta", "whole seconds", "seconds"]
)
def test_a_period_may_be_written_in_several_ways(value: str | float | timedelta) -> None:
    assert every(value) == EveryTrigger(30 * SECOND)


def test_periods_may_be_shorter_than_a_second() -> None:
    assert every("250ms") == EveryTrigger(250 * MILLISECOND)
    assert every("10ms") == EveryTrigger(SHORTEST_PERIOD)


@pytest.mark.parametrize("period", [0, "0s", "9ms", timedelta(0), 0.0001])
def test_a_period_that_would_flood_the_ledger_is_refused(period: str | float | timedelta) -> None:
    with pytest.raises(InvalidDuration, match=r"^period: .* is shorter than 10ms; choose 10ms or longer"):
        every(period)


def test_an_instant_may_be_text_or_datetime() -> None:
    assert at("2026-03-01T13:00:00+01:00") == at(datetime(2026, 3, 1, 12, tzinfo=UTC)) == AtTrigger(NOON)


class _Job(NamedTuple):
    name: str


class _Decorated(NamedTuple):
    name: str
    job_name: str


def test_jobs_to_run_after_are_given_by_name_or_as_objects() -> None:
    given_as = after("extract", _Job("transform"), _Decorated(name="tasks.load", job_name="load"))
    assert given_as == AfterTrigger(("extract", "transform", "load"), "all_succeeded", "skip")
    assert after("a", when="any_finished", on_failure="run") == AfterTrigger(("a",), "any_finished", "run")


@pytest.mark.parametrize(
    ("trigger", "error", "field"),
    [
        (CronTrigger("61 * * * *"), InvalidCron, "cron"),
        (CronTrigger("* * * * *", dialect="unicorn"), InvalidCron, "dialect"),
        (CronTrigger("* * * * *", tz="Mars/Olympus"), InvalidZone, "tz"),
        (EveryTrigger(0), InvalidDuration, "period"),
        (EveryTrigger(-SECOND), InvalidDuration, "period"),
        (EveryTrigger(SECOND, anchor=LATEST + 1), InvalidInput, "anchor"),
        (AtTrigger(LATEST + 1), InvalidInput, "at"),
        (AtTrigger(EARLIEST - 1), InvalidInput, "at"),
        (AfterTrigger(()), InvalidInput, "jobs"),
        (AfterTrigger(("a", "")), InvalidInput, "jobs[1]"),
        (AfterTrigger(("a", "b", "a")), InvalidInput, "jobs[2]"),
        (msgspec.structs.replace(AfterTrigger(("a",)), when="sometimes"), InvalidInput, "when"),
        (msgspec.structs.replace(AfterTrigger(("a",)), on_failure="cry"), InvalidInput, "on_failure"),
    ],
    ids=str,
)
def test_a_trigger_that_could_not_be_evaluated_is_refused(
    trigger: Trigger, error: type[InvalidInput], field: str
) -> None:
    with pytest.raises(error) as refusal:
        check_trigger(trigger)
    assert refusal.value.field == field
    assert refusal.value.remedy


def test_constructors_refuse_at_once() -> None:
    with pytest.raises(InvalidCron):
        cron("0 0 30 2 *")
    with pytest.raises(InvalidZone, match="Mars/Olympus"):
        cron("* * * * *", tz="Mars/Olympus")
    with pytest.raises(InvalidInput, match="has no time zone"):
        at("2026-03-01T12:00:00")
    with pytest.raises(InvalidInput, match=r"anchor: .* has no time zone"):
        every("1h", anchor="2026-03-01T12:00:00")
    with pytest.raises(InvalidInput, match="names no job"):
        after()
    unseen: Any = len  # A function that @app.job has not seen has no name to look up.
    with pytest.raises(InvalidInput, match="is not a job"):
        after(unseen)


@given(triggers)
def test_what_the_checks_let_through_can_be_asked_and_described(trigger: Trigger) -> None:
    check_trigger(trigger)
    next_fire(trigger, NOON, NOON)
    assert describe(trigger)


@given(triggers)
def test_a_trigger_survives_json(trigger: Trigger) -> None:
    text = msgspec.json.encode(trigger)
    assert msgspec.json.decode(text, type=Trigger) == trigger


def test_the_kind_distinguishes_triggers_in_json() -> None:
    assert msgspec.to_builtins(manual()) == {"kind": "manual"}
    assert msgspec.to_builtins(every("1s")) == {"kind": "every", "period": SECOND, "anchor": None}
    with pytest.raises(msgspec.ValidationError):
        msgspec.json.decode(b'{"kind": "sometimes"}', type=Trigger)


@given(near_noon)
def test_a_new_one_off_job_must_lie_in_the_future(instant: Instant) -> None:
    trigger = AtTrigger(instant)
    if instant >= NOON - PAST_TOLERANCE:
        check_not_past(trigger, NOON)
    else:
        with pytest.raises(InvalidInput, match=r"at: .* is not in the future: it is 2026-03-01T12:00:00Z; choose"):
            check_not_past(trigger, NOON)


def test_a_new_cron_job_must_have_an_instant_to_come() -> None:
    check_not_past(cron("0 0 12 1 1 ? 2027"), NOON)
    with pytest.raises(InvalidCron, match="never fires after 2026-03-01T12:00:00Z"):
        check_not_past(cron("0 0 12 1 1 ? 2026"), NOON)


def test_what_was_now_when_it_was_written_is_still_now_when_it_arrives() -> None:
    check_not_past(AtTrigger(NOON), NOON)
    check_not_past(AtTrigger(NOON - PAST_TOLERANCE), NOON)
    with pytest.raises(InvalidInput):
        check_not_past(AtTrigger(NOON - PAST_TOLERANCE - 1), NOON)


@pytest.mark.parametrize("trigger", [every("1h", anchor="2020-01-01T00:00:00Z"), manual(), after("a")], ids=str)
def test_other_triggers_are_never_past(trigger: Trigger) -> None:
    check_not_past(trigger, NOON)


@pytest.mark.parametrize(
    ("trigger", "text"),
    [
        (every("30s"), "every 30s"),
        (every("1h30m", anchor="2026-03-01T09:00:00Z"), "every 1h30m from 2026-03-01T09:00:00Z"),
        (cron("0 2 * * *", tz="Europe/Berlin"), "cron 0 2 * * * in Europe/Berlin"),
        (at("2026-03-01T09:00:00Z"), "at 2026-03-01T09:00:00Z"),
        (manual(), "manual"),
        (after("b", "c"), "after b, c"),
        (after("b", "c", when="any_finished"), "after any of b, c"),
        (after("b", on_failure="run"), "after b (runs even if one fails)"),
        (after("b", on_failure="fail"), "after b (fails if one fails)"),
    ],
)
def test_triggers_are_described_for_people(trigger: Trigger, text: str) -> None:
    assert describe(trigger) == text


@pytest.mark.parametrize(
    ("zone", "instant", "note"),
    [
        ("Europe/Berlin", "2026-03-29T01:59:59+01:00", None),
        ("Europe/Berlin", "2026-03-29T03:00:00+02:00", "clocks went forward 1h at 02:00, now UTC+02:00"),
        ("Europe/Berlin", "2026-03-29T23:30:00+02:00", "clocks went forward 1h at 02:00, now UTC+02:00"),
        ("Europe/Berlin", "2026-03-30T02:30:00+02:00", "clocks went forward 1h at 02:00 on 2026-03-29, now UTC+02:00"),
        ("Europe/Berlin", "2026-03-30T03:00:00+02:00", None),
        ("Europe/Berlin", "2026-10-25T02:30:00+02:00", None),
        ("Europe/Berlin", "2026-10-25T02:30:00+01:00", "clocks went back 1h at 03:00, now UTC+01:00"),
        ("America/New_York", "2026-11-01T12:00:00-05:00", "clocks went back 1h at 02:00, now UTC-05:00"),
        ("Asia/Beirut", "2026-03-29T01:00:00+03:00", "clocks went forward 1h at 00:00, now UTC+03:00"),
        ("Australia/Lord_Howe", "2026-04-05T12:00:00+10:30", "clocks went back 30m at 02:00, now UTC+10:30"),
        ("Europe/London", "2026-10-25T12:00:00Z", "clocks went back 1h at 02:00, now UTC"),
        # A day of 25 hours whose first minute was the last before the change: more than 24 hours ago, but that day.
        ("America/St_Johns", "2010-11-07T23:30:00-03:30", "clocks went back 1h at 00:01, now UTC-03:30"),
        ("UTC", "2026-03-29T03:00:00Z", None),
    ],
)
def test_a_preview_says_when_the_clocks_were_turned(zone: str, instant: str, note: str | None) -> None:
    assert transition_note(parse_instant(instant), zone) == note


CHANGES = [
    ("Europe/Berlin", "2026-03-29T01:00:00Z"),
    ("Europe/Berlin", "2026-10-25T01:00:00Z"),
    ("America/New_York", "2026-11-01T06:00:00Z"),
    ("Asia/Beirut", "2026-03-28T22:00:00Z"),
    ("America/Havana", "2026-11-01T05:00:00Z"),
    ("Australia/Lord_Howe", "2026-10-03T15:30:00Z"),
    ("America/St_Johns", "2010-11-07T02:31:00Z"),
]


@given(st.sampled_from(CHANGES), st.integers(-30 * HOUR, 30 * HOUR))
def test_there_is_a_note_just_when_the_offset_changed_that_day_or_within_24_hours(
    change: tuple[str, str], distance: int
) -> None:
    zone, turned = change
    instant = parse_instant(turned) + distance
    local = to_datetime(instant).astimezone(ZoneInfo(zone))
    midnight = local.replace(hour=0, minute=0, second=0, microsecond=0, fold=0)
    a_day_before = to_datetime(instant - DAY).astimezone(ZoneInfo(zone))
    expected = {midnight.utcoffset(), a_day_before.utcoffset()} != {local.utcoffset()}
    assert (transition_note(instant, zone) is not None) == expected


@pytest.mark.parametrize(("zone", "turned"), CHANGES)
def test_fire_times_strictly_grow_while_the_clocks_are_turned(zone: str, turned: str) -> None:
    start = parse_instant(turned) - 2 * DAY
    for trigger in (cron("30 2 * * *", tz=zone), cron("*/10 * * * *", tz=zone), every("7m")):
        fires = [start]
        while fires[-1] < start + 4 * DAY:
            following = next_fire(trigger, fires[-1], NOON)
            assert following is not None
            fires.append(following)
        assert all(earlier < later for earlier, later in pairwise(fires))
