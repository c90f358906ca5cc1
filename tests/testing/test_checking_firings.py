"""The ledger, as the checker judges it: one record per due instant (1), no run without cause (2), and fire times that
follow the clocks (21)."""

from __future__ import annotations

import pytest
from histories import START, History, instant

from mainspring.core.instants import MINUTE, SECOND, parse_instant
from mainspring.core.model import JobPolicy
from mainspring.core.schedules.calendar_rules import DailyWindow
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import AfterTrigger, AtTrigger, CronTrigger, EveryTrigger, ManualTrigger
from mainspring.testing.history import Outcome

MINUTELY = EveryTrigger(MINUTE)


def minutely(*, next_at: float, policy: JobPolicy | None = None) -> History:
    """A job that is due every minute, created at the beginning; so it was at the end."""
    return History().job("j", MINUTELY, next_at=next_at, policy=policy)


class TestOneRecordPerDueInstant:
    def test_instants_that_ran_and_instants_that_were_missed_are_accounted_for(self) -> None:
        assert minutely(next_at=300).fired("j", 60, 120).missed("j", 180, 240).broken() == []

    def test_an_instant_that_is_not_in_the_ledger_was_lost(self) -> None:
        history = minutely(next_at=240).fired("j", 60, 180)

        violation = history.found(1)
        assert violation.message == "job j: 2026-03-26T12:02:00Z was due, and is not in the ledger"
        assert [record.what for record in violation.evidence] == ["job", "firing"]

    def test_nothing_is_lost_that_was_not_yet_due(self) -> None:
        assert minutely(next_at=120).fired("j", 60).broken() == []

    def test_the_ledger_itself_shows_how_far_the_job_had_come(self) -> None:
        assert minutely(next_at=60).fired("j", 60, 180).broken() == [1]

    def test_so_does_the_end_of_a_drained_history_shortly_before(self) -> None:
        assert minutely(next_at=60).fired("j", 60).at(180).fault("drained").broken() == [1]
        assert minutely(next_at=60).fired("j", 60).at(179).fault("drained").broken() == []

    def test_a_paused_job_is_not_due(self) -> None:
        history = (
            History().job("j", MINUTELY, next_at=120, paused_at=instant(70)).fired("j", 60).at(900).fault("drained")
        )

        assert history.broken() == []

    def test_nor_is_a_removed_one(self) -> None:
        history = minutely(next_at=60).at(200).job("j", MINUTELY, state="removed").fired("j", 60, 120).at(900)

        assert history.fault("drained").broken() == []

    def test_a_history_without_an_end_says_nothing_about_it(self) -> None:
        assert minutely(next_at=300).broken() == []

    def test_an_instant_is_in_the_ledger_once(self) -> None:
        history = (
            minutely(next_at=120)
            .firing("j", 60, run="a")
            .firing("j", 60, run="b")
            .ended("a", job_id="j", fire_at=instant(60))
        )
        history.ended("b", job_id="j", fire_at=instant(60), idx=1)

        assert history.found(1).message == "job j: 2026-03-26T12:01:00Z is in the ledger twice"

    def test_it_has_one_run(self) -> None:
        history = minutely(next_at=120).fired("j", 60).submit("b").ended("b", job_id="j", fire_at=instant(60))

        violation = history.found(1)
        assert violation.message == "job j: 2026-03-26T12:01:00Z has two runs, j@60 and b"
        assert [record.what for record in violation.evidence] == ["run", "run"]

    def test_a_run_that_somebody_repeated_is_another(self) -> None:
        history = (
            minutely(next_at=120)
            .fired("j", 60)
            .submit("b")
            .ended("b", job_id="j", fire_at=instant(60), retry_of="j@60")
        )

        assert history.broken() == []

    def test_the_run_that_the_ledger_names_is_there(self) -> None:
        history = minutely(next_at=180).fired("j", 60).firing("j", 120, run="gone")

        assert "has run gone in the ledger, and there is no such run" in history.found(1).message

    def test_unless_only_a_limited_number_is_kept(self) -> None:
        history = minutely(next_at=180, policy=JobPolicy(keep_succeeded=1)).fired("j", 60).firing("j", 120, run="gone")

        assert history.broken() == []

    def test_a_firing_that_was_acknowledged_is_in_the_ledger(self) -> None:
        history = minutely(next_at=60).fire("j", 60).submit("a").ended("a")

        assert history.found(1).message == "job j: 2026-03-26T12:01:00Z was fired, and is not in the ledger"

    def test_that_of_a_removed_job_may_be_gone(self) -> None:
        history = minutely(next_at=60).at(60).fire("j", 60).at(90).job("j", MINUTELY, state="removed")

        assert history.submit("a").ended("a").broken() == []

    @pytest.mark.parametrize("outcome", ["unknown", "refused"])
    def test_one_that_was_not_need_not_be(self, outcome: Outcome) -> None:
        assert minutely(next_at=60).fire("j", 60, outcome=outcome).submit("a").ended("a").broken() == []


class TestStretches:
    def test_one_row_may_stand_for_many_missed_instants(self) -> None:
        history = minutely(next_at=660).firing("j", 60, state="missed", last=540, count=9).fired("j", 600)

        assert history.broken() == []

    def test_it_counts_them_right(self) -> None:
        history = minutely(next_at=660).firing("j", 60, state="missed", last=540, count=8).fired("j", 600)

        assert "12:01:00Z to 2026-03-26T12:09:00Z is not 8 due instants" in history.found(1).message

    def test_or_says_that_they_were_too_many(self) -> None:
        assert minutely(next_at=6_060).firing("j", 60, state="missed", last=6_000, count=0).broken() == []

    def test_what_is_in_a_stretch_is_not_in_the_ledger_by_itself(self) -> None:
        history = minutely(next_at=660).firing("j", 60, state="missed", last=600, count=10).fired("j", 300)

        assert "by itself and as one of a stretch" in history.found(1).message

    def test_an_instant_that_somebody_chose_may_lie_in_one(self) -> None:
        history = minutely(next_at=660).firing("j", 60, state="missed", last=600, count=10).trigger("j", 301)
        history.firing("j", 301, kind="manual", run="a").ended("a", job_id="j", fire_at=instant(301))

        assert history.broken() == []


class TestRegionsAndIndices:
    POLICY = JobPolicy(regions=("north", "south"), completions=2)

    def test_each_region_and_index_has_its_run(self) -> None:
        history = minutely(next_at=120, policy=self.POLICY)
        for region, idx in (("north", 0), ("north", 1), ("south", 0)):
            history.firing("j", 60, region=region, idx=idx, run=f"{region}{idx}")
            history.ended(f"{region}{idx}", job_id="j", fire_at=instant(60), region=region, idx=idx)

        assert history.found(1).message == "job j: 2026-03-26T12:01:00Z has no run of index 1 in region south"

    def test_a_missed_instant_has_one_row_for_all(self) -> None:
        assert minutely(next_at=120, policy=self.POLICY).firing("j", 60, region="north", state="missed").broken() == []

    def test_what_was_edited_meanwhile_is_not_asked(self) -> None:
        history = minutely(next_at=120, policy=self.POLICY).at(100)
        history.job("j", MINUTELY, version=2, edited=100, next_at=120).firing("j", 60, region="north", run="a")
        history.ended("a", job_id="j", fire_at=instant(60))

        assert history.broken() == []


class TestEdits:
    def test_each_definition_counts_while_it_is_in_force(self) -> None:
        history = History().job("j", MINUTELY, next_at=60).at(150)
        history.job("j", EveryTrigger(100 * SECOND), version=2, edited=150, next_at=400).fired("j", 60, 120, 200, 300)

        assert history.broken() == []

    def test_what_the_older_one_still_owed_is_owed(self) -> None:
        history = History().job("j", MINUTELY, next_at=60).at(150)
        history.job("j", EveryTrigger(100 * SECOND), version=2, edited=150, next_at=400).fired("j", 60, 200, 300)

        violation = history.found(1)
        assert "12:02:00Z was due" in violation.message
        assert [record.what for record in violation.evidence] == ["job", "job", "firing"]

    def test_a_definition_that_nobody_knows_makes_the_rest_doubtful(self) -> None:
        history = (
            History().job("j", MINUTELY, next_at=60).at(150).job("j", MINUTELY, version=3, edited=150, next_at=400)
        )

        assert history.fired("j", 60).broken() == []

    def test_so_does_an_edit_that_was_not_acknowledged(self) -> None:
        history = History().job("j", MINUTELY, next_at=60).at(100).job("j", MINUTELY, outcome="unknown").fired("j", 60)

        assert history.at(900).fault("drained").broken() == []

    def test_until_the_end_says_how_it_came(self) -> None:
        history = History().job("j", MINUTELY, next_at=60).at(100).job("j", MINUTELY, outcome="unknown").fired("j", 60)
        history.at(900).fault("drained").job("j", MINUTELY, next_at=960)

        assert history.broken() == [1]

    def test_a_job_that_may_fire_only_so_often_has_no_gaps_while_it_does(self) -> None:
        policy = JobPolicy(max_firings=2)

        assert History().job("j", MINUTELY, policy=policy).fired("j", 60, 120).at(900).fault("drained").broken() == []
        assert History().job("j", MINUTELY, policy=policy).fired("j", 60, 180).broken() == [1]

    def test_a_manual_firing_later_makes_none(self) -> None:
        history = History().job("j", MINUTELY, policy=JobPolicy(max_firings=2)).fired("j", 60, 120).trigger("j", 601)

        assert history.firing("j", 601, kind="manual", state="skipped").broken() == []

    def test_a_job_ends_when_its_policy_says(self) -> None:
        policy = JobPolicy(end_at=instant(130))

        assert History().job("j", MINUTELY, policy=policy).fired("j", 60, 120).at(900).fault("drained").broken() == []
        assert History().job("j", MINUTELY, policy=policy).fired("j", 60).broken() == [1]


class TestCalendars:
    NOON = Calendar("noon", (DailyWindow("12:01", "12:03"),))
    POLICY = JobPolicy(calendars=("noon",))

    def test_excluded_instants_are_not_due(self) -> None:
        history = History().calendar(self.NOON).job("j", MINUTELY, next_at=300, policy=self.POLICY).fired("j", 180, 240)

        assert history.broken() == []

    def test_the_others_are(self) -> None:
        history = History().calendar(self.NOON).job("j", MINUTELY, next_at=300, policy=self.POLICY).fired("j", 180)

        assert history.broken() == [1]

    def test_with_a_calendar_that_nobody_knows_or_that_changed_anything_may_be_due(self) -> None:
        other = Calendar("noon", (DailyWindow("12:01", "12:30"),))
        unknown = History().job("j", MINUTELY, next_at=300, policy=self.POLICY).fired("j", 61)
        changed = History().calendar(self.NOON).calendar(other).job("j", MINUTELY, next_at=300, policy=self.POLICY)

        assert unknown.broken() == []
        assert changed.fired("j", 61).broken() == []


class TestNoRunWithoutCause:
    def test_a_run_that_nobody_submitted_has_no_cause(self) -> None:
        history = History().ended("a")

        assert history.found(2).message == "run a was not submitted, and is of no job"
        assert history.shown(2) == ["run"]

    def test_a_submission_that_was_refused_is_no_cause(self) -> None:
        assert History().submit("a", outcome="refused").ended("a").shown(2) == ["submit", "run"]

    def test_one_whose_answer_was_lost_is(self) -> None:
        assert History().submit("a", outcome="unknown").ended("a").broken() == []

    def test_a_run_of_a_firing_is_in_the_ledger(self) -> None:
        history = minutely(next_at=180).fired("j", 60).missed("j", 120).ended("a", job_id="j", fire_at=instant(120))

        assert "run a is of no firing" in history.found(2).message

    def test_the_ledger_of_a_removed_job_may_be_gone(self) -> None:
        history = (
            minutely(next_at=60).at(100).job("j", MINUTELY, state="removed").ended("a", job_id="j", fire_at=instant(60))
        )

        assert history.missed("other", 60).broken() == []

    def test_a_job_does_not_fire_when_it_is_not_due(self) -> None:
        history = minutely(next_at=120).fired("j", 60).missed("j", 61)

        assert history.found(2).message == "job j: 2026-03-26T12:01:01Z is in the ledger, and was never due"

    def test_unless_somebody_fired_it(self) -> None:
        history = minutely(next_at=120).fired("j", 60).trigger("j", 61).firing("j", 61, kind="manual", state="skipped")

        assert history.broken() == []

    def test_even_if_the_ledger_does_not_say_so(self) -> None:
        history = minutely(next_at=120).fired("j", 60).trigger("j", 61).firing("j", 61, kind=None, state="skipped")
        lost = minutely(next_at=120).fired("j", 60).trigger("j", None, "unknown")

        assert history.broken() == []
        assert lost.firing("j", 61, kind=None, state="skipped").broken() == []

    def test_a_firing_by_hand_needs_a_hand(self) -> None:
        history = History().job("j", ManualTrigger()).firing("j", 61, kind="manual", state="skipped")

        assert history.found(2).message == "job j: 2026-03-26T12:01:01Z was fired by hand, and no client did"

    def test_a_job_that_is_due_once_fires_once(self) -> None:
        assert History().job("j", AtTrigger(instant(60))).fired("j", 60).broken() == []
        assert History().job("j", AtTrigger(instant(60))).fired("j", 60).missed("j", 120).broken() == [2]

    def test_jobs_that_follow_others_have_no_instants_of_their_own(self) -> None:
        assert History().job("j", AfterTrigger(("up",))).firing("j", 61, kind="after", state="skipped").broken() == []


class TestFireTimesFollowTheClocks:
    """In Berlin the clocks go forward from 2 to 3 on 29 March 2026, and back from 3 to 2 on 25 October."""

    def berlin(self, expression: str, created: float, next_at: float) -> History:
        return (
            History()
            .at(created)
            .job("j", CronTrigger(expression, "Europe/Berlin"), created_at=instant(created), next_at=next_at)
        )

    def seconds(self, text: str) -> float:
        return (parse_instant(text) - START) / SECOND

    def test_an_hour_that_is_skipped_is_stood_in_for(self) -> None:
        created, fired = self.seconds("2026-03-28T12:00:00Z"), self.seconds("2026-03-29T01:00:00Z")
        history = self.berlin("30 2 * * *", created, self.seconds("2026-03-30T00:30:00Z"))

        assert history.fired("j", fired).broken() == []

    def test_it_is_not_left_out(self) -> None:
        created = self.seconds("2026-03-28T12:00:00Z")
        history = self.berlin("30 2 * * *", created, self.seconds("2026-03-30T00:30:00Z"))

        assert "2026-03-29T01:00:00Z was due" in history.submit("a").ended("a").found(1).message

    def test_an_hour_that_comes_twice_counts_once(self) -> None:
        created = self.seconds("2026-10-24T12:00:00Z")
        history = self.berlin("30 2 * * *", created, self.seconds("2026-10-26T01:30:00Z"))
        once, twice = self.seconds("2026-10-25T00:30:00Z"), self.seconds("2026-10-25T01:30:00Z")

        violation = history.fired("j", once, twice).found(21)
        assert violation.message == "job j: 2026-10-25T01:30:00Z is in the ledger, and was never due"
        assert [record.what for record in violation.evidence] == ["job", "firing"]

    def test_fire_times_grow(self) -> None:
        history = History().job("j", CronTrigger("* * * * *"), next_at=180).at(60).fire("j", 60).at(121).fire("j", 120)
        history.at(122).fire("j", 120, actor="other").fired("j", 60, 120)

        assert history.found(21).message == (
            "job j fired for 2026-03-26T12:02:00Z after it had fired for 2026-03-26T12:02:00Z"
        )
        assert history.shown(21) == ["job", "fire", "fire"]

    def test_after_an_edit_they_may_begin_anew(self) -> None:
        history = History().job("j", CronTrigger("* * * * *"), next_at=60).at(119).fire("j", 120).at(119.5)
        history.job("j", CronTrigger("*/2 * * * *"), version=2, edited=119.5, next_at=240)

        assert history.at(120).fire("j", 120).fired("j", 60, 120).broken() == []

    def test_answers_may_come_in_another_order(self) -> None:
        history = History().job("j", CronTrigger("* * * * *"), next_at=180).at(120).fire("j", 120, sent=119)
        history.at(121).fire("j", 60, sent=60, actor="other").fired("j", 60, 120)

        assert history.broken() == []
