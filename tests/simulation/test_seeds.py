"""A few seeds of each kind of weather keep every promise; `mainspring simulate` runs as many as one likes."""

from collections import Counter

import pytest

from mainspring.testing.simulation import Scenario, run_scenario
from mainspring.testing.simulation.faults import CALLS, PROFILES

SEEN = Counter[str]()


@pytest.mark.parametrize("profile", PROFILES)
def test_every_promise_is_kept_in(profile: str) -> None:
    result = run_scenario(Scenario(1, profile, 2.0), keep=False)
    SEEN.update(result.sometimes)

    assert result.errors == []
    assert result.verdict.ok, str(result.verdict)
    assert len(result.verdict.judged) >= 20


def test_bad_weather_really_was_bad() -> None:
    """Runs after the others, on what they saw."""
    usual = (*CALLS, "crash", "pause", "partition", "run lost", "run retried", "takeover", "report repeated")

    assert [name for name in usual if not SEEN[name]] == []


def test_in_calm_weather_no_claim_is_lost() -> None:
    result = run_scenario(Scenario(2, "calm", 1.0))

    assert result.ok, str(result.verdict)
    assert not {record.outcome for record in result.history if record.what in ("claim", "report", "fire")} - {"ok"}
    assert result.sometimes["run lost"] == 0
