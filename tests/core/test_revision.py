"""What a stored job keeps and what moves when its definition changes."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from mainspring.core.instants import DAY, HOUR, MINUTE, Instant, parse_instant
from mainspring.core.model import Job, JobPolicy, RunOptions
from mainspring.core.planning.revision import Revision, begin, reconsider, revise, set_paused
from mainspring.core.schedules.calendar_rules import Blackout, Weekdays
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import (
    PAST_TOLERANCE,
    AfterTrigger,
    AtTrigger,
    CronTrigger,
    EveryTrigger,
    ManualTrigger,
    Trigger,
)

START = parse_instant("2026-03-27T12:00:00Z")  # A Friday.
HOURLY = EveryTrigger(HOUR)
CALENDARS = {"weekends": Calendar("weekends", (Weekdays(("sat", "sun")),))}


def stored(trigger: Trigger = HOURLY, policy: JobPolicy | None = None) -> Job:
    """A job created at START, which has fired seven times and is paused."""
    job = begin(Job("id", "report", "report", trigger, policy=policy or JobPolicy()), START, CALENDARS)
    return replace(job, fired=7, last_fire_at=START - 1, paused_at=START, paused_why="audit", version=3)


def revised(job: Job, now: Instant, **changes: object) -> Revision:
    revision = revise(job, replace(job, **changes), now, CALENDARS)
    assert revision is not None
    return revision


class TestAPause:
    def test_keeps_the_next_instant_and_what_a_second_one_says_is_not_heard(self) -> None:
        job = replace(stored(), paused_at=None, paused_why="")
        revision = set_paused(job, START + HOUR, {}, "audit", paused=True)
        assert revision == Revision(replace(job, paused_at=START + HOUR, paused_why="audit"))
        assert set_paused(revision.job, START + DAY, {}, "other", paused=True) is None


class TestANewJob:
    def test_begins_with_nothing_behind_it(self) -> None:
        given = Job("id", "report", "report", HOURLY, version=9, fired=9, last_fire_at=9, created_at=9, updated_at=9)
        job = begin(given, START, {})
        assert (job.version, job.fired, job.last_fire_at) == (1, 0, None)
        assert (job.created_at, job.updated_at, job.next_fire_at) == (START, START, START + HOUR)

    def test_whose_time_has_passed_is_never_due(self) -> None:
        job = Job("id", "report", "report", AtTrigger(START - PAST_TOLERANCE - 1))
        assert begin(job, START, {}).next_fire_at is None

    @pytest.mark.parametrize("ago", [0, 1, PAST_TOLERANCE])
    def test_whose_time_was_a_moment_ago_is_due_at_once(self, ago: int) -> None:
        assert begin(Job("id", "report", "report", AtTrigger(START - ago)), START, {}).next_fire_at == START - ago
        assert revised(stored(), START, trigger=AtTrigger(START - ago)).job.next_fire_at == START - ago


class TestAChangedDefinition:
    def test_that_says_the_same_is_none(self) -> None:
        job = stored()
        declared = Job("other id", "report", "report", HOURLY, created_at=START + DAY)
        assert revise(job, declared, START + DAY, {}) is None

    def test_keeps_identity_counts_and_pause(self) -> None:
        job = stored()
        wanted = Job(
            "other", "other", "mail", HOURLY, namespace="x", app="x", args="[]", options=RunOptions(max_losses=1)
        )
        revision = revise(job, wanted, START + MINUTE, {})
        assert revision is not None
        new = revision.job
        assert (new.id, new.name, new.namespace, new.app) == ("id", "report", "default", "default")
        assert (new.fired, new.last_fire_at, new.paused_why, new.created_at) == (7, START - 1, "audit", START)
        assert (new.task, new.args, new.options) == ("mail", "[]", RunOptions(max_losses=1))
        assert (new.version, new.updated_at) == (4, START + MINUTE)

    def test_not_of_time_loses_no_overdue_instant(self) -> None:
        job = stored()
        revision = revised(job, START + 5 * HOUR, priority=1)
        assert (revision.job.next_fire_at, revision.passed_over) == (START + HOUR, ())

    def test_of_time_is_due_next_after_now(self) -> None:
        job = stored()
        assert revised(job, START + MINUTE, trigger=EveryTrigger(10 * MINUTE)).job.next_fire_at == START + 10 * MINUTE
        later = replace(job.policy, start_at=START + DAY)
        assert revised(job, START + MINUTE, policy=later).job.next_fire_at == START + DAY
        over = replace(job.policy, end_at=START + MINUTE)
        assert revised(job, START + MINUTE, policy=over).job.next_fire_at is None
        weekdays = replace(job.policy, calendars=("weekends",))
        monday = parse_instant("2026-03-30T00:00Z")
        assert revised(job, START + 12 * HOUR, policy=weekdays).job.next_fire_at == monday

    def test_of_time_accounts_for_the_overdue_instants_that_it_gives_up(self) -> None:
        revision = revised(stored(), START + 2 * HOUR, trigger=ManualTrigger())
        assert revision.job.next_fire_at is None
        assert [(row.fire_at, row.outcome) for row in revision.passed_over] == [
            (START + HOUR, "skipped"),
            (START + 2 * HOUR, "skipped"),
        ]
        assert {row.reason for row in revision.passed_over} == {"the schedule was changed before it fired"}

    def test_of_max_firings_ends_or_reopens_a_job(self) -> None:
        open_job = stored()
        assert revised(open_job, START, policy=JobPolicy(max_firings=9)).job.next_fire_at == START + HOUR
        ended = revised(open_job, START, policy=JobPolicy(max_firings=7)).job
        assert ended.next_fire_at is None
        assert revised(ended, START + DAY, policy=JobPolicy(max_firings=8)).job.next_fire_at == START + DAY + HOUR

    def test_of_upstreams_is_looked_at_once_more(self) -> None:
        job = stored(AfterTrigger(("a", "b")))
        assert job.next_fire_at is None
        assert revised(job, START + DAY, trigger=AfterTrigger(("a",))).job.next_fire_at == START + DAY
        due = replace(job, next_fire_at=START + 5)
        assert revised(due, START + DAY, priority=1).job.next_fire_at == START + 5


class TestAChangedCalendar:
    def test_moves_an_instant_that_it_now_excludes(self) -> None:
        job = stored(CronTrigger("0 8 * * *"), JobPolicy(calendars=("weekends",)))
        assert job.next_fire_at == parse_instant("2026-03-30T08:00Z")
        rules = (*CALENDARS["weekends"].rules, Blackout("2026-03-30", "2026-03-31"))
        moved = reconsider(job, START, {"weekends": Calendar("weekends", rules)})
        assert (moved.next_fire_at, moved.version) == (parse_instant("2026-03-31T08:00Z"), job.version + 1)

    def test_loses_no_overdue_instant(self) -> None:
        job = replace(stored(HOURLY, JobPolicy(calendars=("weekends",))), next_fire_at=START)
        assert reconsider(job, START + DAY, CALENDARS).next_fire_at == START

    def test_does_not_touch_what_upstreams_made_due(self) -> None:
        job = replace(stored(AfterTrigger(("a",)), JobPolicy(calendars=("weekends",))), next_fire_at=START + HOUR)
        assert reconsider(job, START, CALENDARS).next_fire_at == START + HOUR
