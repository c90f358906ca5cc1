"""What waits for what, and what follows when an attempt or an upstream ends."""

from __future__ import annotations

from itertools import permutations, product
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.instants import SECOND, parse_duration
from mainspring.core.model import AttemptOutcome, Edge, FiringOutcome, RunOptions
from mainspring.core.runs.dependency import (
    Fire,
    Free,
    OneLess,
    Wait,
    after_upstream,
    combined_outcome,
    consumed_edges,
    judge_edges,
)
from mainspring.core.runs.outcome import Next, after_failure, after_loss, attempt_outcome, settle
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import OnFailure, When
from mainspring.core.states import CANCELLED, FAILED, FINAL, PENDING, RUNNING, SKIPPED, SUCCEEDED, TRANSITIONS, State

NOW = 1_000_000
UNSUCCESSFUL: list[State] = [FAILED, CANCELLED, SKIPPED]
ENDED: list[FiringOutcome] = ["succeeded", "failed", "cancelled", "skipped", "missed"]

whens = st.sampled_from(get_args(When))
on_failures = st.sampled_from(get_args(OnFailure))


@st.composite
def edge_lists(draw: st.DrawFn) -> list[Edge]:
    """Some upstream jobs: those that never ended, those whose newest firing was used, those with a new one."""
    names = draw(st.lists(st.sampled_from("abcde"), min_size=1, max_size=5, unique=True))
    times = st.integers(0, 3)
    return [Edge("j", name, name, draw(times), draw(times), draw(st.sampled_from(ENDED))) for name in names]


def is_fresh(edge: Edge) -> bool:
    return edge.latest_at > edge.consumed_at


def used(edges: list[Edge], verdict: Fire | Next) -> list[Edge]:
    """The edges as the store has them after a verdict."""
    consumed = dict(consumed_edges(verdict, edges))
    return [replace(edge, consumed_at=consumed.get(edge.upstream_id, edge.consumed_at)) for edge in edges]


class TestARunThatWaitsForRuns:
    @pytest.mark.parametrize("on_failure", get_args(OnFailure))
    def test_a_success_is_one_less_to_wait_for(self, on_failure: OnFailure) -> None:
        assert isinstance(after_upstream("all_succeeded", on_failure, "up", SUCCEEDED), OneLess)

    @pytest.mark.parametrize(("on_failure", "state"), list(product(get_args(OnFailure), sorted(FINAL))))
    def test_any_end_frees_one_that_waits_for_any(self, on_failure: OnFailure, state: State) -> None:
        assert isinstance(after_upstream("any_finished", on_failure, "up", state), Free)

    @pytest.mark.parametrize("state", UNSUCCESSFUL)
    def test_what_another_end_means_is_its_own_choice(self, state: State) -> None:
        assert isinstance(after_upstream("all_succeeded", "run", "up", state), OneLess)
        assert after_upstream("all_succeeded", "skip", "up", state) == Next(SKIPPED, f"upstream run up {state}")
        assert after_upstream("all_succeeded", "fail", "up", state) == Next(FAILED, f"upstream run up {state}")


class TestAJobThatFiresAfterJobs:
    @given(whens, on_failures, edge_lists())
    def test_without_news_it_waits(self, when: When, on_failure: OnFailure, edges: list[Edge]) -> None:
        old = [replace(edge, latest_at=min(edge.latest_at, edge.consumed_at)) for edge in edges]
        assert isinstance(judge_edges(when, on_failure, old), Wait)

    @given(on_failures, edge_lists())
    def test_with_any_news_it_fires_after_any(self, on_failure: OnFailure, edges: list[Edge]) -> None:
        fires = isinstance(judge_edges("any_finished", on_failure, edges), Fire)
        assert fires == any(map(is_fresh, edges))

    @given(on_failures, edge_lists())
    def test_it_fires_after_all_only_when_each_has_news(self, on_failure: OnFailure, edges: list[Edge]) -> None:
        ready = all(is_fresh(edge) and (on_failure == "run" or edge.latest_outcome == "succeeded") for edge in edges)
        assert isinstance(judge_edges("all_succeeded", on_failure, edges), Fire) == ready

    @given(edge_lists())
    def test_a_bad_end_ends_its_firing_without_waiting_for_the_rest(self, edges: list[Edge]) -> None:
        bad = [edge.upstream for edge in edges if is_fresh(edge) and edge.latest_outcome != "succeeded"]
        for on_failure, state in (("skip", SKIPPED), ("fail", FAILED)):
            verdict = judge_edges("all_succeeded", "skip" if on_failure == "skip" else "fail", edges)
            assert isinstance(verdict, Next) == bool(bad)
            if isinstance(verdict, Next):
                assert verdict.state == state
                assert bad[0] in verdict.reason

    @given(whens, on_failures, edge_lists())
    def test_nothing_is_used_twice(self, when: When, on_failure: OnFailure, edges: list[Edge]) -> None:
        verdict = judge_edges(when, on_failure, edges)
        if not isinstance(verdict, Wait):
            assert isinstance(judge_edges(when, on_failure, used(edges, verdict)), Wait)

    @given(on_failures, edge_lists())
    def test_a_success_beside_a_bad_end_stays_for_later(self, on_failure: OnFailure, edges: list[Edge]) -> None:
        verdict = judge_edges("all_succeeded", on_failure, edges)
        if isinstance(verdict, Next):
            for before, after in zip(edges, used(edges, verdict), strict=True):
                assert is_fresh(after) == (is_fresh(before) and before.latest_outcome == "succeeded")

    @given(whens, on_failures, edge_lists())
    def test_the_order_of_the_upstreams_does_not_matter(
        self, when: When, on_failure: OnFailure, edges: list[Edge]
    ) -> None:
        kind = type(judge_edges(when, on_failure, edges))
        assert all(
            type(judge_edges(when, on_failure, list(other))) is kind for other in permutations(edges, len(edges))
        )


class TestAFiringOfSeveralRuns:
    @given(st.lists(st.sampled_from(get_args(FiringOutcome)), min_size=1))
    def test_it_has_ended_when_all_have_and_succeeded_when_all_have(self, outcomes: list[FiringOutcome]) -> None:
        combined = combined_outcome(outcomes)
        assert combined in outcomes
        assert (combined == "fired") == ("fired" in outcomes)
        assert (combined == "succeeded") == (set(outcomes) == {"succeeded"})
        assert combined == combined_outcome(outcomes[::-1])

    def test_a_failure_says_more_than_a_cancel_or_a_skip(self) -> None:
        assert combined_outcome(["succeeded", "skipped", "cancelled", "failed"]) == "failed"
        assert combined_outcome(["succeeded", "skipped", "cancelled"]) == "cancelled"


class TestAFailedAttempt:
    def test_is_retried_until_its_retries_are_used_up(self) -> None:
        options = RunOptions(retry=Retry(2, delay="30s", jitter=0))
        ends = [after_failure("r", attempt, 0, options, "ValueError: no", ["ValueError"], NOW) for attempt in range(4)]
        assert [end.state for end in ends] == [PENDING, PENDING, FAILED, FAILED]
        assert ends[0] == Next(PENDING, "ValueError: no; retry 1 of 2 in 30s", 30 * SECOND)
        assert ends[2].reason == "ValueError: no; all retries are used up (2)"

    @pytest.mark.parametrize(
        ("delay", "words"),
        [
            ("2m30s136ms45us", "2m30s"),
            ("9s660ms266us", "9s700ms"),
            ("1s", "1s"),
            ("533ms400us", "533ms"),
            ("9ms1us", "9ms1us"),
            ("0s", "0s"),
        ],
    )
    def test_says_how_long_it_waits_without_needless_digits(self, delay: str, words: str) -> None:
        end = after_failure("r", 0, 0, RunOptions(retry=Retry(2, delay=delay, jitter=0)), "no", ["ValueError"], NOW)
        assert (end.reason, end.delay) == (f"no; retry 1 of 2 in {words}", parse_duration(delay))

    @given(st.integers(0, 5), st.integers(0, 5), st.integers(0, 5))
    def test_losses_do_not_use_up_retries(self, retries: int, failures: int, losses: int) -> None:
        options = RunOptions(retry=Retry(retries, delay="1s"))
        end = after_failure("r", failures + losses, losses, options, "x", ["ValueError"], NOW)
        assert end.state == (PENDING if failures < retries else FAILED)

    def test_of_an_error_that_is_never_retried_ends_the_run(self) -> None:
        options = RunOptions(retry=Retry(3, never=ValueError))
        assert after_failure("r", 0, 0, options, "x", ["ValueError"], NOW).state == FAILED

    def test_runs_that_failed_together_part(self) -> None:
        options = RunOptions(retry=Retry(3))
        delays = {after_failure(f"run{n}", 0, 0, options, "x", [], NOW).delay for n in range(50)}
        assert len(delays) > 40

    def test_the_wait_that_the_other_side_asks_for_is_kept(self) -> None:
        options = RunOptions(retry=Retry(3, jitter=0))
        assert after_failure("r", 0, 0, options, "x", [], NOW, asked=7 * SECOND).delay == 7 * SECOND


class TestALostWorker:
    @given(st.integers(0, 5), st.integers(1, 8))
    def test_is_forgiven_up_to_its_limit(self, most: int, losses: int) -> None:
        end = after_loss(losses, RunOptions(max_losses=most), "w1", None, NOW)
        assert end.state == (PENDING if losses <= most else FAILED)
        assert end.delay == 0
        assert "w1" in end.reason

    @given(st.integers(1, 8))
    def test_ends_a_run_that_somebody_wanted_to_cancel(self, losses: int) -> None:
        assert after_loss(losses, RunOptions(), "w1", "asked by ann", NOW) == Next(CANCELLED, "asked by ann")


class TestTheLastWord:
    @pytest.mark.parametrize("state", [PENDING, FAILED])
    def test_a_failure_after_a_request_to_cancel_is_cancelled_and_never_retried(self, state: State) -> None:
        assert settle(Next(state, "ValueError", 5), "asked by ann") == Next(CANCELLED, "asked by ann")

    @pytest.mark.parametrize("state", [SUCCEEDED, CANCELLED, SKIPPED])
    def test_what_ended_otherwise_stands(self, state: State) -> None:
        assert settle(Next(state, "done"), "asked by ann") == Next(state, "done")

    @given(st.sampled_from(sorted(FINAL | {PENDING})), st.integers(0, 9))
    def test_without_a_request_every_word_stands(self, state: State, delay: int) -> None:
        assert settle(Next(state, "x", delay), None) == Next(state, "x", delay)

    @given(st.sampled_from(sorted(FINAL | {PENDING})), st.none() | st.just("asked"))
    def test_is_always_one_that_a_running_run_may_become(self, state: State, cancel_reason: str | None) -> None:
        assert settle(Next(state, "x"), cancel_reason).state in TRANSITIONS[RUNNING]

    @pytest.mark.parametrize("outcome", get_args(AttemptOutcome))
    def test_an_attempt_of_a_cancelled_run_was_cancelled_unless_it_succeeded_or_was_lost(
        self, outcome: AttemptOutcome
    ) -> None:
        kept = outcome in ("succeeded", "lost")
        assert attempt_outcome(CANCELLED, outcome) == (outcome if kept else "cancelled")
        assert attempt_outcome(FAILED, outcome) == outcome
