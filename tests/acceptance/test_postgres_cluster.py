"""Three nodes and three workers on a PostgreSQL server of their own, their wall clocks an hour apart. Leaders, workers
and the server are killed (-9) and stopped, connections are cut, in the middle of commits too; each fault hits where it
hurts. The history checker judges what every process wrote down; and each of its checks finds a bug that is planted."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from server import make_server, need_faketime

from mainspring.core.instants import MINUTE
from mainspring.testing.chaos.cluster.directed import DIRECTED, LENGTHS
from mainspring.testing.chaos.driver import LONGEST_HEALING_S, Plan, Result, Run
from mainspring.testing.chaos.inside.planted import BUGS
from mainspring.testing.chaos.inside.recording import gather
from mainspring.testing.checking import INVARIANTS
from mainspring.testing.history import Record
from mainspring.testing.servers.postgres import Postgres

SIMULATED = {20, 23, 24}
"""Rates of tenants, paused queues, tallies: only the simulator plays these."""
SCRIPT = tuple(sorted(DIRECTED))
SEED = 11
TRIES = 3
PROMISES = {
    1: "one run per due instant",
    3: "no lost submission",
    5: "claims of one run never overlap",
    6: "one accepted result per run",
    9: "attempts within the limit",
    17: "nothing is written under an old term",
    19: "everything eligible is claimed after healing",
}


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    server = make_server({"wal_writer_delay": "10s"})  # What was not synced when it was answered is lost with a kill.
    yield server
    server.close()


class Aftermath(NamedTuple):
    result: Result
    history: list[Record]


@pytest.fixture(scope="module")
def aftermath(server: Postgres, tmp_path_factory: pytest.TempPathFactory) -> Aftermath:
    folder = tmp_path_factory.mktemp("cluster")
    plan = Plan("", folder, SEED, 10, nodes=3, workers=3, clients=1, database="cluster", skewed=True, script=SCRIPT)
    result = asyncio.run(Run(plan, print, server).play())
    return Aftermath(result, gather(folder))


class TestThroughAllFaults:
    @pytest.mark.parametrize("kind", SCRIPT)
    def test_the_cluster_heals_by_itself_and_everything_eligible_is_claimed(
        self, aftermath: Aftermath, kind: str
    ) -> None:
        assert aftermath.result.healed_s[kind] < LONGEST_HEALING_S

    def test_the_history_breaks_no_invariant(self, aftermath: Aftermath) -> None:
        assert aftermath.result.verdict.ok, str(aftermath.result.verdict)

    def test_all_invariants_were_judged(self, aftermath: Aftermath) -> None:
        assert set(aftermath.result.verdict.judged) == {invariant.number for invariant in INVARIANTS} - SIMULATED

    def test_no_process_ended_as_none_should(self, aftermath: Aftermath) -> None:
        assert aftermath.result.troubles == []

    def test_what_a_stopped_leader_and_a_stopped_worker_wrote_too_late_was_refused(self, aftermath: Aftermath) -> None:
        assert aftermath.result.counts["fire refused"] > 0
        assert aftermath.result.counts["report refused"] > 0

    def test_clocks_were_an_hour_apart(self, aftermath: Aftermath) -> None:
        need_faketime()
        ahead = [record.wall - record.store for record in aftermath.history if record.what == "claim"]
        assert max(ahead) - min(ahead) > 59 * MINUTE

    def test_the_faults_really_cost_something(self, aftermath: Aftermath) -> None:
        """The other tests would also pass if nothing had ever been in danger."""
        counts = aftermath.result.counts
        assert counts["attempt lost"] > 0
        assert counts["term ok"] > 1
        assert counts["submit unknown"] + counts["report unknown"] + counts["fire unknown"] > 0
        assert counts["run succeeded"] > 50


@pytest.mark.parametrize("bug", list(BUGS))
def test_a_planted_bug_is_found(bug: str, server: Postgres, tmp_path: Path) -> None:
    planted, number = BUGS[bug], list(BUGS).index(bug)
    found: set[int] = set()
    for attempt in range(TRIES):  # What is lost with a server depends on the moment.
        name, folder = f"bug_{number}_{attempt}", tmp_path / str(attempt)
        folder.mkdir()
        plan = Plan(
            "", folder, SEED + attempt, 4, planted.nodes, 0, 1, bug, database=name, script=planted.faults, hasty=True
        )
        found = {violation.number for violation in asyncio.run(Run(plan, print, server).play()).verdict.violations}
        if {planted.breaks, *planted.also} & found:
            return
    pytest.fail(f"{bug}: only {found} was found")


def test_each_promise_has_a_planted_bug_that_breaks_it() -> None:
    assert {bug.breaks for bug in BUGS.values() if not bug.also} >= PROMISES.keys()


def test_each_fault_of_the_wire_lasts() -> None:
    assert LENGTHS.keys() <= DIRECTED
