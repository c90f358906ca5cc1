"""A failing seed is made smaller, and replayed by one command."""

from mainspring.testing.simulation import Scenario, command_of, run_scenario, shrink

BUG = "an instant is passed over"


def test_a_failing_scenario_shrinks_to_one_that_fails_alike() -> None:
    failed = run_scenario(Scenario(0, "chaos", 1.0), bug=BUG)

    *_, smallest = shrink(failed, bug=BUG)

    assert 1 in smallest.signature
    assert smallest.scenario.nodes == smallest.scenario.workers == 1
    assert "lost_reply" in smallest.scenario.without
    assert run_scenario(smallest.scenario, bug=BUG).history == smallest.history


def test_the_command_names_all_that_is_special() -> None:
    assert command_of(Scenario(7)) == "mainspring simulate --seed 7 --profile chaos"
    small = Scenario(7, "time", 2.5, 1, 2, ("crash", "pause"))
    assert command_of(small) == (
        "mainspring simulate --seed 7 --profile time --minutes 2.5 --nodes 1 --workers 2 --without crash,pause"
    )
