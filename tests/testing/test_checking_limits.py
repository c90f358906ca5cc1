"""Limits, as the checker judges them: overlap policies (14) and concurrency (16)."""

from __future__ import annotations

from typing import Any

import pytest
from histories import History, instant

from mainspring.core.instants import MINUTE
from mainspring.core.model import Gate, JobPolicy, Overlap
from mainspring.core.schedules.triggers import EveryTrigger

GATE: dict[str, Any] = {"gates": (Gate("task:task", 1),)}
PAIR: dict[str, Any] = {"gates": (Gate("task:task", 2),)}


def minutely(overlap: Overlap, *, completions: int = 1, **fields: Any) -> History:
    """A job that is due every minute; its ledger will have two firings."""
    policy = JobPolicy(overlap=overlap, completions=completions)
    return History().job("j", EveryTrigger(MINUTE), next_at=180, policy=policy, **fields)


def with_runs(history: History, completions: int = 1) -> History:
    """The end: both firings, and their runs."""
    for seconds in (60, 120):
        for idx in range(completions):
            run = f"{seconds}.{idx}"
            history.firing("j", seconds, run=run, idx=idx).ended(
                run, "succeeded", "succeeded", job_id="j", fire_at=instant(seconds), idx=idx
            )
    return history


class TestOverlap:
    @pytest.mark.parametrize("overlap", ["forbid", "queue", "replace"])
    def test_runs_of_two_firings_are_not_at_work_at_once(self, overlap: Overlap) -> None:
        history = minutely(overlap).at(119).claim("60.0").at(121).claim("120.0").at(122).report("60.0").at(123)

        violation = with_runs(history.report("120.0")).found(14)
        assert violation.message == (
            f"overlap={overlap} of job j in region default has room for 1, and 2 were in at 2026-03-26T12:02:01Z: "
            "run 60.0, run 120.0"
        )
        assert [record.what for record in violation.evidence] == [
            "job",
            "claim",
            "claim",
            "report",
            "report",
            "run",
            "run",
        ]

    @pytest.mark.parametrize("overlap", ["forbid", "queue", "replace"])
    def test_one_after_the_other_they_may(self, overlap: Overlap) -> None:
        history = minutely(overlap).at(119).claim("60.0").at(121).report("60.0").claim("120.0").at(123).report("120.0")

        assert with_runs(history).broken() == []

    def test_if_it_is_allowed_they_may_at_once(self) -> None:
        history = minutely("allow").at(119).claim("60.0").at(121).claim("120.0").at(122).report("60.0").report("120.0")

        assert with_runs(history).broken() == []

    def test_forbidden_runs_are_not_even_made(self) -> None:
        def fired_at(seconds: float) -> History:
            history = minutely("forbid").at(119).claim("60.0").at(121).report("60.0").at(seconds).fire("j", 120)
            return with_runs(history.at(123).claim("120.0").at(124).report("120.0"))

        assert fired_at(120).shown(14) == ["job", "claim", "report", "fire", "claim", "report", "run", "run"]
        assert fired_at(122).broken() == []

    @pytest.mark.parametrize("overlap", ["queue", "replace"])
    def test_the_others_are_made_and_wait(self, overlap: Overlap) -> None:
        history = minutely(overlap).at(119).claim("60.0").at(120).fire("j", 120).at(121).report("60.0")

        assert with_runs(history.at(123).claim("120.0").at(124).report("120.0")).broken() == []

    def test_a_run_whose_claim_ran_out_may_have_ended(self) -> None:
        history = minutely("forbid").at(105).claim("60.0").at(121).claim("120.0").at(123).report("120.0")

        assert with_runs(history).broken() == []

    def test_the_runs_of_one_firing_may_run_together(self) -> None:
        for overlap in ("forbid", "queue", "replace"):
            history = (
                minutely(overlap, completions=2).at(70).claim("60.0").claim("60.1").at(75).report("60.0").report("60.1")
            )
            assert with_runs(history, 2).broken() == []

    def test_a_queue_has_room_for_as_many_as_a_firing_has(self) -> None:
        history = minutely("queue", completions=2).at(119).claim("60.0").claim("60.1").at(120).report("60.0")
        history.at(121).claim("120.0").at(122)

        assert with_runs(history.report("60.1").report("120.0"), 2).broken() == []
        history = minutely("queue", completions=2).at(119).claim("60.0").claim("60.1").at(121).claim("120.0").at(122)
        assert with_runs(history.report("60.0").report("60.1").report("120.0"), 2).broken() == [14]

    def test_a_policy_that_was_edited_is_not_judged(self) -> None:
        history = minutely("forbid").at(119).claim("60.0").at(121).claim("120.0").at(122).report("60.0").report("120.0")
        history.job("j", EveryTrigger(MINUTE), version=2, edited=122, next_at=180, policy=JobPolicy(overlap="replace"))

        assert with_runs(history).broken() == []


class TestConcurrencyLimits:
    def test_no_more_are_in_than_there_is_room_for(self) -> None:
        history = History().submit("a", **GATE).submit("b", **GATE).at(1).claim("a").at(2).claim("b").at(3).report("a")

        violation = history.found(16)
        assert violation.message == (
            "gate task:task has room for 1, and 2 were in at 2026-03-26T12:00:02Z: "
            "run a with token 1, run b with token 1"
        )
        assert [record.what for record in violation.evidence] == ["submit", "submit", "claim", "claim", "report"]

    def test_a_caller_that_comes_when_another_has_left_has_room(self) -> None:
        history = History().submit("a", **GATE).submit("b", **GATE).at(1).claim("a").at(2).report("a").claim("b")

        assert history.broken() == []

    @pytest.mark.parametrize("way", ["unknown report", "handback", "unknown handback", "expiry"])
    def test_there_are_other_ways_to_leave(self, way: str) -> None:
        history = History().submit("a", **GATE).submit("b", **GATE).at(1).claim("a").at(2)
        if way == "unknown report":
            history.report("a", 1, "pending", outcome="unknown")
        elif way != "expiry":
            history.handback("a", outcome="unknown" if way.startswith("unknown") else "ok")

        assert history.at(11 if way == "expiry" else 2).claim("b").broken() == []

    def test_a_lost_claim_holds_the_gate_until_it_has_run_out(self) -> None:
        history = History().submit("a", **GATE).submit("b", **GATE).at(1).claim("a").at(10).claim("b")

        assert history.shown(16) == ["submit", "submit", "claim", "claim"]

    def test_between_two_attempts_a_run_is_not_in(self) -> None:
        history = History().submit("a", **GATE).submit("b", **GATE).at(1).claim("a").at(2).report("a", 1, "pending")

        assert history.at(3).claim("b").at(4).report("b").at(5).claim("a", 2).broken() == []

    def test_the_largest_capacity_that_a_gate_ever_had_counts(self) -> None:
        history = History().submit("a", **GATE).submit("b", **GATE).submit("c", **PAIR)

        assert history.at(1).claim("a").at(2).claim("b").claim("c").broken() == [16]
        history = History().submit("c", **PAIR).submit("a", **GATE).submit("b", **GATE)
        assert history.at(1).claim("a").claim("b").at(13).claim("c").broken() == []

    def test_gates_of_different_names_and_namespaces_have_nothing_in_common(self) -> None:
        history = (
            History()
            .submit("a", **GATE)
            .submit("b", gates=(Gate("task:other", 1),))
            .submit("c", **GATE, namespace="other")
        )

        assert history.at(1).claim("a").claim("b").claim("c").broken() == []

    def test_jobs_have_the_gates_of_their_limits(self) -> None:
        history = minutely("allow", limit=1).at(119).claim("60.0").at(121).claim("120.0").at(122).report("60.0")

        assert "gate task:task has room for 1" in with_runs(history.at(123).report("120.0")).found(16).message

    def test_a_firing_has_one_for_its_own_runs(self) -> None:
        policy = JobPolicy(completions=3, parallelism=2)
        history = History().job("j", EveryTrigger(MINUTE), next_at=180, policy=policy)
        history.at(70).claim("60.0").claim("60.1").claim("60.2").at(72).report("60.0").report("60.1").report("60.2")

        assert f"gate firing:j:{instant(60)} has room for 2, and 3 were in" in with_runs(history, 3).found(16).message

    def test_claims_at_a_time_that_is_not_known_count_from_when_they_were_heard_of(self) -> None:
        history = History().submit("a", **GATE).submit("b", **GATE).at(1).claim("a").at(5).claim("b", sent=1)

        assert history.at(6).report("a", sent=3).broken() == []
