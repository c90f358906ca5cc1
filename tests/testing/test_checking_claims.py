"""Claims, as the checker judges them: tokens grow (4), claims never overlap (5), executions stay within them (7), and
nothing starts after the end (8)."""

from __future__ import annotations

from histories import History, instant

from mainspring.core.instants import SECOND


class TestTokensGrow:
    def test_a_life_with_a_retry_and_a_loss_is_legal(self) -> None:
        history = History().submit("a").work("a", 1, since=1, until=2, state="pending")
        history.work("a", 2, since=20, until=21, state="pending").at(100).claim("a", 3).at(120)
        history.work("a", 4, since=120, until=121).ended("a", "succeeded", "failed", "failed", "lost", "succeeded")

        assert history.broken() == []

    def test_a_token_is_given_once(self) -> None:
        history = History().claim("a", 1).handback("a", 1).at(1).claim("a", 1, worker="w2")

        violation = history.found(4)
        assert violation.message == "token 1 of run a was given 2 times"
        assert [record.seq for record in violation.evidence] == [1, 3]

    def test_a_later_claim_has_a_greater_token(self) -> None:
        history = History().claim("a", 2).handback("a", 2).at(20).claim("a", 1, worker="w2").handback("a", 1)

        assert history.found(4).message == "run a was claimed with token 1 after token 2"

    def test_what_happened_at_one_instant_happened_in_the_order_of_the_store(self) -> None:
        history = History().claim("a", 2).handback("a", 2).claim("a", 1).handback("a", 1)

        assert history.broken() == [4]

    def test_an_answer_that_came_late_is_no_claim_that_came_late(self) -> None:
        history = History().at(11).claim("a", 2, worker="w2", sent=10.5).at(13).claim("a", 1, ttl=-3, sent=0)

        assert history.broken() == []


class TestClaimsNeverOverlap:
    def test_a_claim_that_stands_is_not_given_to_another(self) -> None:
        history = History().claim("a", 1).at(9).claim("a", 2, worker="w2")

        violation = history.found(5)
        assert "token 2 at 2026-03-26T12:00:09Z, while token 1 stood until 2026-03-26T12:00:10Z" in violation.message
        assert [record.seq for record in violation.evidence] == [1, 2]

    def test_it_stands_for_as_long_as_it_was_renewed(self) -> None:
        history = History().claim("a", 1).at(5).renew("a", 1).at(12).claim("a", 2, worker="w2")

        assert history.shown(5) == ["claim", "renew", "claim"]

    def test_a_claim_that_ran_out_may_be_given_anew(self) -> None:
        assert History().claim("a", 1).at(5).renew("a", 1).at(15).claim("a", 2, worker="w2").broken() == []

    def test_so_may_one_that_was_reported_or_given_back_even_if_nobody_heard(self) -> None:
        assert History().claim("a", 1).at(1).report("a", 1, "pending").at(2).claim("a", 2).broken() == []
        assert History().claim("a", 1).at(1).handback("a", 1).claim("a", 2).broken() == []
        assert History().claim("a", 1).at(1).report("a", 1, "pending", outcome="unknown").claim("a", 2).broken() == []
        assert History().claim("a", 1).at(1).handback("a", 1, outcome="unknown").claim("a", 2).broken() == []

    def test_a_refused_report_ends_nothing(self) -> None:
        history = History().claim("a", 1).at(1).report("a", 1, "pending", outcome="refused").at(2).claim("a", 2)

        assert history.broken() == [5]

    def test_a_report_that_was_sent_in_time_may_have_ended_it_at_any_time_since(self) -> None:
        history = History().claim("a", 1).at(3).claim("a", 2).at(4).report("a", 1, "pending", sent=2)

        assert history.broken() == []

    def test_a_report_that_was_sent_later_did_not(self) -> None:
        history = History().claim("a", 1).at(3).claim("a", 2).at(6).report("a", 1, "pending", sent=5)

        assert history.broken() == [5, 6]


class TestExecutionsWithinClaims:
    def test_nobody_executes_what_nobody_was_given(self) -> None:
        history = History().claim("a", 1).start("a", 2)

        assert history.found(7).message == "run a was executed with token 2, which no worker was given"

    def test_nobody_executes_what_another_was_given(self) -> None:
        assert History().claim("a", worker="w1").start("a", worker="w2").shown(7) == ["claim", "start"]

    def test_work_that_does_not_know_its_worker_is_not_asked(self) -> None:
        assert History().claim("a").add("start", run="a", token=1).broken() == []

    def test_a_claim_is_executed_once(self) -> None:
        history = History().claim("a").start("a").at(1).end("a").start("a")

        assert history.found(7).message == "run a was executed 2 times with token 1"

    def test_two_never_execute_a_run_at_once_while_the_older_claim_stands(self) -> None:
        history = History().claim("a", 1).start("a", 1).at(4).claim("a", 2, worker="w2").start("a", 2, worker="w2")
        history.at(6).end("a", 1).report("a", 1, "pending", outcome="refused")

        violations = {violation.number: violation for violation in history.check().violations}
        assert set(violations) == {5, 7}
        assert "with tokens 1 and 2 at once" in violations[7].message
        assert [record.what for record in violations[7].evidence] == ["claim", "start", "start", "end"]

    def test_they_may_once_the_older_claim_has_run_out(self) -> None:
        history = History().claim("a", 1).start("a", 1).at(11).claim("a", 2, worker="w2").start("a", 2, worker="w2")
        history.at(13).end("a", 1).report("a", 1, outcome="refused").at(14).end("a", 2).report("a", 2, worker="w2")

        assert history.broken() == []

    def test_they_may_if_the_older_claim_was_given_back_with_its_work_going_on(self) -> None:
        history = History().claim("a", 1).start("a", 1).at(3).handback("a", 1)
        history.at(4).claim("a", 2, worker="w2").start("a", 2, worker="w2").at(6).end("a", 1)

        assert history.broken() == []

    def test_work_whose_end_nobody_saw_may_have_been_killed(self) -> None:
        history = History().claim("a", 1).start("a", 1).at(10).claim("a", 2, worker="w2").start("a", 2, worker="w2")

        assert history.broken() == []

    def test_a_worker_ends_its_work_when_its_claim_has_run_out(self) -> None:
        history = History().claim("a").start("a").at(5).renew("a").at(17).end("a")

        violation = history.found(7, fence_bound=SECOND)
        assert violation.message.startswith("run a was still at work with token 1 2s after its claim had run out at")
        assert [record.what for record in violation.evidence] == ["claim", "start", "renew", "end"]
        assert history.broken(fence_bound=2 * SECOND) == history.broken() == []

    def test_unless_it_stood_still_itself(self) -> None:
        history = (
            History().add("fault", name="pause", actor="w1").at(3).claim("a", worker="w1.2").start("a", worker="w1.2")
        )
        history.at(40).end("a", worker="w1.2")

        assert history.broken(fence_bound=SECOND) == []

    def test_that_another_one_did_is_no_excuse(self) -> None:
        history = History().add("fault", name="pause", actor="w2").claim("a").start("a").at(40).end("a")

        assert history.broken(fence_bound=SECOND) == [7]

    def test_nor_could_it_know_that_the_clock_of_the_store_was_put_forward(self) -> None:
        history = History().claim("a").start("a").at(2).fault("clock_leap").at(40).end("a")

        assert history.broken(fence_bound=SECOND) == []


class TestNothingStartsAfterTheEnd:
    def test_work_does_not_begin_once_its_result_was_accepted(self) -> None:
        history = History().claim("a").at(1).report("a").at(2).start("a")

        violation = history.found(8)
        assert violation.message == "run a was executed with token 1 after it had ended succeeded"
        assert [record.what for record in violation.evidence] == ["claim", "report", "start"]

    def test_work_does_not_begin_for_a_run_that_was_cancelled_while_it_waited(self) -> None:
        history = History().submit("a").at(5).claim("a").at(6).start("a")
        history.at(20).ended("a", "cancelled", finished_at=history.records[0].store)

        assert history.shown(8) == ["claim", "start", "run"]

    def test_a_worker_that_was_held_up_until_its_claim_ran_out_cannot_know_of_the_end(self) -> None:
        history = History().claim("a", 1).at(11).claim("a", 2, worker="w2").start("a", 2, worker="w2")
        history.at(12).end("a", 2).report("a", 2, worker="w2").at(13).start("a", 1).at(14).end("a", 1)
        history.report("a", 1, outcome="refused")

        assert history.broken() == []

    def test_a_worker_may_be_a_little_wrong_about_when_it_ended(self) -> None:
        history = History().submit("a").at(6).claim("a").start("a").end("a").at(7).report("a", outcome="unknown")

        assert history.ended("a", "succeeded", finished_at=instant(5.9)).broken() == []

    def test_a_result_that_may_not_have_been_accepted_ends_nothing(self) -> None:
        history = History().claim("a").at(1).report("a", outcome="unknown").at(2).start("a")

        assert history.broken() == []
