"""The total timeout of a run: one end for all its attempts and the waits between them."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.instants import HOUR, MINUTE, SECOND, parse_instant
from mainspring.core.model import Amendment, Claim, Job, JobPolicy, KeptOptions, NewRun, RunOptions, TaskNotice
from mainspring.core.planning.backfill import plan_backfill
from mainspring.core.planning.plans import earlier, jitter_of, make_runs
from mainspring.core.planning.simulation import simulate
from mainspring.core.runs.fitting import fill_in
from mainspring.core.runs.outcome import (
    ClaimedRun,
    Next,
    after_expiry,
    after_failure,
    after_loss,
    deadline_of,
    ends_with_run,
    out_of_time,
    overrun,
    with_end,
)
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger
from mainspring.core.states import CANCELLED, FAILED, PENDING, SKIPPED
from mainspring.errors import InvalidInput
from mainspring.operations.jobs.definitions import change
from mainspring.operations.jobs.options import Defaults, read_defaults
from mainspring.operations.submission import make_recipe

NOW = parse_instant("2026-03-26T12:00:00Z")
TEN = RunOptions(total_timeout=10 * MINUTE, give_up_at=NOW)
durations = st.integers(1, 2 * HOUR)


def end_of(run: NewRun) -> int | None:
    return msgspec.json.decode(run.options, type=RunOptions).give_up_at


class TestWhatFollowsAFailure:
    @given(st.lists(st.integers(1, 7200), min_size=1, max_size=4), durations, durations)
    def test_no_retry_comes_due_when_the_time_is_over(self, delays: list[int], total: int, took: int) -> None:
        options = RunOptions(total_timeout=total, give_up_at=NOW + total, retry=Retry(9, delays=delays, jitter=0.2))
        start = NOW
        for attempt in range(10):
            end = start + took
            verdict = after_failure("r1", attempt, 0, options, "ValueError: no", (), end)
            without = after_failure("r1", attempt, 0, replace(options, give_up_at=None), "ValueError: no", (), end)
            if without.state == PENDING and end + without.delay < NOW + total:
                assert verdict == without
                start = end + verdict.delay
                continue
            assert verdict.state == FAILED
            assert ("leaves no time for a retry" in verdict.reason) == (without.state == PENDING)
            return
        pytest.fail("it went on for ever")

    @pytest.mark.parametrize(("now", "state"), [(NOW - 10_000_001, PENDING), (NOW - 10_000_000, FAILED), (NOW, FAILED)])
    def test_a_retry_at_the_very_end_is_too_late(self, now: int, state: str) -> None:
        options = replace(TEN, retry=Retry(3, delay="10s", jitter=0))
        verdict = after_failure("r1", 0, 0, options, "ValueError: no", (), now)
        assert verdict.state == state
        if state == FAILED:
            assert verdict.reason == "ValueError: no; its total timeout of 10m leaves no time for a retry"

    def test_a_wait_that_the_task_asks_for_is_bound_too(self) -> None:
        verdict = after_failure("r1", 0, 0, TEN, "RetryIn: later", (), NOW - MINUTE, asked=MINUTE)
        assert verdict.state == FAILED
        assert after_failure("r1", 0, 0, TEN, "RetryIn: later", (), NOW - MINUTE, asked=SECOND).state == PENDING

    def test_a_lost_worker_is_not_followed_by_another_attempt_once_the_time_is_over(self) -> None:
        assert after_loss(1, TEN, "w1", None, NOW - 1).state == PENDING
        assert after_loss(1, TEN, "w1", "asked by ann", NOW).state == CANCELLED
        run = ClaimedRun(1, "r1", 7, "default", "t", "w1", 2, 1_000, "default", msgspec.json.encode(TEN).decode())
        verdict, report = after_expiry(run, NOW)
        assert (verdict.state, report.state) == (FAILED, FAILED)
        assert verdict.reason == "worker w1 was lost; its total timeout of 10m leaves no time for another attempt"


class TestTheEndOfAnAttempt:
    @given(st.none() | durations, st.none() | durations, durations)
    def test_is_the_earlier_of_its_own_and_that_of_the_run(
        self, timeout: int | None, total: int | None, after: int
    ) -> None:
        options = RunOptions(timeout=timeout, total_timeout=total, give_up_at=None if total is None else NOW + total)
        start = NOW + after
        ends = [end for end in (timeout and start + timeout, options.give_up_at) if end is not None]
        assert deadline_of(options, start) == (min(ends) if ends else None)
        if ends:
            assert ("total" in overrun(options, start)) == ends_with_run(options, start)
            assert ends_with_run(options, start) == (options.give_up_at == min(ends))


class TestWhenTheTimeBegins:
    JOB = Job("j" * 26, "report", "t", EveryTrigger(HOUR), options=RunOptions(total_timeout=MINUTE), created_at=NOW)

    def test_at_the_due_instant_of_a_firing_with_its_jitter(self) -> None:
        job = replace(self.JOB, policy=JobPolicy(jitter=10 * MINUTE, completions=2))
        runs = make_runs(job, NOW, NOW + SECOND)
        assert [end_of(run) for run in runs] == [NOW + jitter_of(job) + MINUTE] * 2
        moved = earlier(runs, SECOND)
        assert [end_of(run) for run in moved] == [run.due_at + MINUTE for run in moved]
        plain = replace(job, options=RunOptions(tags=('"total_timeout":',)))
        assert [end_of(run) for run in make_runs(plain, NOW, NOW)] == [None, None]

    def test_now_for_a_backfill(self) -> None:
        fire_at, now = NOW + HOUR, NOW + HOUR + SECOND
        (firing,) = plan_backfill(self.JOB, fire_at, fire_at, 5, now, {}).firings
        assert end_of(firing.runs[0]) == now + MINUTE

    def test_at_the_due_instant_of_a_submission_with_or_without_a_subject(self) -> None:
        values = {"total_timeout": MINUTE, "delay": HOUR}
        for subject in (None, "ann"):
            run = make_recipe("t", Defaults(), values, subject=subject).run("r1", "{}", "default", NOW)
            assert (run.due_at, end_of(run)) == (NOW + HOUR, NOW + HOUR + MINUTE)

    def test_an_option_that_the_submitter_did_not_know_is_stored_with_the_end_that_follows(self) -> None:
        claim = Claim(
            "run", 3, "t", "{}", '{"said":["tags"],"tags":["a"]}', 0, 0, 5, NOW, "default", None, None, 0, NOW
        )
        notice = TaskNotice(name="t", options=RunOptions(total_timeout=MINUTE, retry=Retry(7)), limit=2)
        for each in (notice, replace(notice, limit=None)):
            amendment = fill_in(claim, ("tags",), each)
            assert isinstance(amendment, Amendment)
            assert (amendment.gate is None) == (each.limit is None)
            kept = msgspec.json.decode(amendment.options, type=KeptOptions)
            assert (kept.total_timeout, kept.give_up_at, kept.said) == (MINUTE, NOW + MINUTE, None)
            assert (kept.tags, kept.retry) == (("a",), Retry(7))

    def test_one_that_the_submitter_gave_keeps_its_end(self) -> None:
        options = with_end(msgspec.json.encode(RunOptions(total_timeout=HOUR, said=("total_timeout",))).decode(), NOW)
        claim = Claim("run", 3, "t", "{}", options, 2, 0, 5, NOW + MINUTE, "default", None, None, 0, NOW)
        filled = fill_in(claim, ("total_timeout",), TaskNotice(name="t", options=RunOptions(total_timeout=MINUTE)))
        assert isinstance(filled, RunOptions)
        assert (filled.total_timeout, filled.give_up_at) == (HOUR, NOW + HOUR)


class TestWhatIsRefused:
    def test_a_total_that_is_shorter_than_one_attempt(self) -> None:
        with pytest.raises(InvalidInput, match="is shorter than the timeout of 1m") as refused:
            read_defaults({"timeout": MINUTE, "total_timeout": MINUTE - 1}, Defaults())
        assert (refused.value.field, refused.value.value) == ("total_timeout", "59s999ms999us")
        assert read_defaults({"timeout": MINUTE, "total_timeout": MINUTE}, Defaults()).options.total_timeout == MINUTE

    @pytest.mark.parametrize("field", ["soft_timeout", "total_timeout"])
    def test_an_edit_of_a_job_that_makes_its_timeouts_contradict_each_other(self, field: str) -> None:
        job = Job("j", "report", "t", EveryTrigger(HOUR), options=replace(RunOptions(), **{field: MINUTE}))
        with pytest.raises(InvalidInput, match=field):
            change(job, {"timeout": MINUTE if field == "soft_timeout" else HOUR})


class TestARunThatWaitsPastIt:
    OPTIONS = msgspec.json.encode(TEN).decode()

    def test_failed_for_want_of_a_start_or_of_another_attempt(self) -> None:
        assert out_of_time(0, None, self.OPTIONS) == Next(FAILED, "not started within its total timeout of 10m")
        reason = "not done within its total timeout of 10m; attempt 3 was not started"
        assert out_of_time(2, None, self.OPTIONS) == Next(FAILED, reason)

    def test_was_skipped_if_its_starting_deadline_came_first_and_it_never_started(self) -> None:
        assert out_of_time(0, NOW - 1, self.OPTIONS).state == SKIPPED
        assert out_of_time(0, NOW, self.OPTIONS).state == FAILED
        assert out_of_time(1, NOW - 1, self.OPTIONS).state == FAILED


def test_a_simulation_fails_a_run_that_waits_too_long_for_the_ones_before_it() -> None:
    policy = JobPolicy(completions=3, parallelism=1)
    options = RunOptions(total_timeout=90 * SECOND, retry=Retry(0))
    job = Job("01j", "j", "t", EveryTrigger(HOUR), created_at=NOW, policy=policy, options=options)
    rows = simulate(job, {}, NOW, NOW + HOUR, lambda instant: 80 * SECOND).rows
    assert [(row.outcome, row.attempts) for row in rows] == [("succeeded", 1), ("failed", 1), ("failed", 0)]
    last = rows[-1]
    assert (last.reason, last.started_at) == ("not started within its total timeout of 1m30s", None)
    assert (last.finished_at or 0) - last.fire_at == 90 * SECOND


def test_a_simulation_ends_a_run_at_its_total_timeout_in_an_attempt_or_before_a_retry() -> None:
    job = Job("01j", "j", "t", CronTrigger("0 3 * * *"), created_at=NOW)
    late = "its total timeout of 2m50s leaves no time for a retry"
    for total, attempts, finished, reason in (
        (30 * SECOND, 1, 30 * SECOND, "TimeoutError: not done within its total timeout of 30s"),
        (100 * SECOND, 2, 100 * SECOND, "TimeoutError: not done within its total timeout of 1m40s"),
        (170 * SECOND, 2, 150 * SECOND, f"TimeoutError: not done within its timeout of 1m; {late}"),
    ):
        options = RunOptions(timeout=MINUTE, total_timeout=total, retry=Retry(5, delay="30s", jitter=0, factor=1))
        found = simulate(replace(job, options=options), {}, NOW, NOW + 24 * HOUR, lambda instant: HOUR)
        (row,) = found.rows
        assert (row.outcome, row.attempts, row.reason) == ("failed", attempts, reason)
        assert (row.finished_at or 0) - (row.started_at or 0) == finished
