"""The fan-out of examples/regions: a region is lost with the leader, and nothing is lost or doubled."""

from pathlib import Path

from examples.regions.app import REGIONS
from examples.regions.scenario import play


async def test_a_region_is_lost_with_the_leader_and_the_others_go_on(tmp_path: Path) -> None:
    outcome = await play(tmp_path)
    assert outcome.verdict.ok, str(outcome.verdict)
    assert {1, 3, 5, 6, 19} <= set(outcome.verdict.judged)

    assert outcome.health[outcome.lost].depth > 0 or outcome.moved
    assert outcome.health.keys() >= set(REGIONS) - {outcome.lost}
    assert all(outcome.health[each].workers == 1 for each in REGIONS if each != outcome.lost)

    assert {run.home_region for run in outcome.moved} == {outcome.lost}
    assert "has no live worker for it within 2s" in outcome.moved[0].moved_because
    assert outcome.doubled == 0
    counts = {region: sum(rows.values()) for region, rows in outcome.firings.items()}
    assert counts.keys() == set(REGIONS)
    assert len(set(counts.values())) == 1, "each instant has one row per region"
    assert all(set(rows) == {"succeeded"} for rows in outcome.firings.values()), outcome.firings
