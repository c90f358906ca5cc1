"""The simulator: the real program, several processes of it, in a virtual world where everything fails.

`run_seed(seed, profile)` plays one seed to the verdict of the checker, `run_scenarios` many on all cores.
"""

from mainspring.testing.simulation.runner import Result, command_of, run_scenario, run_scenarios, run_seed, shrink
from mainspring.testing.simulation.world import Scenario

__all__ = ["Result", "Scenario", "command_of", "run_scenario", "run_scenarios", "run_seed", "shrink"]
