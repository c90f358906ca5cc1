"""Every promise is kept in every kind of weather. The seeds are the same each time: two of each profile, and as many
more as fit the time. `make thorough` gives them five minutes; `mainspring simulate` runs as many as one likes."""

import os
import time
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait

import pytest

from mainspring.testing.simulation import Report, Result, Scenario, command_of, run_scenario
from mainspring.testing.simulation.faults import CALLS, PROFILES

SECONDS = float(os.environ.get("MAINSPRING_SIMULATE_SECONDS", "10"))
FIRST_SEED = 1
LEAST = 2
"""At least this many seeds of each profile are run, however long that takes."""
MINUTES = 3.0
CORES = 2
USUAL = (*CALLS, "crash", "pause", "partition", "run lost", "run retried", "takeover", "report repeated", "work fenced")


def scenarios() -> Iterator[Scenario]:
    """Always the same ones, in the same order: one of each profile, then again."""
    seed = FIRST_SEED
    while True:
        for profile in PROFILES:
            yield Scenario(seed, profile, MINUTES)
        seed += 1


def play() -> Iterator[Result]:
    """At least the first of each profile, then more until the time is up; those under way are waited for."""
    until = time.monotonic() + SECONDS
    least, upcoming = len(PROFILES) * LEAST, scenarios()
    with ProcessPoolExecutor(CORES) as pool:
        running: set[Future[Result]] = set()
        begun = 0
        while running or begun < least:
            while len(running) < CORES and (begun < least or time.monotonic() < until):
                running.add(pool.submit(run_scenario, next(upcoming), keep=False))
                begun += 1
            done, running = wait(running, return_when=FIRST_COMPLETED)
            yield from (future.result() for future in done)


def test_every_promise_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    report = Report(play())
    with capsys.disabled():
        print(f" [{report.seeds} seeds, {report.virtual_seconds / 3600:.1f} virtual hours] ", end="")

    assert report.seeds >= len(PROFILES) * LEAST
    assert report.failed == [], "\n".join([str(report), *(command_of(each.scenario) for each in report.failed)])
    assert [name for name in USUAL if not report.sometimes[name]] == []


def test_nearly_every_invariant_is_judged() -> None:
    result = run_scenario(Scenario(1, "chaos", 1.0), keep=False)

    assert result.ok, str(result.verdict)
    assert len(result.verdict.judged) >= 20


def test_in_calm_weather_no_claim_is_lost() -> None:
    result = run_scenario(Scenario(2, "calm", 1.0))

    assert result.ok, str(result.verdict)
    assert not {record.outcome for record in result.history if record.what in ("claim", "report", "fire")} - {"ok"}
    assert result.sometimes["run lost"] == 0
