"""`@app.task(rate="…")`, on both stores: how many runs of a task may start in a time, on all workers together."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from mainspring import Mainspring, every
from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.load.rate_limits import Pace, format_pace, parse_pace
from mainspring.errors import InvalidInput
from store_places import places

BOUND_S = 60
STARTS: list[float] = []


def make_app(url: str) -> Mainspring:
    app = Mainspring(url, name="rated", concurrency=4)

    @app.task(rate="5/2s")
    async def call() -> None:
        STARTS.append(time.monotonic())

    @app.task(rate="1/h")
    async def rare() -> None: ...

    @app.task
    async def free() -> str:
        return "free"

    return app


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    STARTS.clear()
    with places(request.param, tmp_path) as make:
        yield make()


async def test_two_workers_together_keep_the_rate(url: str) -> None:
    one, other = make_app(url), make_app(url)
    limited = await one.tasks["call"].submit_many([{}] * 12)
    began = time.monotonic()
    async with one.running(), other.running():
        ended = [await run.wait(BOUND_S) for run in limited]
    assert [(run.state, run.attempt) for run in ended] == [("succeeded", 1)] * 12
    assert len(STARTS) == 12
    assert max(STARTS) - began > 2.7, "five at once, and then one every 0.4 s"


async def test_what_has_to_wait_says_why_and_keeps_no_other_task_waiting(url: str) -> None:
    app = make_app(url)
    rare = await app.tasks["rare"].submit_many([{}] * 6)
    async with app.running():
        assert await (await app.tasks["free"].submit()).result(BOUND_S) == "free"
        async with asyncio.timeout(BOUND_S):
            while True:
                runs = [await run.status() for run in rare]
                if sorted(run.state for run in runs) == ["pending"] * 5 + ["succeeded"]:
                    break
                await asyncio.sleep(0.02)
    waiting = [run for run in runs if run.state == "pending"]
    assert any("its task starts 1/1h at most" in run.reason for run in waiting)
    assert all(run.attempt == 0 for run in waiting)


@pytest.mark.parametrize(
    ("written", "pace"),
    [
        ("10/s", Pace(10, SECOND)),
        ("1/m", Pace(1, MINUTE)),
        ("100/2h", Pace(100, 2 * HOUR)),
        (" 3 / 5m", Pace(3, 5 * MINUTE)),
    ],
)
def test_a_rate_is_a_count_in_a_time(written: str, pace: Pace) -> None:
    assert parse_pace(written, "rate") == pace
    assert parse_pace(format_pace(pace), "rate") == pace


@pytest.mark.parametrize("written", ["", "10", "10/", "0/s", "-1/s", "x/s", "1/0s", "1/x", 10])
def test_what_is_no_rate_is_refused(written: object) -> None:
    with pytest.raises(InvalidInput, match="rate"):
        Mainspring().task(rate=written)(lambda: None)  # type: ignore[call-overload]  # What is refused.


def test_a_rate_belongs_to_the_task() -> None:
    app = Mainspring()
    task = app.task(name="t", rate="1/s")(lambda: None)
    with pytest.raises(InvalidInput, match="belongs to the task"):
        app.job(every("1s"), rate="1/s")(task)
