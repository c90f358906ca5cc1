"""How claims end, as both stores apply it: reports, hand-backs, losses, and what new runs have to wait for."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from mainspring.core.model import NewRun, Report, RunOptions
from mainspring.core.runs.dependency import judge_dependants, unmet_dependencies
from mainspring.core.runs.outcome import (
    ClaimedRun,
    Next,
    accepted_reports,
    after_expiry,
    after_hand_back,
    after_report,
    end_attempt,
    still_claimed,
    stops_line,
)
from mainspring.core.states import CANCELLED, FAILED, FINAL, PENDING, RUNNING, SKIPPED, SUCCEEDED, TRANSITIONS, State
from mainspring.errors import InvalidInput

RUN = ClaimedRun(1, "r1", 7, "default", "encode", "w1", 2, 1_000, "default", "{}")
ASKED = replace(RUN, cancel_requested_at=1_500, cancel_reason="asked by ann")

claims = st.tuples(st.sampled_from(["r1", "r2", "r3"]), st.integers(1, 3))


def succeeded(run_id: str = "r1", token: int = 7) -> Report:
    return Report(run_id, token, "succeeded", SUCCEEDED)


class TestReports:
    @given(st.lists(claims, max_size=12), st.dictionaries(st.sampled_from(["r1", "r2"]), st.integers(1, 3)))
    def test_the_first_under_the_newest_token_is_accepted(
        self, sent: Sequence[tuple[str, int]], tokens: dict[str, int]
    ) -> None:
        claimed = {run_id: replace(RUN, id=run_id, token=token) for run_id, token in tokens.items()}
        accepted = accepted_reports([succeeded(*claim) for claim in sent], claimed)
        for number, (claim, run) in enumerate(zip(sent, accepted, strict=True)):
            is_newest = tokens.get(claim[0]) == claim[1]
            assert (run is not None) == (is_newest and claim not in sent[:number])
            assert run is None or (run.id, run.token) == claim

    def test_a_failure_of_a_run_that_is_to_be_cancelled_cancels_it(self) -> None:
        failed = Report("r1", 7, "failed", PENDING, "ValueError", 5)
        assert after_report(failed, RUN) == Next(PENDING, "ValueError", 5)
        assert after_report(failed, ASKED) == Next(CANCELLED, "asked by ann")
        assert after_report(succeeded(), ASKED).state == SUCCEEDED

    @given(st.sampled_from(sorted(FINAL | {PENDING})), st.integers(0, 1))
    def test_the_event_and_the_columns_say_the_same(self, state: State, losses: int) -> None:
        report = Report("r1", 7, "failed", state, "no\0", result="a\0", error="b\ud800", finished_at=1_800)
        columns, event = end_attempt(RUN, after_report(report, RUN), report, 2_000, losses=losses)
        kinds = {PENDING: "run.lost" if losses else "run.retrying"}
        assert event.kind == kinds.get(state, f"run.{state}")
        assert (event.attempt, event.duration, event.at) == (3, 800, 2_000)
        assert (columns.state, columns.started_at, columns.finished_at) == (state, 1_000, 1_800)
        assert (columns.attempts, columns.losses) == (1, losses)
        assert columns.reason == event.reason == "no\N{REPLACEMENT CHARACTER}"
        assert columns.result == "a\N{REPLACEMENT CHARACTER}"
        assert columns.error == "b?"

    def test_a_run_matters_if_anything_depends_on_its_end(self) -> None:
        assert not RUN.matters
        assert replace(RUN, job_id="j").matters
        assert replace(RUN, dependants=1).matters
        assert replace(RUN, lines=1).matters
        assert replace(RUN, gates=["g"]).matters


class TestClaimsGivenBack:
    @given(st.lists(claims, max_size=12), st.dictionaries(st.sampled_from(["r1", "r2"]), st.integers(1, 3)))
    def test_only_those_that_hold_count_and_once(
        self, given_back: Sequence[tuple[str, int]], tokens: dict[str, int]
    ) -> None:
        claimed = {run_id: replace(RUN, id=run_id, token=token) for run_id, token in tokens.items()}
        found = [(run.id, run.token) for run in still_claimed(given_back, claimed)]
        assert sorted(found) == sorted(set(given_back) & set(tokens.items()))

    def test_the_run_waits_again_unless_it_is_to_be_cancelled(self) -> None:
        verdict, event = after_hand_back(RUN, 2_000)
        assert (verdict, event.kind) == (Next(PENDING, "handed back by w1"), "run.handed_back")
        verdict, event = after_hand_back(ASKED, 2_000)
        assert (verdict, event.kind) == (Next(CANCELLED, "asked by ann"), "run.cancelled")


class TestClaimsThatRanOut:
    @given(st.integers(0, 5), st.integers(0, 5))
    def test_count_one_loss_more(self, losses: int, most: int) -> None:
        options = msgspec.json.encode(RunOptions(max_losses=most)).decode()
        verdict, report = after_expiry(replace(RUN, losses=losses, options=options), 2_000)
        assert verdict.state == (PENDING if losses < most else FAILED)
        assert (report.run_id, report.token, report.outcome, report.state) == ("r1", 7, "lost", verdict.state)
        assert verdict.state in TRANSITIONS[RUNNING]


class TestALine:
    def test_stops_behind_a_failure_of_a_key_by_choice(self) -> None:
        stop = msgspec.json.encode(RunOptions(on_key_failure="stop")).decode()
        assert stops_line("r1", FAILED, stop, "key:a") == Next(SKIPPED, "run r1 before it in line key:a failed")
        assert stops_line("r1", FAILED, "{}", "key:a") is None
        assert stops_line("r1", FAILED, stop, "overlap:a") is None
        assert stops_line("r1", CANCELLED, stop, "key:a") is None


def dependent(*after: str) -> NewRun:
    return NewRun(id="new", task="encode", created_at=0, due_at=0, after=after)


class TestDependenciesOfANewRun:
    def test_are_those_that_have_not_ended(self) -> None:
        states: dict[str, State] = {"a": PENDING, "b": SUCCEEDED, "c": RUNNING}
        assert unmet_dependencies(dependent("a", "b", "c", "a"), states.get) == (["a", "c"], None)

    def test_one_that_failed_decides(self) -> None:
        states: dict[str, State] = {"a": PENDING, "b": FAILED}
        assert unmet_dependencies(dependent("a", "b"), states.get) == ([], Next(SKIPPED, "upstream run b failed"))

    def test_any_finished_needs_no_other(self) -> None:
        states: dict[str, State] = {"a": PENDING, "b": FAILED}
        run = replace(dependent("a", "b"), when="any_finished")
        assert unmet_dependencies(run, states.get) == ([], None)

    def test_what_is_not_a_run_is_refused(self) -> None:
        with pytest.raises(InvalidInput, match="is not a run"):
            unmet_dependencies(dependent("a"), lambda _: None)

    def test_ends_of_several_upstreams_are_counted_together(self) -> None:
        found = judge_dependants(
            [
                ("a", "x", "all_succeeded", "skip"),
                ("b", "x", "all_succeeded", "skip"),
                ("a", "y", "any_finished", "skip"),
                ("b", "z", "all_succeeded", "fail"),
                ("a", "z", "all_succeeded", "fail"),
            ],
            {"a": SUCCEEDED, "b": FAILED},
        )
        assert found.met == {"x": 2, "y": 1, "z": 2}
        assert found.freed == {"y"}
        assert found.ends == {
            "x": Next(SKIPPED, "upstream run b failed"),
            "z": Next(FAILED, "upstream run b failed"),
        }
        assert found.reasons["y"] == "upstream run a succeeded"
