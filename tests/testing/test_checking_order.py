"""Order, as the checker judges it: the best run goes first (13), and the runs of one key in theirs (22)."""

from __future__ import annotations

from typing import Any

import pytest
from histories import History, instant

from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.model import Gate, RunOptions, TaskNotice
from mainspring.core.schedules.triggers import EveryTrigger

KEY: dict[str, Any] = {"key": "k", "lines": (Gate("key:k", 1),)}


class TestPriorityOrder:
    def test_a_worse_run_is_not_claimed_while_a_better_one_waits(self) -> None:
        history = (
            History()
            .submit("worse", priority=6)
            .submit("better", priority=5)
            .at(1)
            .claim("worse")
            .at(2)
            .claim("better")
        )

        violation = history.found(13)
        assert violation.message == (
            "worker w1 claimed run worse (priority 6, token 1) while run better (priority 5) was due and waited"
        )
        assert [record.what for record in violation.evidence] == ["submit", "submit", "claim", "claim"]

    def test_a_worker_leaves_tasks_to_others_whose_code_is_newer(self) -> None:
        def history(*notices: TaskNotice) -> list[int]:
            history = History().worker("w1", *notices).submit("first", args='{"tone":1}', task="other").claim("first")
            history.handback("first").at(1).submit("worse", priority=6).submit("better", priority=5, task="other")
            return history.at(2).claim("worse").at(3).claim("better", worker="w2").broken()

        assert history(TaskNotice(name="other")) == []
        assert history(TaskNotice(name="other", rest=True)) == [13]

    def test_in_one_batch_they_may_come_in_any_order(self) -> None:
        history = (
            History().submit("worse", priority=6).submit("better", priority=5).at(1).claim("worse").claim("better")
        )

        assert history.broken() == []

    def test_the_one_that_was_due_first_goes_first(self) -> None:
        history = History().submit("late", due=2).submit("early", due=1).at(3).claim("late").at(4).claim("early")

        assert history.broken() == [13]

    def test_a_step_of_priority_is_worth_so_much_waiting(self) -> None:
        """Under ageing a run that is due 1000 seconds later may be overtaken by a worse one."""
        history = History().submit("worse", priority=6, due=0).at(1_001).submit("better", priority=5, due=1_001)

        assert history.at(1_002).claim("worse").at(1_003).claim("better").broken() == []

    def test_a_better_run_that_was_not_due_yet_does_not_count(self) -> None:
        history = History().submit("worse", priority=6).submit("better", priority=5, due=2)

        assert history.at(1).claim("worse").at(3).claim("better").broken() == []

    def test_nor_one_that_others_may_have_looked_at_meanwhile(self) -> None:
        history = History().submit("better", priority=5)
        for number in range(5):
            history.submit(f"worse-{number}", priority=6)
        for number in range(5):
            history.at(2 + number).claim(f"worse-{number}")
        history.at(8).claim("better")

        assert history.broken(passing_bound=5 * SECOND) == []
        assert history.broken(passing_bound=4 * SECOND) == [13]

    def test_nor_one_that_was_passed_over_once_and_then_had_to_wait_for_better_ones(self) -> None:
        """Chaos seed 401430: a broker brought a run late, and then those before it had to run alone, one by one."""
        history = History().submit("good", priority=5).submit("worse", priority=6).submit("other", priority=6)
        history.at(2).claim("worse").at(3).submit("best", priority=1, due=3).claim("best").at(30).claim("other")
        history.at(31).claim("good")

        assert history.broken(passing_bound=10 * SECOND) == []
        assert history.broken() == [13]

    @pytest.mark.parametrize(("faults", "broken"), [([], [13]), ([2.5], [])])
    def test_nor_one_that_is_passed_over_while_nobody_may_be_able_to_claim(
        self, faults: list[float], broken: list[int]
    ) -> None:
        history = History().submit("better", priority=5)
        for number in range(4):
            history.submit(f"worse-{number}", priority=6)
        history.at(2).claim("worse-0").at(2.4).claim("worse-1")
        for at in faults:
            history.at(at).fault("power_cut")
        history.at(2.8).claim("worse-2").at(3.2).claim("worse-3").at(40).claim("better")

        assert history.broken(passing_bound=SECOND) == broken

    def test_nor_one_that_came_later(self) -> None:
        history = History().submit("worse", priority=6).at(1).claim("worse").submit("better", priority=5)

        assert history.at(2).claim("better").broken() == []

    def test_nor_one_whose_answer_came_later(self) -> None:
        history = History().submit("worse", priority=6).submit("better", priority=5, outcome="unknown")

        assert history.at(1).claim("worse").at(2).claim("better").broken() == []

    def test_nor_one_that_was_claimed_before_and_nobody_heard(self) -> None:
        history = History().submit("worse", priority=6).submit("better", priority=5)

        assert history.at(1).claim("worse").at(2).claim("better", 2).broken() == []

    @pytest.mark.parametrize("fields", [{"after": ("worse",)}, {"gates": (Gate("task:task", 2),)}, KEY])
    def test_nor_one_that_had_to_wait(self, fields: dict[str, Any]) -> None:
        history = History().submit("worse", priority=6).submit("better", priority=5, **fields)

        assert history.at(1).claim("worse").report("worse").at(2).claim("better").broken() == []

    @pytest.mark.parametrize(
        "fields", [{"task": "other"}, {"queue": "other"}, {"region": "other"}, {"namespace": "other"}]
    )
    def test_nor_one_that_the_worker_may_not_serve(self, fields: dict[str, Any]) -> None:
        history = History().submit("worse", priority=6).submit("better", priority=5, **fields)

        assert history.at(1).claim("worse").at(2).claim("better", worker="w2").broken() == []

    def test_a_worker_serves_what_it_ever_claimed(self) -> None:
        history = History().submit("worse", priority=6).submit("better", priority=5, task="other")
        history.at(1).claim("worse").at(2).claim("better", worker="w2").at(3).submit("c", task="other").claim("c")

        assert history.shown(13) == ["submit", "submit", "claim", "claim", "submit", "claim"]

    def test_a_retry_is_no_better_than_it_was(self) -> None:
        history = History().submit("worse", priority=6).at(1).claim("worse").report("worse", 1, "pending")
        history.at(2).submit("better", priority=5, due=2).at(3).claim("worse", 2).at(4).claim("better")

        assert history.broken() == [13]

    def test_claims_whose_order_is_not_known_are_not_compared(self) -> None:
        history = History().submit("worse", priority=6).submit("better", priority=5)

        assert history.at(1).claim("worse").at(2).claim("better", sent=0.5).broken() == []
        history = History().submit("worse", priority=6).at(1).submit("better", priority=5)
        assert history.at(2).claim("worse", sent=0.5).at(3).claim("better").broken() == []

    def test_one_that_was_asked_for_before_another_came_is_not_compared_with_it(self) -> None:
        history = (
            History().submit("worse", priority=6).submit("best", priority=1).at(3).submit("better", priority=5, due=3)
        )

        assert history.at(5).claim("best").at(6).claim("worse", sent=1).at(10).claim("better").broken() == []

    def test_runs_of_firings_stand_in_the_same_line(self) -> None:
        history = History().job("j", EveryTrigger(MINUTE), next_at=120, priority=1).submit("a", due=60, priority=6)
        history.at(61).fire("j", 60).at(62).claim("a").at(63).claim("j@60").report("j@60")
        history.firing("j", 60, run="j@60").ended(
            "j@60", "succeeded", "succeeded", job_id="j", fire_at=instant(60), priority=1, due=60
        )
        history.ended("a", priority=6)

        assert history.found(13).message.startswith("worker w1 claimed run a (priority 6, token 1) while run j@60")

    def test_one_that_went_back_to_wait_was_due_at_a_time_that_is_not_known(self) -> None:
        history = History().job("j", EveryTrigger(MINUTE), next_at=120, priority=1).submit("a", due=60, priority=6)
        history.at(61).fire("j", 60).at(62).claim("a").at(63).claim("j@60").report("j@60", 1, "pending")
        history.firing("j", 60, run="j@60").ended(
            "j@60", "cancelled", job_id="j", fire_at=instant(60), priority=1, token=1
        )
        history.ended("a", priority=6)

        assert history.broken() == []

    def test_nor_when_one_was_due_that_was_given_back_and_expired(self) -> None:
        """Chaos seed 406665: its row says that it was due when it was given back, later than one it went before."""
        history = History().job("j", EveryTrigger(MINUTE), next_at=120, priority=6).submit("a", due=61, priority=6)
        history.at(61).fire("j", 60).at(62).claim("j@60").at(63).claim("a").report("a").at(64).handback("j@60")
        history.firing("j", 60, run="j@60").ended(
            "j@60", "skipped", job_id="j", fire_at=instant(60), priority=6, token=1, due=64
        )
        history.ended("a", "succeeded", "succeeded", priority=6, due=61)

        assert 13 not in history.broken()


class TestKeyOrder:
    def test_runs_of_one_key_go_one_after_the_other(self) -> None:
        history = (
            History().submit("a", **KEY).at(1).submit("b", **KEY).at(2).claim("a").at(4).report("a").at(5).claim("b")
        )

        assert history.broken() == []

    def test_two_are_never_at_work_at_once(self) -> None:
        history = (
            History().submit("a", **KEY).at(1).submit("b", **KEY).at(2).claim("a").at(3).claim("b").at(4).report("a")
        )

        violation = history.found(22)
        assert violation.message == "runs a and b of key k were at work at once"
        assert [record.what for record in violation.evidence] == ["submit", "submit", "claim", "claim", "report"]

    def test_a_head_that_waits_for_its_retry_holds_the_key(self) -> None:
        history = History().submit("a", **KEY).at(1).submit("b", **KEY).at(2).claim("a").report("a", 1, "pending")
        history.at(3).claim("b").at(4).report("b").at(5).claim("a", 2).at(6).report("a", 2)

        assert history.broken() == [22]

    def test_a_head_that_was_lost_holds_it_until_its_claim_has_run_out(self) -> None:
        history = History().submit("a", **KEY).at(1).submit("b", **KEY).at(2).claim("a")

        assert history.at(13).claim("b").broken() == []

    def test_they_go_in_the_order_in_which_they_were_accepted(self) -> None:
        history = (
            History().submit("a", **KEY).at(1).submit("b", **KEY).at(2).claim("b").at(3).report("b").at(4).claim("a")
        )

        assert history.found(22).message == "run b of key k went before run a, accepted earlier"
        assert history.shown(22) == ["submit", "submit", "claim", "claim"]

    def test_where_that_order_is_not_known_any_will_do(self) -> None:
        for fields in ({"sent": 0}, {"outcome": "unknown"}):
            history = History().submit("a", **KEY).at(1).submit("b", **KEY, **fields)
            assert history.at(2).claim("b").at(3).report("b").at(4).claim("a").broken() == []

    def test_what_was_asked_for_twice_may_have_been_accepted_the_first_time(self) -> None:
        history = History().submit("b", **KEY, outcome="unknown").at(1).submit("a", **KEY).at(2).submit("b", **KEY)

        assert history.at(3).claim("b").at(4).report("b").at(5).claim("a").broken() == []

    def test_a_failure_that_stops_the_key_ends_those_that_wait(self) -> None:
        history = History().submit("a", **KEY).at(1).submit("b", **KEY).at(2).claim("a").at(4).report("a", 1, "failed")
        history.at(5).claim("b").at(6).report("b").ended("b", "succeeded", "succeeded", key="k")
        history.ended("a", "failed", "failed", key="k", options=RunOptions(on_key_failure="stop"))

        assert history.found(22).message == "run b of key k began though run a failed and stops the key"

    def test_one_that_comes_later_begins(self) -> None:
        history = History().submit("a", **KEY).at(2).claim("a").at(3).submit("c", **KEY)
        history.at(4).report("a", 1, "failed").at(7).claim("c")
        history.ended("a", "failed", "failed", key="k", options=RunOptions(on_key_failure="stop"))

        assert 22 not in history.broken()

    def test_keys_of_different_namespaces_have_nothing_in_common(self) -> None:
        history = History().submit("a", **KEY).submit("b", **KEY, namespace="other")

        assert history.at(2).claim("a").at(3).claim("b").at(4).report("a").report("b").broken() == []

    def test_a_run_that_ended_without_being_claimed_holds_up_nobody(self) -> None:
        history = History().submit("a", **KEY).at(1).submit("b", **KEY).at(2).claim("b").at(3).report("b")

        assert history.ended("a", "cancelled").ended("b", "succeeded").broken() == []
