"""The forecast of the fleet: load by the minute, what does not fit, what to move, and the command."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli_work import Terminal
from mainspring.cli.views.ahead import MOST_FIRES, continued
from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.ops.forecast import Plan, forecast_load

plans = st.lists(
    st.builds(
        Plan,
        st.sampled_from("abcdef"),
        st.lists(st.integers(0, HOUR - 1), max_size=20).map(lambda times: tuple(sorted(times))),
        st.floats(0, 300),
        st.integers(1, 10),
    ),
    max_size=6,
)


def test_what_fits_is_no_jam() -> None:
    seen = forecast_load([Plan("a", (0,), 60.0)], 1, 0, HOUR)
    assert (seen.runs, seen.jams, seen.moves) == (1, [], [])


def test_what_does_not_fit_is_late_until_it_is_done() -> None:
    seen = forecast_load([Plan("small", (0,), 30.0), Plan("large", (10 * SECOND,), 150.0)], 1, 0, HOUR)
    (jam,) = seen.jams
    assert (jam.begin, jam.end, jam.late_s) == (0, 2 * MINUTE, 120.0)
    assert jam.jobs == ["large", "small"]


def test_the_least_important_job_moves_to_the_nearest_room() -> None:
    urgent, lazy = Plan("urgent", (0,), 60.0, priority=1), Plan("lazy", (0,), 60.0, priority=9)
    full = Plan("full", (MINUTE,), 30.0, priority=1)
    (move,) = forecast_load([urgent, lazy, full], 1, 0, HOUR).moves
    assert (move.job, move.at, move.to) == ("lazy", 0, 2 * MINUTE)


@given(plans, st.integers(1, 5))
def test_moves_never_fill_a_minute_that_was_not_full(found: list[Plan], places: int) -> None:
    seen = forecast_load(found, places, 0, HOUR)
    assert seen.runs == sum(len(plan.fire_at) for plan in found)
    assert all(move.at < move.to < HOUR for move in seen.moves)
    full = {load.at for load in seen.load if load.busy > places}
    assert all(move.at in full and move.to not in full for move in seen.moves)


def test_a_frequent_job_goes_on_at_its_pace() -> None:
    times = continued([index * SECOND for index in range(MOST_FIRES)], HOUR)
    assert len(times) == 3_600
    assert continued([0, 5], HOUR) == [0, 5]


@pytest.fixture
def cli(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Terminal:
    return Terminal(tmp_path, monkeypatch, capsys)


def test_the_command_names_what_does_not_fit_and_where_it_would(cli: Terminal) -> None:
    for name in ("first", "second"):
        cli("job", "add", name, "--cron", "30 * * * *", "--command", "true")
    cli("job", "add", "resting", "--cron", "* * * * *", "--command", "true")
    cli("job", "pause", "resting", "--yes")
    words = ("forecast", "--for", "3h", "--places", "1", "--run-time", "50s")
    answer = cli(*words, "--json").json
    assert answer["runs"] == 6
    assert [sorted(jam["jobs"]) for jam in answer["jams"]] == [["first", "second"]] * 3
    assert len(answer["moves"]) >= 2  # The last may have no room before the end.
    shown = cli(*words).out
    assert "Where it does not fit" in shown
    assert "What would fit elsewhere" in shown
    assert "fits into 2 places" in cli("forecast", "--for", "3h", "--places", "2", "--run-time", "50s").out
