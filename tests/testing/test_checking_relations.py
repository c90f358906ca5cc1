"""Dependencies, as the checker judges them (15)."""

from __future__ import annotations

import pytest
from histories import History, instant

from mainspring.core.instants import MINUTE
from mainspring.core.schedules.triggers import AfterTrigger, EveryTrigger, OnFailure, When
from mainspring.core.states import State


class TestRunsAfterRuns:
    def test_a_run_begins_once_those_before_it_have_succeeded(self) -> None:
        history = History().submit("up").submit("a", after=("up",)).at(1).claim("up").at(2).report("up").claim("a")

        assert history.broken() == []

    def test_not_before_they_have_ended(self) -> None:
        history = (
            History().submit("up").submit("a", after=("up",)).at(1).claim("up").at(2).claim("a").at(3).report("up")
        )

        violation = history.found(15)
        assert violation.message == (
            "run a was claimed with token 1 at 2026-03-26T12:00:02Z, when what it waits for had not ended: up"
        )
        assert [record.what for record in violation.evidence] == ["submit", "claim", "claim", "report"]

    def test_nor_if_they_never_do(self) -> None:
        history = History().submit("up").submit("a", after=("up",)).at(2).claim("a").ended("up", "pending").ended("a")

        assert history.shown(15) == ["submit", "claim", "run"]

    @pytest.mark.parametrize("state", ["failed", "cancelled", "skipped"])
    @pytest.mark.parametrize("on_failure", ["skip", "fail"])
    def test_nor_if_they_do_not_succeed(self, state: State, on_failure: OnFailure) -> None:
        history = (
            History().submit("up").submit("a", after=("up",), on_failure=on_failure).at(2).claim("a").ended("up", state)
        )

        assert (
            history.ended("a").found(15).message == f"run a was claimed with token 1, though run up before it {state}"
        )

    def test_unless_it_runs_whatever_comes_of_them(self) -> None:
        history = History().submit("up").submit("a", after=("up",), on_failure="run").at(2).claim("a")

        assert history.ended("up", "failed").ended("a").broken() == []

    def test_one_of_many_is_enough_for_some(self) -> None:
        history = History().submit("up").submit("other").submit("a", after=("up", "other"), when="any_finished")
        history.at(1).claim("up").claim("other").at(2).report("up", 1, "failed").claim("a").at(3).report("other")

        assert history.broken() == []

    def test_but_one_it_must_be(self) -> None:
        history = History().submit("up").submit("other").submit("a", after=("up", "other"), when="any_finished")
        history.at(1).claim("up").claim("other").at(2).claim("a").at(3).report("up").report("other")

        assert history.broken() == [15]

    def test_a_report_that_was_sent_before_may_have_been_accepted_before(self) -> None:
        history = (
            History()
            .submit("up")
            .submit("a", after=("up",))
            .at(1)
            .claim("up")
            .at(3)
            .claim("a")
            .at(4)
            .report("up", sent=2)
        )

        assert history.broken() == []

    def test_a_claim_that_ran_out_may_have_been_the_last(self) -> None:
        history = (
            History().submit("up").submit("a", after=("up",), on_failure="run").at(1).claim("up").at(12).claim("a")
        )

        assert history.broken() == []


def following(when: When = "all_succeeded", on_failure: OnFailure = "skip") -> History:
    """Two jobs that are due every minute, and one after both."""
    history = History().job("north", EveryTrigger(MINUTE), next_at=180).job("south", EveryTrigger(MINUTE), next_at=180)
    return history.job("j", AfterTrigger(("north", "south"), when, on_failure))


def after(history: History, *instants: float) -> History:
    """Firings of the job that follows."""
    for seconds in instants:
        run = f"j@{seconds}"
        history.firing("j", seconds, kind="after", run=run).ended(run, job_id="j", fire_at=instant(seconds))
    return history


class TestJobsAfterJobs:
    def test_a_job_fires_once_for_each_success_of_all_that_it_follows(self) -> None:
        assert after(following().fired("north", 60, 120).fired("south", 60, 120), 70, 130).broken() == []

    def test_not_more_often(self) -> None:
        history = after(following().fired("north", 60, 120).fired("south", 60).missed("south", 120), 70, 130)

        violation = history.found(15)
        assert "job j fired for 2026-03-26T12:02:10Z, its firing number 2" in violation.message
        assert [record.what for record in violation.evidence] == ["job", "job", "job", "firing", "firing", "firing"]

    def test_a_failure_is_no_reason_to_fire(self) -> None:
        history = following().fired("north", 60, 120).fired("south", 60).fired("south", 120, state="failed")

        assert after(history, 70, 130).broken() == [15]

    def test_unless_it_fires_whatever_comes_of_them(self) -> None:
        history = (
            following(on_failure="run").fired("north", 60, 120).fired("south", 60).fired("south", 120, state="failed")
        )

        assert after(history, 70, 130).broken() == []

    def test_one_of_them_is_enough_for_some(self) -> None:
        history = (
            following("any_finished").fired("north", 60, 120).missed("south", 60).fired("south", 120, state="failed")
        )

        assert after(history, 70, 80, 130).broken() == []

    def test_what_has_not_ended_is_no_reason(self) -> None:
        history = following("any_finished").fired("north", 60).firing("north", 120, state="fired", run="x")
        history.submit("x").ended("x", "running").missed("south", 60, 120)

        assert after(history, 70, 71, 72, 130).broken() == [15]

    def test_it_does_not_fire_before_they_have_ended(self) -> None:
        history = following().at(60).claim("north@60").at(65).renew("north@60").at(72).report("north@60")
        history.fired("north", 60, 120).fired("south", 60, 120)

        assert after(history, 70, 130).broken() == []
        history = following().at(60).claim("north@60").at(119).report("north@60").at(120).claim("north@120")
        history.at(130).fire("j", 130).at(131).report("north@120").fired("north", 60, 120).fired("south", 60, 120)
        assert after(history, 119, 130).broken() == [15]

    def test_nor_does_a_run_of_it_begin_before(self) -> None:
        history = following().at(60).claim("north@60").at(119).report("north@60").at(120).claim("north@120")
        history.at(130).claim("j@130").at(131).report("north@120").fired("north", 60, 120).fired("south", 60, 120)

        assert after(history, 119, 130).broken() == [15]

    def test_a_planner_that_comes_late_judges_by_what_has_ended_by_then(self) -> None:
        """A failure made it due, and a success came before the next look."""
        history = following().fired("south", 60, 120).fired("north", 60, state="failed").fired("north", 120)
        history.at(120).claim("north@120").at(125).report("north@120").at(128).fire("j", 62, sent=127)

        assert after(history, 62).broken() == []

    def test_a_manual_firing_needs_no_reason(self) -> None:
        history = after(following().fired("north", 60, 120).fired("south", 60, 120), 70, 130).trigger("j", 140)
        history.firing("j", 140, kind="manual", run="x").ended("x", job_id="j", fire_at=instant(140))

        assert history.broken() == []

    def test_what_somebody_repeated_may_be_a_reason_twice(self) -> None:
        history = after(
            following(on_failure="run").fired("north", 60, 120).fired("south", 60).missed("south", 120), 70, 80, 130
        )
        history.submit("x").ended("x", job_id="south", fire_at=instant(60), retry_of="south@60")
        history.submit("y").ended("y", job_id="north", fire_at=instant(60), retry_of="north@60")

        assert history.broken() == []

    def test_upstreams_that_are_not_known_may_be_reason_enough(self) -> None:
        history = History().job("j", AfterTrigger(("north",)))

        assert after(history, 70).broken() == []
