"""Backfill: which past instants, in which order, and how their runs wait for each other."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.instants import DAY, HOUR, MINUTE, parse_instant
from mainspring.core.model import Job, JobPolicy, Overlap
from mainspring.core.planning.backfill import check_interval, in_turn, plan_backfill
from mainspring.core.schedules.calendar_rules import Weekdays
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger
from mainspring.errors import InvalidInput

START = parse_instant("2026-03-26T00:00:00Z")
JOB = Job("j" * 26, "report", "report", EveryTrigger(HOUR, START), created_at=START)


@given(st.integers(0, 200 * HOUR), st.integers(0, 50 * HOUR), st.integers(1, 30))
def test_parts_of_an_interval_add_up_to_its_instants_each_once(offset: int, length: int, limit: int) -> None:
    since, until, now = START + offset, START + offset + length, START + 1_000 * HOUR
    found = []
    following: int | None = since
    while following is not None:
        part = plan_backfill(JOB, following, until, limit, now, {})
        assert len(part.firings) <= limit
        found += [firing.fire_at for firing in part.firings]
        following = part.following
    # Counted from the anchor: the first instant is one period after it.
    assert found == [START + n * HOUR for n in range(1, 300) if since <= START + n * HOUR <= until]


def test_calendars_start_and_end_hold_but_a_limit_of_firings_does_not() -> None:
    policy = JobPolicy(calendars=("free",), start_at=START + DAY, end_at=START + 6 * DAY, max_firings=1)
    job = replace(JOB, trigger=CronTrigger("0 0 * * *", "UTC"), policy=policy, fired=1)
    calendars = {"free": Calendar("free", (Weekdays(("sat", "sun")),))}
    planned = plan_backfill(job, START, START + 30 * DAY, 100, START + 40 * DAY, calendars)
    assert [(firing.fire_at - START) // DAY for firing in planned.firings] == [1, 4, 5, 6]


def test_runs_are_due_now_and_their_old_deadline_does_not_count() -> None:
    job = replace(JOB, policy=JobPolicy(start_deadline=MINUTE, jitter=HOUR))
    now = START + 10 * HOUR
    runs = [run for firing in plan_backfill(job, START, now, 5, now, {}).firings for run in firing.runs]
    assert {(run.due_at, run.expires_at) for run in runs} == {(now, None)}


@pytest.mark.parametrize("overlap", ["forbid", "replace"])
def test_where_runs_must_not_overlap_each_waits_for_the_one_before_it_in_its_region(overlap: Overlap) -> None:
    job = replace(JOB, policy=JobPolicy(overlap=overlap, regions=("eu", "us")))
    now = START + 3 * HOUR
    runs = [run for firing in plan_backfill(job, START, now, 5, now, {}).firings for run in firing.runs]
    turns = in_turn(job, runs, {"eu": ["busy"]})
    assert [run.region for run in turns] == ["eu", "us"] * 3
    assert [run.after for run in turns] == [("busy",), (), *((run.id,) for run in turns[:4])]
    assert {run.on_failure for run in turns if run.after} == {"run"}
    free = replace(job, policy=JobPolicy(overlap="allow"))
    assert in_turn(free, runs, {"eu": ["busy"]}) == runs


def test_what_the_ledger_may_have_forgotten_is_refused_unless_the_job_is_younger() -> None:
    now, kept = START + 500 * DAY, 400 * DAY
    with pytest.raises(InvalidInput, match="from"):
        check_interval(JOB, START, START + 450 * DAY, now, kept)
    check_interval(JOB, START + 101 * DAY, START + 450 * DAY, now, kept)
    check_interval(JOB, START - 30 * DAY, START - DAY, now, kept)
