"""Several `up`, `worker` and client processes on one file are killed, stopped, drained and restarted; the history
checker judges what each of them wrote down. `make chaos` does the same for longer."""

import asyncio
from pathlib import Path

import pytest

from mainspring.testing.chaos.cluster.backing import SERVER_FAULTS
from mainspring.testing.chaos.cluster.faults import RATES, SERVER_RATES, plan_faults
from mainspring.testing.chaos.driver import Plan, Result, Run
from mainspring.testing.checking import INVARIANTS

SIMULATED = {20, 23, 24}
"""Rates of tenants, paused queues, tallies: only the simulator plays these."""


def play(folder: Path, seed: int, seconds: float, bug: str | None = None) -> Result:
    url, hasty = f"sqlite:///{folder / 'chaos.db'}", bug is not None
    plan = Plan(url, folder, seed, seconds, nodes=2, workers=2, clients=1, bug=bug, hasty=hasty)
    return asyncio.run(Run(plan, print).play())


@pytest.fixture(scope="module")
def aftermath(tmp_path_factory: pytest.TempPathFactory) -> Result:
    return play(tmp_path_factory.mktemp("chaos"), seed=27, seconds=16)


class TestAfterEveryKindOfFault:
    def test_the_history_breaks_no_invariant(self, aftermath: Result) -> None:
        assert aftermath.verdict.ok, str(aftermath.verdict)

    def test_all_invariants_were_judged(self, aftermath: Result) -> None:
        assert set(aftermath.verdict.judged) == {invariant.number for invariant in INVARIANTS} - SIMULATED

    def test_no_process_ended_as_none_should(self, aftermath: Result) -> None:
        assert aftermath.troubles == []

    def test_the_faults_really_happened_and_cost_something(self, aftermath: Result) -> None:
        """The other tests would also pass if nothing had ever been in danger."""
        assert aftermath.faults.keys() >= {"kill", "stop", "drain", "roll", "power cut"}
        assert aftermath.faults.keys() & {"kill leader", "stop leader"}
        assert aftermath.counts["attempt lost"] > 0
        assert aftermath.counts["term ok"] > 1
        assert aftermath.counts["run succeeded"] > 50


@pytest.mark.parametrize(
    ("bug", "invariant"), [("a claim keeps the token", 4), ("an instant is passed over", 1)], ids=["token", "instant"]
)
def test_a_planted_bug_is_found(bug: str, invariant: int, tmp_path: Path) -> None:
    result = play(tmp_path, seed=27, seconds=8, bug=bug)
    assert invariant in {violation.number for violation in result.verdict.violations}


@pytest.mark.parametrize(
    ("bug", "fault", "invariant"),
    [("the term is not checked", "stop leader", 17), ("a stale report is accepted", "stop worker", 6)],
    ids=["term", "report"],
)
def test_a_bug_that_hides_from_chance_is_found_by_a_steered_fault(
    bug: str, fault: str, invariant: int, tmp_path: Path
) -> None:
    found = set[int]()
    for seed in range(27, 30):  # The order in which two real processes write is not ours to decide.
        folder = tmp_path / str(seed)
        folder.mkdir()
        url = f"sqlite:///{folder / 'chaos.db'}"
        plan = Plan(url, folder, seed, 4, nodes=2, workers=0, clients=0, bug=bug, script=(fault,), hasty=True)
        found |= {violation.number for violation in asyncio.run(Run(plan, print).play()).verdict.violations}
        if invariant in found:
            break
    assert invariant in found


def test_the_seed_decides_which_faults_come_when() -> None:
    assert plan_faults(7, 100) == plan_faults(7, 100)
    assert plan_faults(7, 100) != plan_faults(8, 100)
    assert {fault.kind for fault in plan_faults(7, 10)} == set(RATES)
    assert {fault.kind for fault in plan_faults(7, 10, {**RATES, **SERVER_RATES})} == {*RATES, *SERVER_RATES}


def test_whatever_may_happen_to_a_server_can_be_done_to_one() -> None:
    assert SERVER_RATES.keys() == SERVER_FAULTS
