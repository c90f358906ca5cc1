"""What an edit of a calendar changes: applied to the old firings, the changes give the new ones."""

from __future__ import annotations

from datetime import date

from hypothesis import given, settings
from hypothesis import strategies as st

from mainspring.core.instants import DAY, Instant, parse_instant
from mainspring.core.model import Job, JobPolicy
from mainspring.core.planning.calendar_changes import compare_firings
from mainspring.core.planning.plans import next_fire_at
from mainspring.core.schedules.calendar_rules import WEEKDAYS, CronRule, DailyWindow, Dates, Other, Rule, Weekdays
from mainspring.core.schedules.calendars import Calendar, excluded, excluded_day
from mainspring.core.schedules.triggers import CronTrigger

NOW = parse_instant("2026-12-20T00:00:00Z")
days = st.lists(st.sampled_from(WEEKDAYS), min_size=1, max_size=3, unique=True).map(tuple)
dates = st.lists(st.integers(20, 31).map(lambda day: f"12-{day}"), min_size=1, max_size=3, unique=True).map(tuple)
rules: st.SearchStrategy[Rule] = st.one_of(days.map(Weekdays), dates.map(Dates), st.just(DailyWindow("00:00", "08:00")))
calendars = st.lists(rules, max_size=3).map(lambda found: {"free": Calendar("free", tuple(found))})


def firings(job: Job, known: dict[str, Calendar], until: Instant) -> list[Instant]:
    found, at = list[Instant](), next_fire_at(job, NOW, known)
    while at is not None and at < until:
        found.append(at)
        at = next_fire_at(job, at, known)
    return found


@settings(max_examples=60, deadline=None)
@given(
    old=calendars,
    new=calendars,
    moves=st.booleans(),
    expression=st.sampled_from(["0 9 * * *", "0 9 * * mon", "30 2,14 * * *"]),
)
def test_the_changes_turn_the_old_firings_into_the_new_ones(
    old: dict[str, Calendar], new: dict[str, Calendar], moves: bool, expression: str
) -> None:
    policy = JobPolicy(calendars=("free",), on_excluded="next_day" if moves else "skip")
    job = Job("j", "j", "t", CronTrigger(expression, "Europe/Berlin"), policy=policy, created_at=NOW)
    planned, wanted = (firings(job, each, NOW + 20 * DAY) for each in (old, new))
    changes = compare_firings(job, planned, wanted, old, new)
    left = (set(planned) - {each.at for each in changes}) | {each.to for each in changes if each.to is not None}
    assert left == set(wanted)
    assert len({each.at for each in changes if each.at}) + sum(each.at is None for each in changes) == len(changes)
    for change in changes:
        assert (change.at is None, change.to is None) == (change.effect == "added", change.effect == "dropped")
        assert moves or change.effect != "moved"


def test_a_new_holiday_moves_a_weekly_report_to_the_next_day_and_says_why() -> None:
    policy = JobPolicy(calendars=("free",), on_excluded="next_day")
    job = Job("j", "j", "t", CronTrigger("0 9 * * fri"), policy=policy, created_at=NOW)
    old, new = {"free": Calendar("free", ())}, {"free": Calendar("free", (Dates(("12-25",)), Weekdays(("sat",))))}
    lists = [firings(job, each, NOW + 14 * DAY) for each in (old, new)]
    (change,) = compare_firings(job, lists[0], lists[1], old, new)
    friday, sunday = parse_instant("2026-12-25T09:00:00Z"), parse_instant("2026-12-27T09:00:00Z")
    assert change == ("moved", friday, sunday, "calendar free excludes 12-25")
    (back,) = compare_firings(job, lists[1], lists[0], new, old)
    assert (back.effect, back.at, back.to) == ("moved", sunday, friday)


@settings(max_examples=40, deadline=None)
@given(
    found=st.lists(st.one_of(rules, st.just(CronRule("0-29 * * * *"))), max_size=3),
    day=st.integers(1, 31),
    zone=st.sampled_from(["UTC", "Europe/Berlin", "Asia/Kathmandu"]),
)
def test_a_day_is_excluded_as_its_minutes_are(found: list[Rule], day: int, zone: str) -> None:
    known = {"inner": Calendar("inner", tuple(found), zone), "outer": Calendar("outer", (Other("inner"),), zone)}
    at = parse_instant(f"2026-12-{day:02}T00:00:00Z")
    midnight = at - (at + {"UTC": 0, "Europe/Berlin": 3600, "Asia/Kathmandu": 20700}[zone] * 1_000_000) % DAY
    chosen = date(2026, 12, day)
    reasons = [excluded(("outer",), midnight + minute * 60_000_000, known) for minute in range(1440)]
    answer = excluded_day("outer", chosen, known)
    assert (answer is not None) == any(reasons)
    assert answer is None or answer.whole == all(reasons)
