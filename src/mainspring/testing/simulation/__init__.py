"""The simulator: the real program, several processes of it, in a virtual world where everything fails.

`simulate` plays seeds on all cores, each to the verdict of the checker, and reports. `run_scenario` plays one and gives
all of it, with its history.
"""

from __future__ import annotations

from collections.abc import Iterable

from mainspring.testing.simulation.report import Report
from mainspring.testing.simulation.runner import Result, command_of, run_scenario, run_scenarios, shrink
from mainspring.testing.simulation.scenario import Scenario

__all__ = ["Report", "Result", "Scenario", "command_of", "run_scenario", "run_scenarios", "shrink", "simulate"]


def simulate(
    seeds: int | Iterable[int] = 20,
    *,
    profile: str = "chaos",
    minutes: float = 10.0,
    nodes: int = 3,
    workers: int = 4,
    without: Iterable[str] = (),
    jobs: int | None = None,
) -> Report:
    """Run the scheduler through a virtual world where everything fails, once per seed, and check what it did.

    `seeds` is how many (from 0 on), or which: `[17]` replays one. `profile` is the weather, `minutes` how long each
    world turns in virtual time, `without` names faults that do not happen, `jobs` how many processes share the work
    (None: one per core). The same seed gives the same history, whatever the rest of the batch. InvalidInput for a
    profile or fault that does not exist.
    """
    chosen = range(seeds) if isinstance(seeds, int) else seeds
    spared = tuple(sorted(set(without)))
    scenarios = [Scenario(seed, profile, minutes, nodes, workers, spared) for seed in chosen]
    return Report(run_scenarios(scenarios, jobs=jobs))
