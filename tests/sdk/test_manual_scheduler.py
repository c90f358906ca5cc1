"""The manual scheduler: virtual time for tests, with and without await."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

import mainspring
from mainspring import Mainspring, Retry, cron, every
from mainspring.errors import MainspringError
from mainspring.testing import ManualScheduler

APP = Mainspring(name="virtual")
CALLS: list[str] = []
PATIENCE_S = 20.0


@APP.job(cron("0 9 * * *"), retry=Retry(2, delay="10m"))
async def report() -> str:
    await asyncio.sleep(0)
    CALLS.append("report")
    if len(CALLS) == 1:
        raise ConnectionError("mail server down")
    return "sent"


@APP.task
def double(number: int) -> int:
    return 2 * number


@APP.job(every("1h"), name="hourly", args={"number": 4}, misfire="skip")
@APP.task
def quadruple(number: int) -> int:
    return 4 * number


def test_a_test_that_cannot_await_runs_days_of_jobs() -> None:
    CALLS.clear()
    with ManualScheduler(APP, start="2026-03-27T12:00:00Z") as scheduler:
        assert scheduler.advance("1d") == 2 + 24
        (run,) = scheduler.runs(job="report")
        assert type(run) is mainspring.Run
        assert (run.state, run.attempt, run.result) == ("succeeded", 2, "sent")
        assert run.fire_at == datetime(2026, 3, 28, 9, tzinfo=UTC)
        assert scheduler.now == datetime(2026, 3, 28, 12, tzinfo=UTC)
        (firing,) = scheduler.firings("report")
        assert (type(firing), firing.outcome) == (mainspring.Firing, "succeeded")
        assert scheduler.job("report").next_fire_at == datetime(2026, 3, 29, 9, tzinfo=UTC)
        handle = APP.sync(double.submit, 4)
        scheduler.tick()
        assert APP.sync(handle.result) == 8
        scheduler.set_time("2026-03-28T20:30:00Z")
        assert [each.outcome for each in scheduler.firings("hourly")][-1] == "missed"
    assert APP.opened is None
    with ManualScheduler(APP) as scheduler:
        assert scheduler.runs() == []  # Each block has a store of its own.


def test_what_fails_in_the_block_is_what_the_test_sees() -> None:
    with pytest.raises(ZeroDivisionError), ManualScheduler(APP):
        _ = 1 / 0
    assert APP.opened is None


async def test_a_test_that_can_await_does() -> None:
    CALLS.clear()
    async with ManualScheduler(APP, start="2026-03-27T12:00:00Z") as scheduler:
        await scheduler.advance("2d")
        assert [run.state for run in await scheduler.runs(job="report")] == ["succeeded"] * 2
        with pytest.raises(MainspringError, match="event loop"):
            ManualScheduler(APP).__enter__()


async def test_a_result_does_not_wait_for_a_run_that_is_claimed_ahead() -> None:
    async with ManualScheduler(APP) as scheduler, asyncio.timeout(PATIENCE_S):
        soon = await double.options(delay="200ms").submit(2)
        await scheduler.tick()
        now = await double.submit(1)
        await scheduler.tick()
        assert await now.result() == 2
        await scheduler.advance("1s")
        assert await soon.result() == 4
