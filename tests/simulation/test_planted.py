"""The test of the tests: each bug that is planted on purpose is found, and by the invariant that it breaks."""

import pytest

from mainspring.testing.checking import INVARIANTS
from mainspring.testing.simulation import run_scenario
from mainspring.testing.simulation.bugs.planted import PLANTED, InQuery


@pytest.mark.parametrize("name", PLANTED)
def test_the_simulator_finds_that(name: str) -> None:
    bug = PLANTED[name]

    for scenario in bug.scenarios():
        result = run_scenario(scenario, bug=name)
        # Else the mistake no longer fits the program, and what is found is that it fails.
        assert not [error for error in result.errors if "TypeError" in error or "AttributeError" in error]
        if bug.breaks in result.signature:
            return
    pytest.fail(f"{name}: not found")


def test_every_invariant_has_a_bug_that_breaks_it() -> None:
    assert {invariant.number for invariant in INVARIANTS} - {bug.breaks for bug in PLANTED.values()} == set()


def test_a_bug_that_can_no_longer_be_planted_is_noticed() -> None:
    gone = InQuery("work", "take", "no such words", "others")

    with pytest.raises(LookupError, match="plant this bug elsewhere"), gone.in_place():
        pass
