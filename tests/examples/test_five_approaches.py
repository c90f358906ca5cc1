"""One app under five approaches: each sends every report once for each instant, though the planning node dies."""

from pathlib import Path

import pytest

from examples.five_approaches.scenario import play_all


@pytest.mark.brokers
@pytest.mark.electors
async def test_every_approach_sends_each_report_once_though_the_planning_node_dies(tmp_path: Path) -> None:
    outcomes = await play_all(tmp_path, reports=1, seconds=0, at_once=5)
    assert len(outcomes) == 5
    for outcome in outcomes:
        assert outcome.verdict.ok, f"{outcome.approach.name}: {outcome.verdict}"
        assert {1, 2, 4, 5, 6, 19} <= set(outcome.verdict.judged)
        assert set(outcome.runs) == outcome.instants, outcome.approach.name
        assert set(outcome.runs.values()) == {1}, outcome.approach.name
