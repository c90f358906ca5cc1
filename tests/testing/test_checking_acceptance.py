"""What was accepted, as the checker judges it: it is kept and ends (3), cancels hold (18), nothing is left (19)."""

from __future__ import annotations

from typing import Any

import pytest
from histories import History, instant

from mainspring.core.instants import DAY, SECOND
from mainspring.core.model import Gate
from mainspring.core.states import State
from mainspring.testing.history import Outcome


class TestAcceptedWorkIsKeptAndEnds:
    def test_an_acknowledged_run_is_there_at_the_end(self) -> None:
        history = History().submit("a").submit("b").ended("b", "succeeded")

        violation = history.found(3)
        assert violation.message == "run a was accepted, and is not there at the end"
        assert [record.what for record in violation.evidence] == ["submit", "run"]

    @pytest.mark.parametrize("outcome", ["unknown", "refused"])
    def test_one_that_was_not_acknowledged_need_not_be(self, outcome: Outcome) -> None:
        assert History().submit("a", outcome=outcome).submit("b").ended("b", "succeeded").broken() == []

    def test_a_history_without_an_end_says_nothing_about_it(self) -> None:
        assert History().submit("a").broken() == []

    def test_all_runs_have_ended_when_the_history_is_drained(self) -> None:
        history = History().submit("a").claim("a").start("a").at(1_000).fault("drained")
        history.ended("a", "running", claimed_until=instant(1_010))

        violation = history.found(3)
        assert violation.message == "run a was accepted, and is still running at the end"
        assert [record.what for record in violation.evidence] == ["submit", "fault", "run"]

    def test_before_that_they_need_not(self) -> None:
        assert History().submit("a").claim("a").start("a").at(1_000).ended("a", "running").broken() == []

    def test_nor_one_that_was_not_due_yet_nor_one_that_waits_for_it(self) -> None:
        history = History().submit("a", due=2_000).submit("b", after=("a",)).at(1_000).fault("drained")
        history.ended("a", "pending", due=2_000).ended("b", "blocked")

        assert history.broken() == []

    def test_nor_one_that_had_only_just_been_claimed(self) -> None:
        history = History().submit("a").at(999).claim("a").at(1_000).fault("drained").ended("a", "running")

        assert history.broken() == []

    def test_one_idempotency_key_has_one_run(self) -> None:
        history = History().submit("a", idempotency_key="k").at(1).submit("b", idempotency_key="k")

        violation = history.found(3)
        assert violation.message == "idempotency key k has two runs, a and b"
        assert [record.run for record in violation.evidence] == ["a", "b"]

    def test_a_request_that_was_not_acknowledged_counts_if_its_run_is_there(self) -> None:
        history = History().submit("a", idempotency_key="k", outcome="unknown").submit("b", idempotency_key="k")
        history.ended("a").ended("b")

        assert history.shown(3) == ["submit", "submit", "run"]

    def test_it_does_not_if_its_run_is_not_there(self) -> None:
        history = (
            History().submit("a", idempotency_key="k", outcome="unknown").submit("b", idempotency_key="k").ended("b")
        )

        assert history.broken() == []

    def test_a_repeated_request_is_answered_with_the_first_run(self) -> None:
        history = History().submit("a", idempotency_key="k").submit("b", answer="a", idempotency_key="k").ended("a")

        assert history.broken() == []

    def test_keys_are_forgotten_after_a_while(self) -> None:
        history = History().submit("a", idempotency_key="k").at(8 * DAY / SECOND).submit("b", idempotency_key="k")

        assert history.broken() == []

    def test_a_key_means_something_in_its_namespace_only(self) -> None:
        history = History().submit("a", idempotency_key="k").submit("b", idempotency_key="k", namespace="other")

        assert history.broken() == []


class TestCancelsHold:
    @pytest.mark.parametrize("state", ["cancelled", "succeeded", "skipped"])
    def test_a_run_whose_cancel_was_acknowledged_may_end_so(self, state: State) -> None:
        assert History().submit("a").at(1).claim("a").at(2).cancel("a").at(3).ended("a", state).broken() == []

    def test_but_it_does_not_fail(self) -> None:
        history = History().submit("a").at(1).cancel("a").ended("a", "failed")

        assert history.found(18).message == "the cancel of run a was acknowledged, and it ended failed"
        assert history.shown(18) == ["cancel", "run"]

    def test_and_it_does_end(self) -> None:
        history = History().submit("a").at(1).cancel("a").at(2).claim("a", sent=0.5).at(900).fault("drained")
        history.ended("a", "running", claimed_until=instant(910))

        assert history.broken() == [3, 18]

    def test_for_which_it_has_a_while(self) -> None:
        history = History().submit("a").at(880).claim("a").at(890).cancel("a").at(900).fault("drained")

        assert history.ended("a", "running", claimed_until=instant(910)).broken() == []

    def test_it_is_never_claimed_again(self) -> None:
        history = History().submit("a").at(1).claim("a", 1).cancel("a").handback("a", 1).at(2).claim("a", 2)

        violation = history.found(18)
        assert violation.message == "run a was claimed with token 2 after its cancel had been acknowledged"
        assert [record.what for record in violation.evidence] == ["cancel", "claim"]

    def test_a_claim_that_was_asked_for_before_may_have_been_first(self) -> None:
        assert History().submit("a").at(1).cancel("a", sent=0).at(2).claim("a", sent=0.5).broken() == []

    @pytest.mark.parametrize("outcome", ["unknown", "refused"])
    def test_a_cancel_that_was_not_acknowledged_promises_nothing(self, outcome: Outcome) -> None:
        assert History().submit("a").at(1).cancel("a", outcome).at(2).claim("a").report("a", 1, "failed").broken() == []


class TestNothingEligibleIsLeft:
    def test_nobody_leaves_a_due_run_alone(self) -> None:
        history = History().submit("a", outcome="unknown").at(1_000).fault("drained").ended("a", "pending")

        violations = {violation.number: violation for violation in history.check().violations}
        assert set(violations) == {3, 19}
        assert violations[19].message == "run a was due at 2026-03-26T12:00:00Z, and no worker has claimed it"
        assert [record.what for record in violations[19].evidence] == ["fault", "run"]

    def test_nor_one_whose_claim_has_run_out(self) -> None:
        history = History().submit("a").claim("a").at(1_000).fault("drained")
        history.ended("a", "running", claimed_until=instant(10), worker="w1", token=1)

        assert "held with token 1 by worker w1, whose claim has run out" in history.check().violations[-1].message
        assert history.broken() == [3, 19]

    def test_nor_one_that_waits_for_nothing(self) -> None:
        history = History().submit("a").at(1_000).fault("drained").ended("a", "blocked")

        assert history.check().violations[-1].message == "run a waits, and nothing is left to wait for"
        assert history.broken() == [3, 19]

    @pytest.mark.parametrize(
        ("first", "then"),
        [
            ({}, {"after": ("a",)}),
            ({"gates": (Gate("scarce", 1),)}, {"gates": (Gate("scarce", 1),)}),
            ({"lines": (Gate("key", 1),)}, {"lines": (Gate("other", 1), Gate("key", 1))}),
        ],
        ids=["comes after it", "shares its gate", "shares its line"],
    )
    def test_a_run_that_waits_may_wait_for_one_that_goes_on(self, first: Any, then: Any) -> None:
        history = History().submit("a", **first).submit("b", **then).submit("c", after=("b",))
        history.at(990).claim("a").at(1_000).fault("drained")
        history.ended("a", "running", claimed_until=instant(1_009)).ended("b", "blocked").ended("c", "blocked")

        assert history.broken() == []

    @pytest.mark.parametrize(
        "fields", [{}, {"after": ("z",)}, {"gates": (Gate("mine", 1),)}, {"lines": (Gate("k", 1),)}]
    )
    def test_but_not_for_one_that_it_has_nothing_to_do_with(self, fields: Any) -> None:
        history = History().submit("a", gates=(Gate("scarce", 1),)).submit("b", **fields)
        history.at(990).claim("a").at(1_000).fault("drained")
        history.ended("a", "running", claimed_until=instant(1_009)).ended("b", "blocked")

        assert history.check().violations[-1].message == "run b waits, and nothing is left to wait for"
        assert history.broken() == [3, 19]

    def test_a_history_that_is_not_drained_may_leave_anything(self) -> None:
        assert History().submit("a").at(1_000).fault("healed").ended("a", "pending").broken() == []
