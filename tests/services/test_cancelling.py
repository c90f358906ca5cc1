"""A run that is cancelled ends, whatever it is doing, or it has already succeeded."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import chores
import pytest
from stage import (
    FAST,
    USUAL,
    FaultyStore,
    JumpingClock,
    at_home,
    ended,
    let_others_run,
    let_pass,
    make_worker,
    turning,
    until,
    working,
)
from test_executing import is_alive

from mainspring import Mainspring, Retry, current_run
from mainspring.clock import SystemClock
from mainspring.stores.sqlite.store import SqliteStore
from sdk_work import row_of

WHY = "no longer needed"


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(concurrency=1), store, clock) as app:
        yield app


async def test_one_that_waits_in_the_queue_never_starts(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    started: list[None] = []

    @app.task
    async def work() -> None:
        started.append(None)

    handle = await work.options(delay="10s").submit()
    async with working(app, store, clock, USUAL):
        await let_pass(clock, "1s")
        assert await handle.cancel(WHY) == "cancelled"
        await let_pass(clock, "20s")
    assert started == []
    run = await row_of(handle)
    assert (run.state, run.reason, run.attempt) == ("cancelled", WHY, 0)


async def test_one_that_a_worker_holds_but_has_not_started_was_never_attempted(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    @app.task
    async def work() -> None:
        await clock.sleep(100)

    handles = await work.submit_many([{}, {}, {}])
    worker = make_worker(app, store, clock, app.settings)
    worker.claims.run_s = 0.001  # So that it claims ahead.
    await worker.claimer.turn()
    await let_others_run()
    await handles[1].cancel(WHY)
    await worker.heartbeat.turn()
    await let_others_run()
    await worker.reporter.turn()
    run = await row_of(handles[1])
    assert (run.state, run.reason, run.attempt) == ("cancelled", WHY, 0)
    assert await store.list_attempts(run.id) == []
    assert [(await row_of(handle)).state for handle in handles] == ["running", "cancelled", "running"]
    assert len(worker.claims) == 2


async def test_one_that_is_about_to_take_its_first_step_ends_as_well(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    started: list[int] = []

    @app.task
    async def work(number: int) -> None:
        started.append(number)

    first, second = await work.submit_many([{"number": 1}, {"number": 2}])
    worker = make_worker(app, store, clock, app.settings)
    await worker.claimer.turn()
    await first.cancel(WHY)
    worker.runner.stop(first.id, "cancelled", WHY)
    await let_others_run()
    await worker.reporter.turn()
    run = await row_of(first)
    assert (run.state, run.attempt, worker.runner.busy, len(worker.claims)) == ("cancelled", 0, 0, 0)
    await worker.claimer.turn()
    await let_others_run()
    await worker.reporter.turn()
    assert started == [2]
    assert (await row_of(second)).state == "succeeded"


class TestAsync:
    async def test_it_is_cancelled(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        cleaned_up: list[bool] = []

        @app.task(retry=Retry(3))
        async def work() -> None:
            try:
                await clock.sleep(1_000)
            finally:
                cleaned_up.append(current_run().cancelled)

        handle = await work.submit()
        async with working(app, store, clock, USUAL):
            await let_pass(clock, "1s")
            assert await handle.cancel(WHY) == "running"
            await let_pass(clock, "1s")
            run = await row_of(handle)
        assert (run.state, run.reason) == ("cancelled", WHY)
        assert [each.outcome for each in await store.list_attempts(run.id)] == ["cancelled"]
        assert cleaned_up == [True]

    async def test_it_is_noticed_within_a_heartbeat_where_the_hint_was_lost(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        @app.task
        async def work() -> None:
            await clock.sleep(1_000)

        handle = await work.submit()
        worker = make_worker(app, store, clock, USUAL)
        for turn in (worker.claimer.turn, worker.heartbeat.turn):
            await turn()
        await handle.cancel(WHY)
        await let_pass(clock, USUAL.claim_renew)
        await worker.heartbeat.turn()
        await let_others_run()
        await worker.reporter.turn()
        assert (await row_of(handle)).state == "cancelled"

    async def test_a_success_stands(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        @app.task
        async def work() -> str:
            try:
                await clock.sleep(1_000)
            except asyncio.CancelledError:
                return "finished nevertheless"
            return "never"

        handle = await work.submit()
        async with working(app, store, clock, USUAL):
            await let_pass(clock, "1s")
            await handle.cancel(WHY)
            await let_pass(clock, "1s")
        run = await row_of(handle)
        assert (run.state, run.result) == ("succeeded", '"finished nevertheless"')

    async def test_a_failure_ends_cancelled_and_is_never_retried(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        @app.task(retry=Retry(3))
        async def work() -> None:
            try:
                await clock.sleep(1_000)
            except asyncio.CancelledError:
                raise ValueError("could not clean up") from None

        handle = await work.submit()
        async with working(app, store, clock, USUAL):
            await let_pass(clock, "1s")
            await handle.cancel(WHY)
            await let_pass(clock, "1s")
        run = await row_of(handle)
        assert (run.state, run.reason, run.attempt) == ("cancelled", WHY, 1)

    async def test_many_changes_do_not_make_the_worker_ask_for_cancels_at_each(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        @app.task
        async def work() -> None:
            await clock.sleep(1_000)

        handle, line = await work.submit(), FaultyStore(store)
        async with working(app, line, clock, USUAL) as worker:
            await let_pass(clock, "10ms")
            for _ in range(900):
                worker.wake()
                await let_pass(clock, "1ms")
            assert line.calls["cancels"] <= 10
            await handle.cancel(WHY)
            await let_pass(clock, "150ms")
        assert (await row_of(handle)).state == "cancelled"


class TestThreads:
    """Nothing can stop a thread: it is asked, and its word is final."""

    @pytest.fixture
    async def live(self) -> Any:
        store = SqliteStore(":memory:", SystemClock(), inline=True)
        yield store
        await store.close()

    @pytest.mark.parametrize(
        ("obeys", "state", "outcome"), [(True, "cancelled", "cancelled"), (False, "succeeded", "succeeded")]
    )
    async def test_it_sees_the_request_and_may_obey(
        self, live: SqliteStore, obeys: bool, state: str, outcome: str
    ) -> None:
        app, running = Mainspring(), threading.Event()

        @app.task(retry=Retry(3))
        def work() -> str:
            run = current_run()
            running.set()
            asked = threading.Event()
            while not run.cancelled:
                asked.wait(0.002)
            if obeys:
                raise InterruptedError("as asked")
            return "done"

        with at_home(app, live, SystemClock()):
            async with working(app, live, SystemClock()):
                handle = await work.submit()
                await until(running.is_set)
                await handle.cancel(WHY)
                run = await ended(handle)
        assert run.state == state
        assert [each.outcome for each in await live.list_attempts(run.id)] == [outcome]


async def test_a_process_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    store, file = SqliteStore(":memory:", SystemClock(), inline=True), tmp_path / "pids"
    with at_home(chores.app, store, SystemClock()):
        async with working(chores.app, store, SystemClock(), FAST):
            handle = await chores.sleep_in_process.submit(str(file))
            await until(lambda: file.exists() and len(file.read_text().split()) == 2)
            pids = [int(pid) for pid in file.read_text().split()]
            await handle.cancel(WHY)
            run = await ended(handle)
    assert (run.state, run.reason) == ("cancelled", WHY)
    assert not any(is_alive(pid) for pid in pids)
    await store.close()


async def test_a_cancel_without_a_hint_is_noticed_within_a_second(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    ended_at: list[int] = []

    @app.task
    async def work() -> None:
        try:
            await clock.sleep(100)
        finally:
            ended_at.append(clock.now())

    worker = make_worker(app, FaultyStore(store), clock, USUAL)  # It is not notified of changes.
    handle = await work.submit()
    async with turning(*worker.loops):
        await let_pass(clock, "5s")
        asked_at = clock.now()
        await handle.cancel(WHY)
        await let_pass(clock, "3s")
    assert ended_at
    assert ended_at[0] - asked_at <= 1_100_000
