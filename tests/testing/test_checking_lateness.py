"""Time, as the checker judges it: nothing begins early or, where nothing goes wrong, late (11); deadlines end the work
(12)."""

from __future__ import annotations

from typing import Any

import pytest
from histories import History, instant

from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.model import Gate, JobPolicy, RunOptions
from mainspring.core.planning.plans import jitter_of
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.testing.checking.stories.jobs import JobStory

BOUND = 5 * SECOND


class TestNothingBeginsEarly:
    def test_a_run_is_not_claimed_before_it_is_due(self) -> None:
        history = History().submit("a", due=5).at(4).claim("a")

        assert history.found(11).message == (
            "run a was due at 2026-03-26T12:00:05Z, and its claim with token 1 came 1s early"
        )
        assert history.shown(11) == ["submit", "claim"]

    def test_a_run_may_be_claimed_shortly_before_it_is_due(self) -> None:
        assert History().submit("a", due=5).at(4.6).claim("a").at(5).start("a").broken() == []

    def test_but_it_does_not_start_before(self) -> None:
        history = History().submit("a", due=5).at(4.6).claim("a").at(4.9).start("a")

        assert history.found(11).message == (
            "run a was due at 2026-03-26T12:00:05Z, and its start with token 1 came 100ms early"
        )

    def test_at_that_instant_it_is_due(self) -> None:
        assert History().submit("a", due=5).at(5).claim("a").start("a").broken() == []

    def test_it_is_due_as_it_was_asked_for_first(self) -> None:
        """A request that repeats a key may ask for another time, and gets the first run."""
        history = History().submit("b", answer="a", idempotency_key="k", due=9, sent=-1)

        assert history.submit("a", idempotency_key="k").at(1).claim("a").broken() == []

    def test_a_run_of_a_firing_is_due_at_its_instant(self) -> None:
        history = History().job("j", EveryTrigger(MINUTE), next_at=120).at(59).claim("j@60").fired("j", 60)

        assert history.shown(11) == ["job", "claim", "firing", "run"]

    def test_or_later_by_its_jitter(self) -> None:
        policy = JobPolicy(jitter=20 * SECOND)
        history = History().job("j", EveryTrigger(MINUTE), next_at=120, policy=policy)
        story = JobStory("j")
        story.define(history.records[0], is_end=False)
        late = jitter_of(story.definitions[0]) / SECOND
        assert late > 1

        assert history.at(61).claim("j@60").fired("j", 60).broken() == [11]

    def test_one_that_was_fired_by_hand_is_numbered_by_the_next_free_instant_and_due_before(self) -> None:
        history = History().job("j", EveryTrigger(MINUTE), next_at=60).trigger("j", 10.1).at(10).claim("a")
        history.firing("j", 10.1, kind="manual", run="a").ended("a", job_id="j", fire_at=instant(10.1))

        assert history.broken() == []


class TestNothingBeginsLate:
    def quiet(self) -> History:
        return History().fault("healed").at(100)

    def test_a_run_begins_soon_where_nothing_goes_wrong(self) -> None:
        history = self.quiet().submit("a", due=100).at(106).claim("a")

        assert history.found(11, lateness_bound=BOUND).message == (
            "run a could begin at 2026-03-26T12:01:40Z, and was claimed only at 2026-03-26T12:01:46Z"
        )
        assert history.shown(11, lateness_bound=BOUND) == ["fault", "submit", "claim"]

    def test_a_firing_is_written_down_soon_where_nothing_goes_wrong(self) -> None:
        history = (
            self.quiet()
            .job("j", EveryTrigger(MINUTE), next_at=180)
            .at(126)
            .fire("j", 120)
            .claim("j@120")
            .fired("j", 60, 120)
        )

        assert history.found(11, lateness_bound=BOUND).message == (
            "job j: 2026-03-26T12:02:00Z was due, and was written down only at 2026-03-26T12:02:06Z"
        )
        assert history.shown(11, lateness_bound=BOUND) == ["fault", "job", "fire"]

    def test_a_firing_may_be_written_down_within_the_bound(self) -> None:
        history = (
            self.quiet()
            .job("j", EveryTrigger(MINUTE), next_at=180)
            .at(125)
            .fire("j", 120)
            .claim("j@120")
            .fired("j", 60, 120)
        )

        assert history.broken(lateness_bound=BOUND) == []

    def test_without_a_bound_nothing_is_late(self) -> None:
        assert self.quiet().submit("a", due=100).at(1_000).claim("a").broken() == []

    def test_it_cannot_begin_before_it_is_accepted(self) -> None:
        assert self.quiet().submit("a", due=50).at(104).claim("a").broken(lateness_bound=BOUND) == []

    def test_while_things_go_wrong_all_may_be_late(self) -> None:
        history = self.quiet().fault("crash").submit("a", due=100).at(200).claim("a").at(300).fault("healed")

        assert history.broken(lateness_bound=BOUND) == []

    def test_and_shortly_after(self) -> None:
        history = self.quiet().fault("crash").at(200).fault("healed").at(204).submit("a", due=204).at(300).claim("a")

        assert history.broken(lateness_bound=BOUND) == []

    @pytest.mark.parametrize(
        "fields", [{"after": ("b",)}, {"gates": (Gate("task:task", 1),)}, {"lines": (Gate("key:k", 1),), "key": "k"}]
    )
    def test_a_run_that_has_to_wait_may_be_late(self, fields: dict[str, Any]) -> None:
        history = self.quiet().submit("b").submit("a", due=100, **fields).claim("b").report("b").at(200).claim("a")

        assert history.broken(lateness_bound=BOUND) == []

    def test_a_run_that_was_claimed_before_is_late_for_another_reason(self) -> None:
        assert self.quiet().submit("a", due=100).at(200).claim("a", 2).broken(lateness_bound=BOUND) == []

    def test_a_run_of_a_firing_can_be_late_too(self) -> None:
        history = self.quiet().job("j", EveryTrigger(MINUTE), next_at=180).at(120).fire("j", 120).at(130).claim("j@120")
        history.fired("j", 60, 120)

        assert history.shown(11, lateness_bound=BOUND) == ["fault", "job", "fire", "claim", "firing", "run"]


class TestDeadlinesEndTheWork:
    OPTIONS = RunOptions(timeout=10 * SECOND)

    def worked(self, history: History, since: float, until: float) -> History:
        history.at(since).submit("a", due=since, options=self.OPTIONS).claim("a", ttl=1_000).start("a")
        return history.at(until).end("a").report("a", 1, "failed")

    def test_work_ends_soon_after_its_timeout(self) -> None:
        history = self.worked(History().fault("healed"), 100, 151)

        assert history.found(12).message == "run a with token 1 has a timeout of 10s, and went on for 51s"
        assert history.shown(12) == ["fault", "submit", "start", "end"]

    def test_it_has_a_while_to_end(self) -> None:
        assert self.worked(History().fault("healed"), 100, 139).broken() == []
        assert self.worked(History().fault("healed"), 100, 116).broken(deadline_bound=5 * SECOND) == [12]

    def test_where_a_process_may_have_been_stopped_it_may_take_longer(self) -> None:
        assert self.worked(History(), 100, 200).broken() == []
        assert self.worked(History().fault("healed").fault("pause"), 100, 200).broken() == []
