"""What a task says by raising: again in a while, or never again."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from mainspring import Abort, Mainspring, Retry, RetryIn
from mainspring.testing import ManualScheduler

APP = Mainspring(name="outcomes")


class NoSuchCustomer(Abort):
    """A subclass is meant, too."""


@APP.task(retry=Retry(2, on=ConnectionError))
async def wait_for_file(delay: str) -> None:
    raise RetryIn(delay, "the file is not there yet")


@APP.task(isolation="process", retry=Retry(1))
def wait_in_a_process() -> None:
    raise RetryIn(90)


@APP.task(retry=Retry(5))
def charge(customer: str) -> None:
    raise NoSuchCustomer(f"there is no customer {customer}")


@pytest.fixture
async def scheduler() -> AsyncIterator[ManualScheduler]:
    async with ManualScheduler(APP) as scheduler:
        yield scheduler


async def test_a_task_asks_for_another_attempt_after_a_delay_of_its_own(scheduler: ManualScheduler) -> None:
    handle = await wait_for_file.submit("2h")
    assert await scheduler.tick() == 1
    run = await handle.status()
    assert (run.state, run.attempt) == ("pending", 1)
    assert "RetryIn: the file is not there yet; retry 1 of 2 in 2h" in run.reason
    assert await scheduler.advance("1h59m59s") == 0
    assert await scheduler.advance("1s") == 1
    assert await scheduler.advance("3h") == 1
    run = await handle.status()
    assert (run.state, run.attempt) == ("failed", 3)
    assert "all retries are used up (2)" in run.reason


async def test_so_does_one_in_a_process(scheduler: ManualScheduler) -> None:
    handle = await wait_in_a_process.submit()
    await scheduler.tick()
    assert "again in 90; retry 1 of 1 in 90s" in (await handle.status()).reason.replace("1m30s", "90s")
    assert await scheduler.advance("89s") == 0
    assert await scheduler.advance("1s") == 1


async def test_a_delay_that_cannot_be_read_is_a_failure_like_any_other(scheduler: ManualScheduler) -> None:
    handle = await wait_for_file.submit("soon")
    await scheduler.tick()
    run = await handle.status()
    assert run.state == "failed"
    assert "'soon'" in run.reason


async def test_a_task_fails_its_run_for_good(scheduler: ManualScheduler) -> None:
    handle = await charge.submit("ada")
    await scheduler.advance("1d")
    run = await handle.status()
    assert (run.state, run.attempt) == ("failed", 1)
    assert "there is no customer ada; the task asked not to be retried" in run.reason
