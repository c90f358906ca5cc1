"""Dependencies, as the checker judges them (15)."""

from __future__ import annotations

import pytest
from told import Told, instant

from mainspring.core.instants import MINUTE
from mainspring.core.schedules.triggers import AfterTrigger, EveryTrigger, OnFailure, When
from mainspring.core.states import State


class TestRunsAfterRuns:
    def test_a_run_begins_once_those_before_it_have_succeeded(self) -> None:
        told = Told().submit("up").submit("a", after=("up",)).at(1).claim("up").at(2).report("up").claim("a")

        assert told.broken() == []

    def test_not_before_they_have_ended(self) -> None:
        told = Told().submit("up").submit("a", after=("up",)).at(1).claim("up").at(2).claim("a").at(3).report("up")

        violation = told.found(15)
        assert violation.message == (
            "run a was claimed with token 1 at 2026-03-26T12:00:02Z, when what it waits for had not ended: up"
        )
        assert [record.what for record in violation.evidence] == ["submit", "claim", "claim", "report"]

    def test_nor_if_they_never_do(self) -> None:
        told = Told().submit("up").submit("a", after=("up",)).at(2).claim("a").ended("up", "pending").ended("a")

        assert told.shown(15) == ["submit", "claim", "run"]

    @pytest.mark.parametrize("state", ["failed", "cancelled", "skipped"])
    @pytest.mark.parametrize("on_failure", ["skip", "fail"])
    def test_nor_if_they_do_not_succeed(self, state: State, on_failure: OnFailure) -> None:
        told = Told().submit("up").submit("a", after=("up",), on_failure=on_failure).at(2).claim("a").ended("up", state)

        assert told.ended("a").found(15).message == f"run a was claimed with token 1, though run up before it {state}"

    def test_unless_it_runs_whatever_comes_of_them(self) -> None:
        told = Told().submit("up").submit("a", after=("up",), on_failure="run").at(2).claim("a")

        assert told.ended("up", "failed").ended("a").broken() == []

    def test_one_of_many_is_enough_for_some(self) -> None:
        told = Told().submit("up").submit("other").submit("a", after=("up", "other"), when="any_finished")
        told.at(1).claim("up").claim("other").at(2).report("up", 1, "failed").claim("a").at(3).report("other")

        assert told.broken() == []

    def test_but_one_it_must_be(self) -> None:
        told = Told().submit("up").submit("other").submit("a", after=("up", "other"), when="any_finished")
        told.at(1).claim("up").claim("other").at(2).claim("a").at(3).report("up").report("other")

        assert told.broken() == [15]

    def test_a_report_that_was_sent_before_may_have_been_accepted_before(self) -> None:
        told = (
            Told().submit("up").submit("a", after=("up",)).at(1).claim("up").at(3).claim("a").at(4).report("up", sent=2)
        )

        assert told.broken() == []

    def test_a_claim_that_ran_out_may_have_been_the_last(self) -> None:
        told = Told().submit("up").submit("a", after=("up",), on_failure="run").at(1).claim("up").at(12).claim("a")

        assert told.broken() == []


def following(when: When = "all_succeeded", on_failure: OnFailure = "skip") -> Told:
    """Two jobs that are due every minute, and one after both."""
    told = Told().job("north", EveryTrigger(MINUTE), next_at=180).job("south", EveryTrigger(MINUTE), next_at=180)
    return told.job("j", AfterTrigger(("north", "south"), when, on_failure))


def after(told: Told, *instants: float) -> Told:
    """Firings of the job that follows."""
    for seconds in instants:
        run = f"j@{seconds}"
        told.firing("j", seconds, kind="after", run=run).ended(run, job_id="j", fire_at=instant(seconds))
    return told


class TestJobsAfterJobs:
    def test_a_job_fires_once_for_each_success_of_all_that_it_follows(self) -> None:
        assert after(following().fired("north", 60, 120).fired("south", 60, 120), 70, 130).broken() == []

    def test_not_more_often(self) -> None:
        told = after(following().fired("north", 60, 120).fired("south", 60).missed("south", 120), 70, 130)

        violation = told.found(15)
        assert "job j fired for 2026-03-26T12:02:10Z, its firing number 2" in violation.message
        assert [record.what for record in violation.evidence] == ["job", "job", "job", "firing", "firing", "firing"]

    def test_a_failure_is_no_reason_to_fire(self) -> None:
        told = following().fired("north", 60, 120).fired("south", 60).fired("south", 120, state="failed")

        assert after(told, 70, 130).broken() == [15]

    def test_unless_it_fires_whatever_comes_of_them(self) -> None:
        told = (
            following(on_failure="run").fired("north", 60, 120).fired("south", 60).fired("south", 120, state="failed")
        )

        assert after(told, 70, 130).broken() == []

    def test_one_of_them_is_enough_for_some(self) -> None:
        told = following("any_finished").fired("north", 60, 120).missed("south", 60).fired("south", 120, state="failed")

        assert after(told, 70, 80, 130).broken() == []

    def test_what_has_not_ended_is_no_reason(self) -> None:
        told = following("any_finished").fired("north", 60).firing("north", 120, state="fired", run="x")
        told.submit("x").ended("x", "running").missed("south", 60, 120)

        assert after(told, 70, 71, 72, 130).broken() == [15]

    def test_it_does_not_fire_before_they_have_ended(self) -> None:
        told = following().at(60).claim("north@60").at(65).renew("north@60").at(72).report("north@60")
        told.fired("north", 60, 120).fired("south", 60, 120)

        assert after(told, 70, 130).broken() == []
        told = following().at(60).claim("north@60").at(119).report("north@60").at(120).claim("north@120")
        told.at(130).fire("j", 130).at(131).report("north@120").fired("north", 60, 120).fired("south", 60, 120)
        assert after(told, 119, 130).broken() == [15]

    def test_nor_does_a_run_of_it_begin_before(self) -> None:
        told = following().at(60).claim("north@60").at(119).report("north@60").at(120).claim("north@120")
        told.at(130).claim("j@130").at(131).report("north@120").fired("north", 60, 120).fired("south", 60, 120)

        assert after(told, 119, 130).broken() == [15]

    def test_a_planner_that_comes_late_judges_by_what_has_ended_by_then(self) -> None:
        """A failure made it due, and a success came before anybody looked."""
        told = following().fired("south", 60, 120).fired("north", 60, state="failed").fired("north", 120)
        told.at(120).claim("north@120").at(125).report("north@120").at(128).fire("j", 62, sent=127)

        assert after(told, 62).broken() == []

    def test_who_fires_it_by_hand_needs_no_reason(self) -> None:
        told = after(following().fired("north", 60, 120).fired("south", 60, 120), 70, 130).trigger("j", 140)
        told.firing("j", 140, kind="manual", run="x").ended("x", job_id="j", fire_at=instant(140))

        assert told.broken() == []

    def test_what_somebody_repeated_may_be_a_reason_twice(self) -> None:
        told = after(
            following(on_failure="run").fired("north", 60, 120).fired("south", 60).missed("south", 120), 70, 80, 130
        )
        told.submit("x").ended("x", job_id="south", fire_at=instant(60), retry_of="south@60")
        told.submit("y").ended("y", job_id="north", fire_at=instant(60), retry_of="north@60")

        assert told.broken() == []

    def test_upstreams_that_are_not_known_may_be_reason_enough(self) -> None:
        told = Told().job("j", AfterTrigger(("north",)))

        assert after(told, 70).broken() == []
