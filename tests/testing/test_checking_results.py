"""Results, as the checker judges them: one is accepted (6), attempts and losses stay within their limits (9), and only
transitions of the table happen (10)."""

from __future__ import annotations

import pytest
from histories import History

from mainspring.core.instants import MINUTE
from mainspring.core.model import RunOptions, TaskNotice
from mainspring.core.runs.retry import Retry
from mainspring.core.states import State


class TestOneAcceptedResult:
    def test_two_results_of_one_run_are_never_accepted(self) -> None:
        history = History().claim("a", 1).at(11).claim("a", 2).at(12).report("a", 2).at(13).report("a", 1, "failed")

        violations = history.check().violations
        assert {violation.number for violation in violations} == {5, 6}
        double = violations[1]
        assert double.message == "run a has two accepted results, with tokens 1 and 2"
        assert [record.token for record in double.evidence] == [2, 1]

    def test_the_same_result_may_be_acknowledged_twice(self) -> None:
        history = History().claim("a").at(1).report("a", outcome="unknown").at(2).report("a").at(3).report("a")

        assert history.broken() == []

    def test_the_accepted_result_is_that_of_the_highest_token(self) -> None:
        history = History().claim("a", 1).at(11).claim("a", 2).at(12).report("a", 1, sent=5)

        assert history.found(6).message == "run a ended with token 1, and was claimed with token 2"

    def test_a_stale_result_is_refused(self) -> None:
        history = History().claim("a", 1).at(11).claim("a", 2).at(12).report("a", 1, outcome="refused").report("a", 2)

        assert history.broken() == []

    def test_a_stale_retry_is_refused_too(self) -> None:
        history = History().claim("a", 1).at(11).claim("a", 2).at(12).report("a", 1, "pending")

        assert "token 1 was accepted after token 2 had been given" in next(
            violation.message for violation in history.check().violations if violation.number == 6
        )

    def test_a_retry_that_was_acknowledged_late_is_not_stale(self) -> None:
        history = History().claim("a", 1).at(1).report("a", 1, "pending", outcome="unknown").at(2).claim("a", 2)
        history.at(3).report("a", 1, "pending")

        assert history.broken() == []

    @pytest.mark.parametrize(
        ("told_as", "stored"), [("succeeded", "failed"), ("failed", "succeeded"), ("skipped", "cancelled")]
    )
    def test_what_was_accepted_is_how_the_run_ends(self, told_as: str, stored: State) -> None:
        history = History().submit("a").at(1).claim("a").report("a", 1, told_as).ended("a", stored)

        assert history.shown(6) == ["report", "run"]

    def test_a_failure_after_a_cancel_ends_cancelled(self) -> None:
        history = (
            History()
            .submit("a")
            .at(1)
            .claim("a")
            .cancel("a")
            .report("a", 1, "failed")
            .ended("a", "cancelled", "cancelled")
        )

        assert history.broken() == []


class TestAttemptsWithinLimits:
    def test_a_run_has_no_more_attempts_than_its_retries_allow(self) -> None:
        history = (
            History().submit("a").ended("a", "failed", "failed", "failed", "failed", options=RunOptions(retry=Retry(1)))
        )

        violation = history.found(9)
        assert violation.message == "run a had 3 attempts of its own, and may have 2"
        assert [record.what for record in violation.evidence] == ["run", "attempt", "attempt", "attempt"]

    def test_losses_do_not_use_up_retries(self) -> None:
        options = RunOptions(retry=Retry(1))

        assert (
            History().submit("a").ended("a", "failed", "failed", "lost", "lost", "failed", options=options).broken()
            == []
        )

    def test_a_run_is_not_lost_more_often_than_it_may_be(self) -> None:
        history = History().submit("a").ended("a", "failed", "lost", "lost", "lost", options=RunOptions(max_losses=1))

        assert history.found(9).message == "run a was lost 3 times, and may be 2 times"

    def test_what_the_run_itself_counts_is_enough(self) -> None:
        history = History().submit("a").ended("a", "failed", attempt=9, losses=5)

        assert [violation.number for violation in history.check().violations] == [9]

    def test_a_retry_waits_as_long_as_the_report_says(self) -> None:
        def retried(claimed: float, started: float) -> History:
            history = History().submit("a").claim("a", 1).at(1).report("a", 1, "pending", delay=5)
            return history.at(claimed).claim("a", 2).at(started).start("a", 2)

        assert retried(5.9, 5.9).found(9).message == (
            "run a was to be retried after 5s, and its start with token 2 came 4s900ms after its failure with token 1"
        )
        assert retried(5.9, 5.9).shown(9) == ["submit", "claim", "report", "claim", "start"]
        assert retried(5.9, 6).broken() == []

    def test_it_may_be_claimed_shortly_before_its_time_but_not_long(self) -> None:
        def retried(claimed: float) -> History:
            history = History().submit("a").claim("a", 1).at(1).report("a", 1, "pending", delay=5)
            return history.at(claimed).claim("a", 2)

        assert "its claim with token 2 came 4s400ms after" in retried(5.4).found(9).message
        assert retried(5.5).broken() == []

    def test_without_that_it_waits_as_long_as_the_policy_says_less_the_jitter(self) -> None:
        def retried_after(seconds: float) -> History:
            history = History().claim("a", 1).at(1).report("a", 1, "pending").at(1 + seconds).claim("a", 2)
            history.start("a", 2).at(60).submit("a").ended(
                "a", "failed", "failed", "failed", options=RunOptions(retry=Retry(1, delay=10))
            )
            return history

        assert retried_after(8.9).broken() == [9]
        assert retried_after(9).broken() == []

    def test_the_wait_counts_from_the_earliest_report_of_the_failure(self) -> None:
        history = History().submit("a").claim("a", 1).at(1).report("a", 1, "pending", outcome="unknown", delay=5)
        history.at(4).report("a", 1, "pending", delay=5).at(6).claim("a", 2)

        assert history.broken() == []

    def test_a_run_that_was_lost_waits_for_nothing(self) -> None:
        assert History().submit("a").claim("a", 1).at(11).claim("a", 2).broken() == []


class TestArgumentsThatOlderCodeDoesNotTake:
    def begun(self) -> History:
        history = (
            History().worker("old", TaskNotice(name="task")).worker("new", TaskNotice(name="task", names=("tone",)))
        )
        return history.submit("a", args='{"tone":1}').at(1).claim("a", worker="old")

    def test_such_a_run_is_not_failed_while_it_may_wait_for_newer_code(self) -> None:
        history = self.begun().at(2).report("a", 1, "failed", worker="old", attempt="failed")

        assert history.found(9, unfit_bound=MINUTE).message == (
            "worker old failed run a with token 1, whose arguments its code does not take, 1s after the run was first "
            "claimed"
        )
        assert history.shown(9, unfit_bound=MINUTE) == ["worker", "submit", "claim", "report"]
        assert history.broken() == []

    def test_nor_is_an_attempt_used_up_on_it(self) -> None:
        history = self.begun().at(2).report("a", 1, "pending", worker="old", attempt="failed")

        assert history.broken(unfit_bound=MINUTE) == [9]

    def test_it_may_be_given_back_and_failed_by_code_that_takes_it(self) -> None:
        history = self.begun().at(2).handback("a", 1, worker="old").claim("a", 2, worker="new")
        history.report("a", 2, "failed", worker="new", attempt="failed")

        assert history.broken(unfit_bound=MINUTE) == []

    def test_once_it_has_waited_for_long_enough_it_may_be_failed(self) -> None:
        history = self.begun().at(2).handback("a", 1, worker="old").at(61).claim("a", 2, worker="old")
        history.report("a", 2, "failed", worker="old", attempt="failed")

        assert history.broken(unfit_bound=MINUTE) == []

    def test_a_deadline_counts_whichever_worker_holds_the_run(self) -> None:
        history = self.begun().at(2).report("a", 1, "failed", worker="old", attempt="timed_out")

        assert history.broken(unfit_bound=MINUTE) == []


class TestOnlyTransitionsOfTheTable:
    def test_a_running_run_does_not_become_blocked(self) -> None:
        assert (
            History().claim("a").report("a", 1, "blocked").found(10).message
            == "run a was reported blocked with token 1"
        )

    def test_only_what_was_claimed_can_be_reported(self) -> None:
        history = History().report("a", 1, "pending")

        assert history.found(10).message == "run a was reported pending with token 1, which no worker was given"

    def test_attempts_are_numbered_without_gaps(self) -> None:
        history = History().add("attempt", run="a", attempt=1, token=1, state="failed")
        history.add("attempt", run="a", attempt=3, token=2, state="failed")

        assert history.found(10).message == "attempt 3 of run a should be number 2"

    def test_their_tokens_grow(self) -> None:
        history = History().add("attempt", run="a", attempt=1, token=2, state="failed")
        history.add("attempt", run="a", attempt=2, token=2, state="failed")

        assert history.found(10).message == "attempt 2 of run a has token 2 after 2"

    @pytest.mark.parametrize("outcome", ["succeeded", "cancelled", "skipped"])
    def test_nothing_follows_a_last_word(self, outcome: str) -> None:
        history = History().submit("a").ended("a", "failed", outcome, "failed")

        assert history.found(10).message == f"run a {outcome} in attempt 1, and was attempted again"

    @pytest.mark.parametrize(
        ("state", "attempts"),
        [
            ("succeeded", ()),
            ("succeeded", ("failed",)),
            ("failed", ()),
            ("failed", ("skipped",)),
            ("cancelled", ("succeeded",)),
            ("skipped", ("failed",)),
        ],
    )
    def test_the_end_fits_the_last_attempt(self, state: State, attempts: tuple[str, ...]) -> None:
        history = (
            History().submit("other").ended("other", "succeeded", "succeeded").submit("a").ended("a", state, *attempts)
        )

        violation = history.found(10)
        assert violation.message.startswith(f"run a ended {state} ")

    @pytest.mark.parametrize(
        ("state", "attempts"),
        [
            ("succeeded", ("failed", "lost", "succeeded")),
            ("failed", ("timed_out",)),
            ("failed", ("lost",)),
            ("cancelled", ()),
            ("cancelled", ("lost",)),
            ("skipped", ()),
            ("skipped", ("failed", "skipped")),
        ],
    )
    def test_these_ends_are_legal(self, state: State, attempts: tuple[str, ...]) -> None:
        history = (
            History().submit("other").ended("other", "succeeded", "succeeded").submit("a").ended("a", state, *attempts)
        )

        assert history.broken() == []

    def test_a_run_that_waited_may_fail_because_another_did(self) -> None:
        history = History().submit("up").ended("up", "failed", "lost")
        history.submit("a", after=("up",), on_failure="fail").ended("a", "failed")

        assert history.broken() == []

    def test_without_any_attempts_recorded_nothing_is_said_about_them(self) -> None:
        assert History().submit("a").ended("a", "succeeded").broken() == []
