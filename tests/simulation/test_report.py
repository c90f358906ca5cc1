"""`mainspring.testing.simulate`, and what it reports."""

from collections import Counter
from typing import Any

import pytest

import mainspring.testing
from mainspring.errors import InvalidInput
from mainspring.testing import simulate
from mainspring.testing.checking import Verdict
from mainspring.testing.simulation import Report, Result, Scenario, run_scenario
from mainspring.testing.simulation.faults import PROFILES
from mainspring.testing.simulation.sometimes import ENOUGH_SEEDS, PATHS, TRANSPORT_PATHS, demanded

SMALL: dict[str, Any] = {"minutes": 0.3, "nodes": 1, "workers": 1}


def result(*, profile: str = "chaos", minutes: float = 10.0, seen: tuple[str, ...] = (), error: str = "") -> Result:
    scenario = Scenario(7, profile, minutes)
    return Result(scenario, Verdict([], (), 0), [error] if error else [], Counter(seen), 600.0, [])


def test_simulate_plays_a_number_of_seeds_or_these() -> None:
    report = simulate(2, profile="calm", jobs=1, **SMALL)
    again = simulate([1], profile="calm", **SMALL)

    assert report.ok, str(report)
    assert (report.seeds, again.seeds) == (2, 1)
    assert report.sometimes["report accepted"] > again.sometimes["report accepted"] > 0


def test_how_many_processes_share_the_work_changes_nothing() -> None:
    alone, shared = (simulate(3, profile="network", jobs=jobs, **SMALL) for jobs in (1, 2))

    assert (alone.sometimes, alone.virtual_seconds) == (shared.sometimes, shared.virtual_seconds)


def test_what_is_no_profile_or_fault_is_refused() -> None:
    with pytest.raises(InvalidInput, match="is not a profile; choose one of calm"):
        simulate(1, profile="sunny")
    with pytest.raises(InvalidInput, match="is not a fault; choose among lost_request"):
        simulate(1, without=["rain"])


def test_it_is_loaded_when_it_is_asked_for() -> None:
    assert mainspring.testing.simulate is simulate


def test_a_failing_seed_is_reported_with_the_command_that_replays_it() -> None:
    report = Report([result(), result(error="the planner: KeyError")])

    assert not report.ok
    assert "the planner: KeyError" in str(report)
    assert "replay it with: mainspring simulate --seed 7 --profile chaos" in str(report)


class TestSometimes:
    def test_a_few_seeds_need_not_have_seen_everything(self) -> None:
        assert Report([result()] * (ENOUGH_SEEDS - 1)).unseen == []

    @pytest.mark.parametrize("profile", PROFILES)
    def test_many_have_to_have_seen_all_that_their_profile_has_in_store(self, profile: str) -> None:
        report = Report([result(profile=profile)] * ENOUGH_SEEDS)

        assert report.unseen == demanded(profile, ENOUGH_SEEDS) != []
        assert not report.ok
        assert report.unseen[0] in str(report)

    def test_chaos_has_to_have_seen_every_path(self) -> None:
        others = {"partitions": set(TRANSPORT_PATHS["log"]), "visibility": set(TRANSPORT_PATHS["hiding"])}
        others["queues"] = {"queue paused", "total timeout ended a wait"}
        assert set(PATHS) - set().union(*others.values()) < set(demanded("chaos", ENOUGH_SEEDS))
        for profile, paths in others.items():
            assert paths < set(demanded(profile, ENOUGH_SEEDS))

    def test_where_many_jobs_are_due_at_once_a_herd_has_to_have_been_seen(self) -> None:
        herds = {profile for profile in PROFILES if "thundering herd" in demanded(profile, ENOUGH_SEEDS)}

        assert herds == {"chaos", "herd"}

    def test_what_was_seen_once_is_enough(self) -> None:
        everything = tuple(demanded("chaos", ENOUGH_SEEDS))

        assert Report([result(seen=everything), *[result()] * ENOUGH_SEEDS]).ok

    def test_seeds_that_are_cut_short_show_nothing(self) -> None:
        assert Report([result(minutes=1.0)] * ENOUGH_SEEDS).unseen == []


def test_worlds_differ_in_which_nodes_plan_and_in_which_order_work_is_done() -> None:
    seen = Counter[str]()
    for seed in range(8):
        seen += run_scenario(Scenario(seed, "calm", 0.2, 1, 1)).sometimes

    kinds = ("coordination by a leader", "coordination by cluster", "order by priority alone", "order by age")
    assert [kind for kind in (*kinds, "several queues", "several regions") if not seen[kind]] == []


def test_jobs_that_are_fired_for_one_instant_are_counted_as_a_herd() -> None:
    herd, none = (run_scenario(Scenario(1, profile, 5.0, 1, 1)) for profile in ("herd", "calm"))

    assert 0 < herd.sometimes["thundering herd"] <= 2  # They are due every four minutes.
    assert none.sometimes["thundering herd"] == 0
