"""Planning: every due instant is accounted for once, whenever the planner wakes up and whatever the policy says."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant, parse_instant
from mainspring.core.model import Job, JobPolicy
from mainspring.core.planning import plans
from mainspring.core.planning.plans import (
    AGED,
    LISTED_MISSES,
    Plan,
    PlannedFiring,
    as_of,
    may_precede,
    next_fire_at,
    pass_over,
    plan,
    written_at,
)
from mainspring.core.planning.revision import Revision, set_paused
from mainspring.core.schedules.calendar_rules import Blackout, CronRule, DailyWindow, Weekdays, holidays
from mainspring.core.schedules.calendars import Calendar, excluded, excluded_until, next_allowed_day
from mainspring.core.schedules.triggers import (
    AfterTrigger,
    AtTrigger,
    CronTrigger,
    EveryTrigger,
    ManualTrigger,
    Trigger,
    next_fire,
)

START = parse_instant("2026-03-26T12:00:00Z")  # A Thursday; on the Sunday after it the clocks of Europe go forward.
YEAR = 365 * DAY
few_examples = settings(max_examples=30, deadline=None)
CALENDARS = {
    "weekends": Calendar("weekends", (Weekdays(("sat", "sun")),), "Europe/Berlin"),
    "nights": Calendar("nights", (DailyWindow("22:00", "06:00"),)),
    "launch": Calendar("launch", (Blackout("2026-03-26T18:30", "2026-03-29T09:15"),), "America/New_York"),
    "always": Calendar("always", (Weekdays(("mon", "tue", "wed", "thu", "fri", "sat", "sun")),)),
}


def a_job(trigger: Trigger, policy: JobPolicy | None = None) -> Job:
    """A job created at START, due for the first time after it."""
    job = Job("j" * 26, "report", "report", trigger, policy=policy or JobPolicy(), created_at=START)
    return replace(job, next_fire_at=next_fire_at(job, START, CALENDARS))


def applied(job: Job, planned: Plan) -> Job:
    """The job as the store has it once the plan is written."""
    fired = sum(firing.outcome == "fired" for firing in planned.firings)
    return replace(job, next_fire_at=planned.next_fire_at, fired=job.fired + fired)


def plans_of(job: Job, wakes: Sequence[Instant]) -> Iterator[tuple[Instant, Plan]]:
    for now in wakes:
        planned = plan(job, now, CALENDARS)
        yield now, planned
        job = applied(job, planned)


def due_instants(job: Job, until: Instant) -> list[Instant]:
    """All due instants by brute force: the trigger's, one after the other, moved or left out by the calendars."""
    policy = job.policy
    next_day = policy.on_excluded == "next_day" and job.trigger not in FREQUENT
    first = max(START + 1, policy.start_at or 0)
    last = min(until, policy.end_at or until)
    zone = job.trigger.tz if isinstance(job.trigger, CronTrigger) else "UTC"
    found = set()
    instant = next_fire(job.trigger, first - (10 * DAY if next_day else 1), START)
    while instant is not None and instant <= last:
        moved: Instant | None = instant
        if policy.calendars and excluded(policy.calendars, instant, CALENDARS):
            moved = next_allowed_day(instant, policy.calendars, CALENDARS, zone) if next_day else None
        if moved is not None and first <= moved <= last:
            found.add(moved)
        instant = next_fire(job.trigger, instant, START)
    return sorted(found)


def positions(due: Sequence[Instant], row: PlannedFiring) -> range:
    """Which of the due instants a row of the ledger stands for."""
    first, last = bisect_left(due, row.fire_at), bisect_left(due, row.last_at or row.fire_at)
    assert due[first] == row.fire_at
    assert due[last] == (row.last_at or row.fire_at)
    assert row.count in (0, last - first + 1)
    return range(first, last + 1)


FREQUENT: list[Trigger] = [EveryTrigger(3 * SECOND), EveryTrigger(13 * MINUTE), CronTrigger("*/20 * * * * *")]
RARE: list[Trigger] = [
    EveryTrigger(HOUR, anchor=START - 5 * MINUTE),
    CronTrigger("5 * * * *", "America/New_York"),
    CronTrigger("30 2 * * *", "Europe/Berlin"),
    CronTrigger("0 9,17 * * 4-6", "America/New_York"),
    CronTrigger("0 10 * * sat", "Europe/Berlin"),
    AtTrigger(START + 5 * HOUR),
]
durations = st.integers(0, 2 * HOUR)
policies = st.builds(
    JobPolicy,
    misfire=st.sampled_from(["skip", "once", "all"]),
    grace=st.sampled_from([0, 10 * SECOND, 5 * MINUTE]),
    catch_up_window=durations,
    catch_up_limit=st.sampled_from([0, 1, 3, 100, 1500]),
    start_deadline=st.none() | durations,
    start_at=st.none() | durations.map(lambda delay: START + delay),
    end_at=st.none() | st.integers(HOUR, 4 * DAY).map(lambda delay: START + delay),
    calendars=st.sampled_from([(), (), ("weekends",), ("nights",), ("weekends", "nights"), ("launch",)]),
    on_excluded=st.sampled_from(["skip", "next_day"]),
)


@st.composite
def timelines(draw: st.DrawFn) -> tuple[Job, list[Instant]]:
    """A job, and the instants at which its planner wakes: often on time, sometimes after an outage."""
    trigger = draw(st.sampled_from(FREQUENT + RARE))
    policy = draw(policies)
    longest = 2 * HOUR if trigger in FREQUENT else 3 * DAY
    if "nights" in policy.calendars:
        policy = replace(policy, on_excluded="skip")  # A night has no next allowed day, which takes long to find out.
    gaps = draw(st.lists(st.integers(1, 30 * SECOND) | st.integers(1, longest), min_size=1, max_size=4))
    wakes = [START + sum(gaps[: count + 1]) for count in range(len(gaps))]
    return a_job(trigger, policy), wakes


class TestAPlanMadeAhead:
    @settings(max_examples=200, deadline=None)
    @given(timelines(), st.sampled_from([0, 1, 2 * SECOND, 4 * SECOND, 8 * SECOND, 25 * SECOND]) | durations)
    def test_is_at_its_time_what_would_be_planned_then_or_nothing(
        self, timeline: tuple[Job, list[Instant]], late: Duration
    ) -> None:
        job, _ = timeline
        if job.next_fire_at is None:
            return
        now = job.next_fire_at + late
        ahead = as_of(plan(job, job.next_fire_at, CALENDARS), now)
        assert ahead in (None, plan(job, now, CALENDARS))

    def test_is_good_for_a_job_that_is_a_moment_late(self) -> None:
        job = a_job(EveryTrigger(HOUR))
        assert job.next_fire_at is not None
        assert as_of(plan(job, job.next_fire_at, CALENDARS), job.next_fire_at + 5) is not None

    def test_is_not_good_once_its_runs_would_be_due_later(self) -> None:
        job = a_job(EveryTrigger(HOUR), JobPolicy(grace=MINUTE))
        assert job.next_fire_at is not None
        ahead = plan(job, job.next_fire_at, CALENDARS)
        assert as_of(ahead, job.next_fire_at + AGED) == plan(job, job.next_fire_at + AGED, CALENDARS)
        assert as_of(ahead, job.next_fire_at + AGED + 1) is None

    def test_is_not_good_once_another_instant_is_due(self) -> None:
        job = a_job(EveryTrigger(3 * SECOND))
        assert job.next_fire_at is not None
        ahead = plan(job, job.next_fire_at, CALENDARS)
        assert as_of(ahead, job.next_fire_at + 3 * SECOND - 1) is not None
        assert as_of(ahead, job.next_fire_at + 3 * SECOND) is None

    def test_may_be_written_ahead_if_it_depends_on_nothing_that_happens_meanwhile(self) -> None:
        for policy, key, may in (
            (JobPolicy(), None, True),
            (JobPolicy(parallelism=1, completions=3, start_deadline=HOUR), None, True),
            (JobPolicy(overlap="forbid"), None, False),
            (JobPolicy(overlap="queue"), None, False),
            (JobPolicy(overlap="replace"), None, False),
            (JobPolicy(), "customer", False),
        ):
            job = replace(a_job(EveryTrigger(HOUR), policy), key=key)
            assert job.next_fire_at is not None
            assert may_precede(plan(job, job.next_fire_at, CALENDARS)) is may

    def test_may_not_be_written_ahead_if_it_is_of_instants_that_were_missed(self) -> None:
        job = a_job(EveryTrigger(SECOND), JobPolicy(misfire="skip", grace=SECOND))
        assert job.next_fire_at is not None
        assert not may_precede(plan(job, job.next_fire_at + HOUR, CALENDARS))

    def test_written_ahead_has_runs_that_are_accepted_now_and_due_then(self) -> None:
        job = a_job(EveryTrigger(HOUR))
        assert job.next_fire_at is not None
        ahead = plan(job, job.next_fire_at, CALENDARS)
        written = written_at(ahead, START)
        (firing,) = written.firings
        assert [(run.created_at, run.due_at) for run in firing.runs] == [(START, job.next_fire_at)]
        assert (written.next_fire_at, firing.fire_at) == (ahead.next_fire_at, job.next_fire_at)

    def test_is_not_good_before_its_time(self) -> None:
        job = a_job(EveryTrigger(HOUR))
        assert job.next_fire_at is not None
        assert as_of(plan(job, job.next_fire_at, CALENDARS), job.next_fire_at - 1) is None


class TestEveryDueInstant:
    @settings(max_examples=100, deadline=None)
    @given(timelines())
    def test_is_covered_by_exactly_one_record(self, timeline: tuple[Job, list[Instant]]) -> None:
        job, wakes = timeline
        due = due_instants(job, wakes[-1])
        covered = [0] * len(due)
        for _, planned in plans_of(job, wakes):
            for row in planned.firings:
                for position in positions(due, row):
                    covered[position] += 1
        assert set(covered) <= {1}

    @few_examples
    @given(timelines())
    def test_is_recorded_in_order_and_the_next_one_lies_ahead(self, timeline: tuple[Job, list[Instant]]) -> None:
        job, wakes = timeline
        rows: list[PlannedFiring] = []
        for now, planned in plans_of(job, wakes):
            rows += planned.firings
            assert planned.next_fire_at is None or planned.next_fire_at > now
        assert all((early.last_at or early.fire_at) < late.fire_at for early, late in pairwise(rows))

    @few_examples
    @given(timelines(), st.integers(1, 5))
    def test_counts_until_the_last_of_max_firings(self, timeline: tuple[Job, list[Instant]], most: int) -> None:
        job, wakes = timeline
        job = replace(job, policy=replace(job.policy, max_firings=most))
        rows = [row for _, planned in plans_of(job, wakes) for row in planned.firings]
        fired = [row.fire_at for row in rows if row.outcome == "fired"]
        assert len(fired) <= most
        due = due_instants(job, wakes[-1])
        if len(fired) == most:
            due = [instant for instant in due if instant <= fired[-1]]
        assert [position for row in rows for position in positions(due, row)] == list(range(len(due)))


class TestMisfires:
    @few_examples
    @given(timelines())
    def test_skip_never_runs_a_late_one(self, timeline: tuple[Job, list[Instant]]) -> None:
        job, wakes = timeline
        job = replace(job, policy=replace(job.policy, misfire="skip"))
        for now, planned in plans_of(job, wakes):
            assert all(now - row.fire_at <= job.policy.grace for row in planned.firings if row.outcome == "fired")

    @few_examples
    @given(timelines())
    def test_once_runs_the_newest_late_one_and_only_if_none_is_on_time(
        self, timeline: tuple[Job, list[Instant]]
    ) -> None:
        job, wakes = timeline
        job = replace(job, policy=replace(job.policy, misfire="once", start_deadline=None))
        for now, planned in plans_of(job, wakes):
            fired = [row.fire_at for row in planned.firings if row.outcome == "fired"]
            late = [instant for instant in fired if now - instant > job.policy.grace]
            assert late == [] or late == fired == [max(row.last_at or row.fire_at for row in planned.firings)]
            assert bool(fired) == bool(planned.firings)

    @few_examples
    @given(timelines())
    def test_all_runs_the_newest_within_window_and_limit(self, timeline: tuple[Job, list[Instant]]) -> None:
        job, wakes = timeline
        policy = replace(job.policy, misfire="all", start_deadline=None)
        job, before = replace(job, policy=policy), START
        for now, planned in plans_of(job, wakes):
            fired = [row.fire_at for row in planned.firings if row.outcome == "fired"]
            late = [instant for instant in due_instants(job, now) if before < instant < now - policy.grace]
            expected = [instant for instant in late if now - instant <= policy.catch_up_window]
            expected = expected[len(expected) - min(len(expected), policy.catch_up_limit) :]
            assert [instant for instant in fired if now - instant > policy.grace] == expected
            before = now

    @few_examples
    @given(timelines(), durations)
    def test_nothing_starts_after_its_starting_deadline(
        self, timeline: tuple[Job, list[Instant]], deadline: int
    ) -> None:
        job, wakes = timeline
        job = replace(job, policy=replace(job.policy, start_deadline=deadline))
        for now, planned in plans_of(job, wakes):
            assert all(now - row.fire_at <= deadline for row in planned.firings if row.outcome == "fired")

    def test_once_runs_no_late_one_beside_one_on_time(self) -> None:
        job = a_job(EveryTrigger(MINUTE), JobPolicy(misfire="once", grace=10 * SECOND))
        fired = [row.fire_at for row in plan(job, START + 5 * MINUTE + SECOND, {}).firings if row.outcome == "fired"]
        assert fired == [START + 5 * MINUTE]

    def test_each_missed_instant_says_why(self) -> None:
        job = a_job(EveryTrigger(HOUR), JobPolicy(misfire="all", catch_up_window=3 * HOUR, catch_up_limit=2))
        planned = plan(job, START + 5 * HOUR + MINUTE, {})
        assert [(row.outcome, row.reason) for row in planned.firings] == [
            ("missed", "misfire=all: older than the catch-up window of 3h"),
            ("missed", "misfire=all: older than the catch-up window of 3h"),
            ("missed", "misfire=all: more than 2 to catch up"),
            ("fired", ""),
            ("fired", ""),
        ]

    def test_only_the_newest_misses_have_a_row_each(self) -> None:
        job = a_job(EveryTrigger(MINUTE), JobPolicy(misfire="skip", grace=0))
        first, *rest = plan(job, START + 500 * MINUTE + 1, {}).firings
        assert (first.fire_at, first.last_at, first.count) == (START + MINUTE, START + 400 * MINUTE, 400)
        assert len(rest) == LISTED_MISSES


class TestLongOutages:
    def test_ten_years_of_seconds_are_one_row_and_the_newest_instants(self) -> None:
        job = a_job(EveryTrigger(SECOND), JobPolicy(misfire="skip"))
        planned = plan(job, START + 10 * YEAR, {})
        crossed, older, *rest = planned.firings
        assert (crossed.fire_at, crossed.count, crossed.outcome) == (START + SECOND, 0, "missed")
        assert crossed.last_at == older.fire_at - SECOND
        assert [row.fire_at for row in rest if row.outcome == "fired"] == [
            START + 10 * YEAR - late * SECOND for late in range(10, -1, -1)
        ]
        assert planned.next_fire_at == START + 10 * YEAR + SECOND

    def test_a_job_that_ended_years_ago_is_found_without_visiting_its_instants(self) -> None:
        job = a_job(CronTrigger("* * * * * *"), JobPolicy(end_at=START + 2 * YEAR))
        planned = plan(job, START + 9 * YEAR, {})
        assert planned.next_fire_at is None
        assert [row.fire_at for row in planned.firings if row.outcome == "fired"] == [START + 2 * YEAR]

    def test_as_many_are_caught_up_as_the_job_asks_for(self) -> None:
        job = a_job(EveryTrigger(SECOND), JobPolicy(misfire="all", catch_up_limit=2_500))
        fired = [row for row in plan(job, START + 2 * HOUR, {}).firings if row.outcome == "fired"]
        assert len(fired) == 2_500


class TestCalendars:
    def test_holidays_are_left_out(self) -> None:
        calendars = {"public": Calendar("public", (holidays("2026-03-27"),))}
        job = replace(a_job(CronTrigger("0 8 * * *")), policy=JobPolicy(calendars=("public",)))
        assert next_fire_at(job, START, calendars) == parse_instant("2026-03-28T08:00Z")

    def test_an_exclusion_of_months_is_crossed_even_by_a_job_of_every_second(self) -> None:
        closed = {"closed": Calendar("closed", (Blackout("2026-03-27", "2026-06-01T06:00"),))}
        job = replace(a_job(EveryTrigger(SECOND)), policy=JobPolicy(calendars=("closed",)))
        assert next_fire_at(job, parse_instant("2026-03-26T23:59:59Z"), closed) == parse_instant("2026-06-01T06:00Z")

    def test_an_excluded_instant_moves_to_the_same_time_on_the_next_allowed_day(self) -> None:
        job = a_job(
            CronTrigger("0 10 * * sat", "Europe/Berlin"), JobPolicy(calendars=("weekends",), on_excluded="next_day")
        )
        assert job.next_fire_at == parse_instant("2026-03-30T10:00+02:00")

    def test_instants_that_moved_together_keep_their_order(self) -> None:
        policy = JobPolicy(calendars=("weekends",), on_excluded="next_day")
        job = a_job(CronTrigger("0 9,15 * * sat"), policy)
        found = [next_fire_at(job, parse_instant(f"2026-03-30T{clock}Z"), CALENDARS) for clock in ("08:59", "09:00")]
        assert found == [parse_instant("2026-03-30T09:00Z"), parse_instant("2026-03-30T15:00Z")]

    def test_instants_that_move_to_one_instant_are_one(self) -> None:
        policy = JobPolicy(calendars=("weekends",), on_excluded="next_day", misfire="all", catch_up_window=30 * DAY)
        job = a_job(CronTrigger("0 10 * * *"), policy)
        fired = [row.fire_at for row in plan(job, parse_instant("2026-03-31T12:00Z"), CALENDARS).firings]
        assert fired == [parse_instant(f"2026-03-{day}T10:00Z") for day in (27, 30, 31)]

    @pytest.mark.parametrize("on_excluded", ["skip", "next_day"])
    def test_a_calendar_that_allows_nothing_means_never(self, on_excluded: str) -> None:
        policy = JobPolicy(calendars=("always",), on_excluded="skip" if on_excluded == "skip" else "next_day")
        assert a_job(EveryTrigger(HOUR), policy).next_fire_at is None

    def test_a_time_of_day_that_is_never_allowed_does_not_hide_one_that_is(self) -> None:
        policy = JobPolicy(calendars=("nights",), on_excluded="next_day")
        assert a_job(CronTrigger("0 3,7 * * *"), policy).next_fire_at == parse_instant("2026-03-27T07:00Z")

    def test_the_end_counts_for_moved_instants_too(self) -> None:
        until = parse_instant("2026-03-29T12:00Z")
        policy = JobPolicy(calendars=("weekends",), on_excluded="next_day", end_at=until)
        assert a_job(CronTrigger("0 10 * * sat"), policy).next_fire_at is None

    def test_rules_by_the_minute_are_crossed_for_a_month(self) -> None:
        closed = {"closed": Calendar("closed", (CronRule("* * * 4 *"),))}
        job = replace(a_job(EveryTrigger(10 * MINUTE)), policy=JobPolicy(calendars=("closed",)))
        assert next_fire_at(job, parse_instant("2026-03-31T23:50Z"), closed) == parse_instant("2026-05-01T00:00Z")

    def test_rules_by_the_second_are_crossed_for_the_night_by_a_job_of_every_second(self) -> None:
        closed = {"closed": Calendar("closed", (CronRule("* * 0-8,18-23 * * *"),))}
        job = replace(a_job(EveryTrigger(SECOND)), policy=JobPolicy(calendars=("closed",)))
        assert next_fire_at(job, parse_instant("2026-03-31T17:59:59Z"), closed) == parse_instant("2026-04-01T09:00Z")


class TestCalendarsWithVeryManyRules:
    """A tenant may write them; what its jobs cost is bounded all the same."""

    MOST = 25_000

    @pytest.fixture
    def looks(self, monkeypatch: pytest.MonkeyPatch) -> list[int]:
        """How many rules were looked at, each time."""
        found: list[int] = []

        def count(names: tuple[str, ...], instant: Instant, calendars: dict[str, Calendar]) -> Instant | None:
            found.append(sum(len(calendars[name].rules) for name in names))
            return excluded_until(names, instant, calendars)

        monkeypatch.setattr(plans, "excluded_until", count)
        return found

    def calendars(self, count: int, last: str) -> dict[str, Calendar]:
        """Each with rules that match once a year, and one that excludes every other second."""
        rules = (*(CronRule(f"0 {number} 3 1 1 *") for number in range(59)), CronRule(last))
        return {f"c{number}": Calendar(f"c{number}", rules) for number in range(count)}

    @pytest.mark.parametrize("count", [1, 10])
    def test_a_search_ends(self, looks: list[int], count: int) -> None:
        calendars = self.calendars(count, "*/2 * * * * *")
        job = replace(a_job(CronTrigger("*/2 * * * * *")), policy=JobPolicy(calendars=tuple(calendars)))
        assert next_fire_at(job, START, calendars) is None
        assert sum(looks) <= self.MOST

    def test_a_move_to_another_day_ends_too(self, looks: list[int]) -> None:
        calendars = self.calendars(10, "* * * * * *")
        policy = JobPolicy(calendars=tuple(calendars), on_excluded="next_day")
        job = replace(a_job(CronTrigger("7 */2 * * *")), policy=policy)
        assert next_fire_at(job, START, calendars) is None
        assert sum(looks) <= self.MOST

    @pytest.mark.parametrize("count", [1, 10])
    def test_so_do_all_searches_of_one_plan(self, looks: list[int], count: int) -> None:
        calendars = self.calendars(count, "1-58 * * * * *")
        job = replace(a_job(EveryTrigger(SECOND)), policy=JobPolicy(calendars=tuple(calendars)), next_fire_at=START)
        made = plan(job, START + 10 * DAY, calendars)
        assert made.next_fire_at is not None
        assert made.next_fire_at > START + 10 * DAY, "all is accounted for"
        assert sum(looks) <= 8 * self.MOST


def resumed(job: Job, now: Instant, calendars: dict[str, Calendar]) -> Revision:
    revision = set_paused(job, now, calendars, "", paused=False)
    assert revision is not None
    return revision


class TestResuming:
    @few_examples
    @given(timelines())
    def test_all_that_passed_meanwhile_is_skipped_and_the_next_one_lies_ahead(
        self, timeline: tuple[Job, list[Instant]]
    ) -> None:
        job, wakes = timeline
        revision = resumed(replace(job, paused_at=START, paused_why="rebuilding"), wakes[-1], CALENDARS)
        due, rows = due_instants(job, wakes[-1]), revision.passed_over
        assert [position for row in rows for position in positions(due, row)] == list(range(len(due)))
        assert {(row.outcome, row.reason) for row in rows} <= {("skipped", "paused: rebuilding")}
        assert not any(row.runs for row in rows)
        assert revision.job == replace(job, next_fire_at=next_fire_at(job, wakes[-1], CALENDARS))

    def test_nothing_due_changes_nothing(self) -> None:
        job = a_job(EveryTrigger(HOUR))
        assert resumed(replace(job, paused_at=START), START + MINUTE, {}) == Revision(job)
        assert set_paused(job, START + MINUTE, {}, "", paused=False) is None

    def test_an_after_job_stays_due(self) -> None:
        job = replace(a_job(AfterTrigger(("load",))), next_fire_at=START)
        assert resumed(replace(job, paused_at=START), START + DAY, {}) == Revision(job)

    def test_another_reason_can_be_given(self) -> None:
        (row,) = pass_over(a_job(AtTrigger(START + 1)), START + HOUR, {}, "the trigger was changed").firings
        assert (row.outcome, row.reason, row.fire_at) == ("skipped", "the trigger was changed", START + 1)


class TestPlans:
    def test_a_job_that_is_not_due_has_nothing_planned(self) -> None:
        job = a_job(EveryTrigger(HOUR))
        assert plan(job, START + HOUR - 1, {}) == Plan(job, (), START + HOUR)
        never = a_job(ManualTrigger())
        assert plan(never, START + YEAR, {}) == Plan(never, (), None)

    def test_an_after_job_fires_once_and_is_not_due_again(self) -> None:
        planned = plan(replace(a_job(AfterTrigger(("load",))), next_fire_at=START + 5), START + SECOND, {})
        assert (planned.kind, planned.next_fire_at) == ("after", None)
        assert [(row.fire_at, row.outcome, len(row.runs)) for row in planned.firings] == [(START + 5, "fired", 1)]

    def test_an_after_job_fires_no_more_often_than_it_may(self) -> None:
        job = a_job(AfterTrigger(("load",)), JobPolicy(max_firings=2))
        assert plan(replace(job, next_fire_at=START, fired=2), START, {}).firings == ()

    def test_a_one_off_job_is_done_after_its_instant(self) -> None:
        planned = plan(a_job(AtTrigger(START + HOUR)), START + HOUR, {})
        assert [row.fire_at for row in planned.firings] == [START + HOUR]
        assert planned.next_fire_at is None
