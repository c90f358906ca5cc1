"""A worker ends a run at its total timeout: in an attempt, between two, and before one begins."""

from __future__ import annotations

import asyncio
from datetime import datetime

from stage import START, STEADY, JumpingClock, at_home, ended, let_pass, working

from mainspring import Mainspring, Retry, current_run
from mainspring.core.instants import MILLISECOND, MINUTE, to_datetime
from mainspring.core.model import RunOptions
from mainspring.executors.function import needs_process
from mainspring.stores.sqlite.store import SqliteStore


async def test_an_attempt_is_ended_when_the_time_of_all_is_over(store: SqliteStore, clock: JumpingClock) -> None:
    app, deadlines = Mainspring(), list[datetime | None]()

    @app.task(retry=Retry(9, delay="1s", jitter=0), timeout="1m", total_timeout="1m100ms")
    async def unlucky() -> None:
        deadlines.append(current_run().deadline)
        if len(deadlines) == 1:
            raise ConnectionError("no network")
        await asyncio.sleep(60)

    with at_home(app, store, clock):
        handle = await unlucky.submit()
        async with working(app, store, clock, STEADY):
            await let_pass(clock, "500ms")
            clock.jump("59s")
            await let_pass(clock, "500ms")
            run = await ended(handle)
    end = START + MINUTE + 100 * MILLISECOND
    assert deadlines == [to_datetime(START + MINUTE), to_datetime(end)], "100 ms are left for the second attempt"
    assert (run.state, run.attempt) == ("failed", 2)
    assert run.reason == "TimeoutError: not done within its total timeout of 1m100ms"
    assert [each.outcome for each in await store.list_attempts(run.id)] == ["failed", "timed_out"]


async def test_a_run_does_not_wait_for_a_retry_that_would_come_too_late(
    store: SqliteStore, clock: JumpingClock
) -> None:
    app, begun = Mainspring(), list[int]()

    @app.task(retry=Retry(9, delays=["10s", "30s"], jitter=0), total_timeout="40s")
    async def unlucky() -> None:
        begun.append(current_run().attempt)
        raise ConnectionError("no network")

    with at_home(app, store, clock):
        handle = await unlucky.submit()
        async with working(app, store, clock, STEADY):
            await let_pass(clock, "11s")
            run = await ended(handle)
    assert begun == [1, 2], "the third would begin at 40 s or later"
    assert run.state == "failed"
    assert run.reason == "ConnectionError: no network; its total timeout of 40s leaves no time for a retry"


async def test_a_run_that_a_worker_takes_too_late_is_not_executed_and_a_repetition_has_its_time_anew(
    store: SqliteStore, clock: JumpingClock
) -> None:
    app, begun = Mainspring(), list[int]()

    @app.task(total_timeout="40s")
    async def work() -> None:
        begun.append(current_run().attempt)

    with at_home(app, store, clock):
        handle = await work.submit()
        clock.advance(40_000_000)
        async with working(app, store, clock, STEADY):
            run = await ended(handle)
            assert (run.state, begun) == ("failed", [])
            assert run.reason == "TimeoutError: not done within its total timeout of 40s"
            again = app.runs.handle((await app.runs.retry(handle.id)).run_id, work)
            assert ((await ended(again)).state, begun) == ("succeeded", [1])


async def test_the_declaration_of_a_task_bounds_a_run_that_was_submitted_by_name(
    store: SqliteStore, clock: JumpingClock
) -> None:
    app, other = Mainspring(), Mainspring()

    @app.task(retry=Retry(9, delays=["10s", "30s"], jitter=0), total_timeout="40s")
    async def unlucky() -> None:
        raise ConnectionError("no network")

    with at_home(app, store, clock), at_home(other, store, clock):
        submitted = await other.runs.submit("unlucky")
        async with working(app, store, clock, STEADY):
            await let_pass(clock, "11s")
            run = await ended(other.runs.handle(submitted.run_id))
    assert (run.state, run.attempt) == ("failed", 2)
    assert "its total timeout of 40s leaves no time" in run.reason


def test_a_sync_function_with_a_total_timeout_needs_a_process_that_can_be_stopped() -> None:
    app = Mainspring()

    def work() -> None: ...

    task = app.task(work)
    assert not needs_process(task, RunOptions())
    assert needs_process(task, RunOptions(total_timeout=MINUTE))
    assert needs_process(app.task(name="other", total_timeout="1m")(work), RunOptions())
