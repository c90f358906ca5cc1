"""What calendars exclude, compared with a reference written another way, and where excluded instants move to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import date, datetime, time, timedelta

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.core.instants import (
    DAY,
    HOUR,
    LATEST,
    MINUTE,
    SECOND,
    format_instant,
    offset_at,
    parse_instant,
    to_datetime,
)
from mainspring.core.schedules.calendar_rules import (
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
    blackout,
    business_hours,
    holidays,
    weekends,
)
from mainspring.core.schedules.calendars import Calendar, check_calendar, excluded, excluded_until, next_allowed_day
from mainspring.core.schedules.cron import parse_cron
from mainspring.errors import DependencyCycle, NotFound

Calendars = Mapping[str, Calendar]
ZONES = ["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Beirut"]

CRON_WITH_SECONDS = "*/20 * 8-9 * * *"
YEAR = [f"{date(2000, 1, 1) + timedelta(days=number):%m-%d}" for number in range(366)]

# A stretch that holds the turn of a year, a leap day, and both changes of the clocks.
days = st.dates(date(2027, 10, 1), date(2028, 12, 31))
times = st.times().map(lambda moment: moment.replace(microsecond=0))
instants = st.integers(parse_instant("2027-10-01T00:00:00Z"), parse_instant("2028-12-31T00:00:00Z"))
around_changes = st.tuples(
    st.sampled_from(["2028-03-26T01:00:00Z", "2028-10-29T01:00:00Z", "2028-03-25T22:00:00Z", "2028-11-05T06:00:00Z"]),
    st.integers(-30 * HOUR, 3 * HOUR),
).map(lambda near: parse_instant(near[0]) + near[1])
yearly_days = days.map(lambda day: f"{day:%m-%d}") | days.map(lambda day: f"--{day:%m-%d}")


def _span(ends: tuple[date, date]) -> str:
    return f"{min(ends)}/{max(ends)}"


date_texts = st.one_of(
    days.map(str),
    yearly_days,
    st.tuples(days, days).map(_span),
    st.tuples(yearly_days, yearly_days).map("/".join),
)
clock_texts = times.map(lambda moment: f"{moment:%H:%M}") | times.map(lambda moment: f"{moment:%H:%M:%S}")
windows = (
    st.tuples(clock_texts, clock_texts)
    .filter(lambda ends: time.fromisoformat(ends[0]) != time.fromisoformat(ends[1]))
    .map(lambda ends: DailyWindow(*ends))
)
moments = st.builds(datetime.combine, days, times)
blackouts = st.tuples(moments, st.timedeltas(timedelta(seconds=60), timedelta(days=90))).map(
    lambda at: Blackout(f"{at[0]:%Y-%m-%dT%H:%M}", f"{at[0] + at[1]:%Y-%m-%dT%H:%M:%S}")
)
crons = st.sampled_from(["* 9-17 * * *", "30 2 * * *", CRON_WITH_SECONDS, "* * 13 * 5", "@daily"])
simple_rules = st.one_of(
    st.lists(date_texts, max_size=4).map(lambda dates: Dates(tuple(dates))),
    st.lists(st.sampled_from(WEEKDAYS), max_size=4).map(lambda names: Weekdays(tuple(names))),
    windows,
    blackouts,
    crons.map(CronRule),
)


def _rules(known: list[str]) -> st.SearchStrategy[tuple[Rule, ...]]:
    rule: st.SearchStrategy[Rule] = simple_rules
    if known:
        rule |= st.sampled_from(known).map(Other)
    rule |= st.lists(rule, min_size=1, max_size=3).map(lambda rules: Not(tuple(rules)))
    return st.lists(rule, min_size=1, max_size=4).map(tuple)


@st.composite
def calendar_sets(draw: st.DrawFn) -> dict[str, Calendar]:
    calendars: dict[str, Calendar] = {}
    for name in ("first", "second", "third"):
        calendars[name] = Calendar(name, draw(_rules(list(calendars))), draw(st.sampled_from(ZONES)))
    return calendars


def _reference(name: str, instant: int, calendars: Calendars) -> bool:
    """Whether a calendar excludes an instant, by dates and times instead of texts."""
    wall = to_datetime(instant, calendars[name].tz).replace(tzinfo=None)
    return any(_applies(rule, wall, instant, calendars) for rule in calendars[name].rules)


def _applies(rule: Rule, wall: datetime, instant: int, calendars: Calendars) -> bool:
    if isinstance(rule, Other):
        return _reference(rule.calendar, instant, calendars)
    if isinstance(rule, Not):
        return not any(_applies(inner, wall, instant, calendars) for inner in rule.rules)
    return _covers(rule, wall)


def _covers(rule: SimpleRule, wall: datetime) -> bool:
    match rule:
        case Dates(texts):
            return any(_names_day(text, wall.date()) for text in texts)
        case Weekdays(names):
            return f"{wall:%a}".lower() in names
        case DailyWindow(start, end):
            opens = datetime.combine(wall, time.fromisoformat(start))
            length = (datetime.combine(wall, time.fromisoformat(end)) - opens) % timedelta(days=1)
            return (wall - opens) % timedelta(days=1) < length
        case Blackout(start, end):
            return datetime.fromisoformat(start) <= wall < datetime.fromisoformat(end)
        case CronRule(expression):
            has_seconds = expression == CRON_WITH_SECONDS
            return parse_cron(expression).matches_wall(wall if has_seconds else wall.replace(second=0))


def _names_day(text: str, day: date) -> bool:
    ends = [end.removeprefix("--") for end in text.split("/")]
    if len(ends[0]) > len("12-25"):
        return date.fromisoformat(ends[0]) <= day <= date.fromisoformat(ends[-1])
    first, last = YEAR.index(ends[0]), YEAR.index(ends[-1])
    return f"{day:%m-%d}" in (YEAR[first : last + 1] if first <= last else YEAR[first:] + YEAR[: last + 1])


@given(calendar_sets(), instants)
def test_what_is_excluded_agrees_with_the_reference(calendars: Calendars, instant: int) -> None:
    for name in calendars:
        assert (excluded([name], instant, calendars) is not None) == _reference(name, instant, calendars)


@given(calendar_sets(), instants)
def test_calendars_of_one_job_add_up_and_the_reason_names_the_one_that_excludes(
    calendars: Calendars, instant: int
) -> None:
    reason = excluded(calendars, instant, calendars)
    excluding = [name for name in calendars if _reference(name, instant, calendars)]
    if excluding:
        assert reason is not None
        assert reason.startswith(f"calendar {excluding[0]} excludes ")
    else:
        assert reason is None


@given(calendar_sets(), instants)
def test_every_generated_calendar_passes_the_check_and_survives_json(calendars: Calendars, instant: int) -> None:
    known: dict[str, Calendar] = {}
    for name, calendar in calendars.items():
        check_calendar(calendar, known)
        known[name] = msgspec.json.decode(msgspec.json.encode(calendar), type=Calendar)
    assert known == calendars


@given(calendar_sets(), instants | around_changes, st.data())
def test_all_is_excluded_until_the_instant_to_which_a_search_may_jump(
    calendars: Calendars, instant: int, data: st.DataObject
) -> None:
    until = excluded_until(["third"], instant, calendars)
    if until is None:
        assert not _reference("third", instant, calendars)
        return
    assert instant < until <= instant + DAY
    inside = data.draw(st.lists(st.integers(instant, until - 1), max_size=20))
    assert all(_reference("third", each, calendars) for each in (instant, until - 1, *inside))


@pytest.mark.parametrize(
    ("calendar", "start", "steps"),
    [
        (Calendar("week", (weekends(),), "Europe/Berlin"), "2026-03-07T00:00:00+01:00", ["2026-03-08", "2026-03-09"]),
        (
            Calendar("hours", (business_hours("09:00", "17:00"),)),
            "2026-03-09T17:00:00Z",
            ["2026-03-10", "2026-03-10T09:00"],
        ),
        (
            Calendar("freeze", (blackout("2026-11-28", "2026-11-29T06:00"),)),
            "2026-11-28T18:00:00Z",
            ["2026-11-29", "2026-11-29T06:00"],
        ),
        # Cut short where the clocks are turned: from 02:00 to 02:45 they show allowed times once more.
        (
            Calendar("fold", (DailyWindow("02:45", "04:00"),), "Europe/Berlin"),
            "2026-10-25T02:50:00+02:00",
            ["2026-10-25T01:00"],
        ),
    ],
    ids=lambda value: value.name if isinstance(value, Calendar) else "",
)
def test_a_search_crosses_exclusions_in_few_steps(calendar: Calendar, start: str, steps: list[str]) -> None:
    calendars, instant = {calendar.name: calendar}, parse_instant(start)
    ends = []
    while (until := excluded_until(calendars, instant, calendars)) is not None:
        ends.append(format_instant(until, calendar.tz if calendar.name == "week" else "UTC"))
        instant = until
    assert [end[: len(step)] for end, step in zip(ends, steps, strict=True)] == steps


def _calendars(*calendars: Calendar) -> dict[str, Calendar]:
    known: dict[str, Calendar] = {}
    for calendar in calendars:
        check_calendar(calendar, known)
        known[calendar.name] = calendar
    return known


OFFICE = _calendars(
    Calendar("holidays", (holidays("2026-05-25", "12-25", "12-31/01-01", date(2026, 4, 6)),), "Europe/Berlin"),
    Calendar("freeze", (blackout("2026-11-27", "2026-11-30T06:00"),), "America/New_York"),
    Calendar("office", (weekends(), business_hours("09:00", "17:00"), Other("holidays")), "Europe/Berlin"),
    Calendar("night", (DailyWindow("22:00", "06:00"), CronRule("0-29 12 * * *")), "Europe/Berlin"),
    Calendar("seconds", (CronRule("*/20 * * * * *"),)),
)


@pytest.mark.parametrize(
    ("name", "instant", "reason"),
    [
        ("holidays", "2026-12-25T00:00:00+01:00", "calendar holidays excludes 12-25"),
        ("holidays", "2026-12-24T23:30:00Z", "calendar holidays excludes 12-25"),
        ("holidays", "2026-12-25T23:00:00Z", None),
        ("holidays", "2027-01-01T12:00:00Z", "calendar holidays excludes 12-31/01-01"),
        ("holidays", "2026-04-06T12:00:00Z", "calendar holidays excludes 2026-04-06"),
        ("holidays", "2027-04-06T12:00:00Z", None),
        ("freeze", "2026-11-26T23:59:59-05:00", None),
        ("freeze", "2026-11-27T00:00:00-05:00", "calendar freeze excludes 2026-11-27 to 2026-11-30T06:00"),
        ("freeze", "2026-11-30T05:59:59.999999-05:00", "calendar freeze excludes 2026-11-27 to 2026-11-30T06:00"),
        ("freeze", "2026-11-30T06:00:00-05:00", None),
        ("office", "2026-05-22T09:00:00+02:00", None),
        ("office", "2026-05-22T16:59:59.999999+02:00", None),
        ("office", "2026-05-22T17:00:00+02:00", "calendar office excludes all but 09:00 to 17:00"),
        ("office", "2026-05-23T12:00:00+02:00", "calendar office excludes sat"),
        ("office", "2026-05-25T12:00:00+02:00", "calendar office excludes 2026-05-25 (calendar holidays)"),
        ("night", "2026-05-25T22:00:00+02:00", "calendar night excludes 22:00 to 06:00"),
        ("night", "2026-05-25T05:59:59+02:00", "calendar night excludes 22:00 to 06:00"),
        ("night", "2026-05-25T06:00:00+02:00", None),
        ("night", "2026-05-25T12:29:59+02:00", "calendar night excludes cron 0-29 12 * * *"),
        ("night", "2026-05-25T12:30:00+02:00", None),
        ("seconds", "2026-05-25T12:30:40.5Z", "calendar seconds excludes cron */20 * * * * *"),
        ("seconds", "2026-05-25T12:30:41Z", None),
    ],
)
def test_the_reason_says_which_calendar_and_what_in_it(name: str, instant: str, reason: str | None) -> None:
    assert excluded([name], parse_instant(instant), OFFICE) == reason


def test_no_calendars_exclude_nothing() -> None:
    assert excluded([], 0, {}) is None
    assert excluded_until([], 0, {}) is None


def test_an_unknown_calendar_is_not_taken_for_an_empty_one() -> None:
    with pytest.raises(NotFound, match="no calendar 'holydays'"):
        excluded(["holydays"], 0, OFFICE)


@settings(deadline=None)  # It may look through two years of days.
@given(calendar_sets(), instants | around_changes, st.sampled_from(ZONES))
def test_the_next_allowed_day_is_the_first_one_allowed_at_that_time(
    calendars: Calendars, instant: int, zone: str
) -> None:
    instant -= instant % SECOND
    found = next_allowed_day(instant, ["third"], calendars, zone)
    wall = to_datetime(instant, zone).replace(tzinfo=None)
    for number in range(1, 15):
        candidate = _first_at_or_after(wall + timedelta(days=number), zone)
        if not _reference("third", candidate, calendars):
            assert found == candidate
            return
    assert found is None or found > candidate


def _first_at_or_after(wall: datetime, zone: str) -> int:
    """The first instant at which the clocks show `wall`, or, if they never do, more: by trying."""
    as_utc = parse_instant(f"{wall.isoformat()}Z")
    tries = (as_utc - offset_at(as_utc + distance, zone) for distance in (-DAY, DAY))
    exact = [each for each in tries if to_datetime(each, zone).replace(tzinfo=None) == wall]
    if exact:
        return min(exact)
    # Skipped. Clocks are turned at whole minutes.
    minutes = range(as_utc // MINUTE * MINUTE - 16 * HOUR, as_utc + 16 * HOUR, MINUTE)
    return next(each for each in minutes if to_datetime(each, zone).replace(tzinfo=None) >= wall)


@pytest.mark.parametrize(
    ("instant", "zone", "moved"),
    [
        ("2026-05-22T12:00:00+02:00", "Europe/Berlin", "2026-05-26T12:00:00+02:00"),
        ("2026-12-31T10:00:00+01:00", "Europe/Berlin", "2027-01-04T10:00:00+01:00"),
        # The same time by the clocks, though 23 or 25 hours later.
        ("2026-03-27T12:00:00+01:00", "Europe/Berlin", "2026-03-30T12:00:00+02:00"),
        ("2026-10-23T12:00:00+02:00", "Europe/Berlin", "2026-10-26T12:00:00+01:00"),
    ],
)
def test_an_excluded_instant_moves_to_the_same_time_on_the_next_business_day(
    instant: str, zone: str, moved: str
) -> None:
    found = next_allowed_day(parse_instant(instant), ["office"], OFFICE, zone)
    assert found is not None
    assert format_instant(found, zone) == moved


@pytest.mark.parametrize(
    ("instant", "moved"),
    [
        # 02:30 does not exist on 29 March: the first instant that does.
        ("2026-03-28T02:30:00+01:00", "2026-03-29T03:00:00+02:00"),
        # 02:30 comes twice on 25 October: the first.
        ("2026-10-24T02:30:00+02:00", "2026-10-25T02:30:00+02:00"),
    ],
)
def test_a_time_that_the_clocks_skip_or_repeat_is_found_once(instant: str, moved: str) -> None:
    calendars = _calendars(Calendar("never", ()))
    found = next_allowed_day(parse_instant(instant), ["never"], calendars, "Europe/Berlin")
    assert found is not None
    assert format_instant(found, "Europe/Berlin") == moved


def test_no_day_is_found_where_none_is_allowed() -> None:
    calendars = _calendars(Calendar("closed", (Weekdays(WEEKDAYS),)))
    assert next_allowed_day(0, ["closed"], calendars, "Europe/Berlin") is None
    assert next_allowed_day(LATEST, [], calendars, "Europe/Berlin") is None


def test_a_circle_that_slipped_past_the_checks_is_named_and_not_followed() -> None:
    calendars = {"a": Calendar("a", (Other("b"),)), "b": Calendar("b", (Other("a"),))}
    with pytest.raises(DependencyCycle, match="a -> b -> a"):
        excluded(["a"], 0, calendars)


class _Watched(Mapping[str, Calendar]):
    """Calendars that remember which of them were looked up."""

    def __init__(self, calendars: Calendars) -> None:
        self._calendars = calendars
        self.lookups: list[str] = []

    def __getitem__(self, name: str) -> Calendar:
        self.lookups.append(name)
        return self._calendars[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._calendars)

    def __len__(self) -> int:
        return len(self._calendars)


def test_a_calendar_that_others_name_many_times_is_read_once() -> None:
    # Otherwise ten references on each of eight levels would be ten million readings for one instant.
    levels = [Calendar("c0", (weekends(),)), *(Calendar(f"c{n}", (Other(f"c{n - 1}"),) * 3) for n in range(1, 5))]
    watched = _Watched(_calendars(*levels))
    assert excluded(["c4"], parse_instant("2026-03-09T00:00:00Z"), watched) is None
    assert watched.lookups == ["c4", "c3", "c2", "c1", "c0"]
