"""A worker stops: nothing new begins, what runs may finish, what does not is given back, and it takes no longer than
it may."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import chores
import pytest
from stage import STEADY, USUAL, FaultyStore, JumpingClock, at_home, let_others_run, let_pass, until, working
from test_executing import is_alive

from mainspring import Mainspring, current_run
from mainspring.clock import SystemClock
from mainspring.core.instants import SECOND
from mainspring.services.worker.worker import ENDING_S, PARTING_S, WorkerService
from mainspring.stores.sqlite.store import SqliteStore
from sdk_work import row_of

GRACE_S = USUAL.drain_grace / SECOND


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(concurrency=2), store, clock) as app:
        yield app


@pytest.fixture
def line(store: Any) -> FaultyStore:
    return FaultyStore(store)


@asynccontextmanager
async def draining(
    worker: WorkerService, clock: JumpingClock, grace_s: float | None = None
) -> AsyncIterator[Callable[[], bool]]:
    """A worker that drains; whether it has ended."""
    task = asyncio.create_task(worker.drain(grace_s))
    await let_others_run()
    yield task.done
    if task.done():
        task.result()
    task.cancel()


def sleeper(app: Mainspring, clock: JumpingClock) -> Any:
    @app.task
    async def sleep(seconds: float) -> str:
        await clock.sleep(seconds)
        return "done"

    return sleep


async def test_what_runs_may_finish(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    handle = await sleeper(app, clock).submit(20)
    async with working(app, store, clock, app.settings) as worker:
        await let_pass(clock, "1s")
        async with draining(worker, clock) as has_ended:
            await let_pass(clock, "18s")
            assert not has_ended()
            await let_pass(clock, "2s")
            assert has_ended()
    assert (await row_of(handle)).state == "succeeded"
    assert [row.state for row in await store.list_workers("default")] == ["stopped"]


async def test_nothing_new_is_claimed(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    sleep = sleeper(app, clock)
    await sleep.submit(20)
    async with working(app, store, clock, app.settings) as worker:
        await let_pass(clock, "1s")
        async with draining(worker, clock):
            assert [row.state for row in await store.list_workers("default")] == ["draining"]
            late = await sleep.submit(1)
            await let_pass(clock, "30s")
    run = await row_of(late)
    assert (run.state, run.token) == ("pending", 0)


async def test_what_waits_for_room_is_given_back_at_once(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    handles = await sleeper(app, clock).submit_many([{"seconds": 20}] * 10)
    async with working(app, store, clock, app.settings) as worker:
        worker.claims.run_s = 0.001  # So that it claims ahead.
        await let_others_run()
        assert len(worker.claims) == 10
        async with draining(worker, clock):
            runs = [await row_of(handle) for handle in handles]
            assert sorted(run.state for run in runs) == ["pending"] * 8 + ["running"] * 2
            assert {run.attempt for run in runs} == {0}
            await let_pass(clock, "21s")
    assert sorted([(await row_of(handle)).state for handle in handles]) == ["pending"] * 8 + ["succeeded"] * 2


async def test_a_claim_that_was_on_its_way_is_given_back(
    store: Any, app: Mainspring, line: FaultyStore, clock: JumpingClock
) -> None:
    sleep = sleeper(app, clock)
    async with working(app, line, clock, app.settings) as worker:
        await let_others_run()
        line.hold_reply("claim")
        handle = await sleep.submit(1)
        await let_others_run()
        assert (await row_of(handle)).state == "running"
        async with draining(worker, clock) as has_ended:
            line.let_through()
            await let_pass(clock, "1s")
            assert (await row_of(handle)).state == "pending"
            assert has_ended()


async def test_what_does_not_finish_within_the_grace_is_stopped_and_given_back(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    stopped: list[float] = []

    @app.task
    async def work() -> None:
        try:
            await clock.sleep(1_000)
        finally:
            stopped.append(clock.monotonic())

    handle = await work.submit()
    async with working(app, store, clock, app.settings) as worker:
        await let_others_run()
        async with draining(worker, clock) as has_ended:
            await let_pass(clock, "31s")
            assert has_ended()
    run = await row_of(handle)
    assert (run.state, run.attempt, run.reason) == ("pending", 0, "handed back by worker-1")
    assert stopped == pytest.approx([GRACE_S], abs=0.1)


async def test_the_grace_can_be_none(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    handle = await sleeper(app, clock).submit(1_000)
    async with working(app, store, clock, app.settings) as worker:
        await let_others_run()
        async with draining(worker, clock, 0.0) as has_ended:
            await let_pass(clock, "500ms")
            assert has_ended()
    assert (await row_of(handle)).state == "pending"


async def test_a_drain_that_was_interrupted_can_be_hurried(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    handle = await sleeper(app, clock).submit(1_000)
    async with working(app, store, clock, app.settings) as worker:
        await let_others_run()
        async with draining(worker, clock):
            await let_pass(clock, "1s")
        async with draining(worker, clock, 0.0) as has_ended:
            await let_pass(clock, "500ms")
            assert has_ended()
    assert (await row_of(handle)).state == "pending"


async def test_the_last_output_of_a_run_is_stored(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    @app.task
    async def work() -> None:
        try:
            await clock.sleep(1_000)
        finally:
            current_run().log("last words")

    handle = await work.submit()
    async with working(app, store, clock, app.settings) as worker:
        await let_others_run()
        async with draining(worker, clock, 0.0) as has_ended:
            await let_pass(clock, "500ms")
            assert has_ended()
    assert [entry.text for _, entry in await store.list_logs(handle.id)] == ["last words"]


async def test_what_is_being_cancelled_ends_cancelled(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    handle = await sleeper(app, clock).submit(1_000)
    async with working(app, store, clock, app.settings) as worker:
        await let_others_run()
        await handle.cancel("enough")
        async with draining(worker, clock, 0.0):
            await let_pass(clock, "5s")
    run = await row_of(handle)
    assert (run.state, run.reason) == ("cancelled", "enough")


class TestTrouble:
    @pytest.mark.parametrize("fault", ["cut", "hold"])
    async def test_a_store_that_cannot_be_reached_does_not_hold_it_up_for_ever(
        self, app: Mainspring, line: FaultyStore, clock: JumpingClock, fault: str
    ) -> None:
        await sleeper(app, clock).submit(1_000)
        async with working(app, line, clock, app.settings) as worker:
            await let_others_run()
            line.is_cut = fault == "cut"
            for method in ("register", "hand_back", "report", "renew", "claim", "cancels", "record", "next_due"):
                line.hold_request(method, 1_000)
            async with draining(worker, clock) as has_ended:
                await let_pass(clock, round((GRACE_S + ENDING_S + 3 * PARTING_S + 1) * SECOND))
                assert has_ended()

    async def test_a_store_that_comes_back_hears_the_results(
        self, app: Mainspring, line: FaultyStore, clock: JumpingClock
    ) -> None:
        handle = await sleeper(app, clock).submit(2)
        async with working(app, line, clock, app.settings) as worker:
            await let_pass(clock, "1s")
            line.is_cut = True
            async with draining(worker, clock) as has_ended:
                await let_pass(clock, "6s")
                line.is_cut = False
                await let_pass(clock, "6s")
                assert has_ended()
        assert (await row_of(handle)).state == "succeeded"

    @pytest.mark.parametrize("lost", ["lose_request", "lose_reply"])
    async def test_a_lost_hand_back_is_repeated(
        self, app: Mainspring, line: FaultyStore, clock: JumpingClock, lost: str
    ) -> None:
        handle = await sleeper(app, clock).submit(1_000)
        async with working(app, line, clock, app.settings) as worker:
            await let_others_run()
            getattr(line, lost)("hand_back")
            async with draining(worker, clock, 0.0) as has_ended:
                await let_pass(clock, "500ms")
                assert has_ended()
        run = await row_of(handle)
        assert (run.state, run.attempt) == ("pending", 0)

    async def test_work_that_ignores_its_cancellation_is_given_back_as_it_is(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        stubborn = True

        @app.task
        async def work() -> None:
            while stubborn:
                with suppress(asyncio.CancelledError):
                    await clock.sleep(1_000)

        handle = await work.submit()
        async with working(app, store, clock, app.settings) as worker:
            await let_others_run()
            async with draining(worker, clock, 0.0) as has_ended:
                await let_pass(clock, round((ENDING_S + 1) * SECOND))
                assert has_ended()
        assert (await row_of(handle)).state == "pending"
        stubborn = False

    async def test_a_process_has_ended_before_its_run_is_given_back(self, tmp_path: Path) -> None:
        store, file = SqliteStore(":memory:", SystemClock(), inline=True), tmp_path / "pids"
        with at_home(chores.app, store, SystemClock()):
            async with working(chores.app, store, SystemClock(), STEADY) as worker:
                handle = await chores.hang_with_family.submit(str(file))
                await until(lambda: file.exists() and len(file.read_text().split()) == 2)
                pid = int(file.read_text().split()[0])
                drain = asyncio.create_task(worker.drain(0.0))

                async def is_given_back() -> bool:
                    return (await row_of(handle)).state == "pending"

                await until(is_given_back)
                assert not is_alive(pid)
                await drain
        await store.close()


async def test_a_worker_that_is_asked_through_the_store_drains_and_stops(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    sleep = sleeper(app, clock)
    handle = await sleep.submit(20)
    async with working(app, store, clock, app.settings) as worker:
        await let_pass(clock, "1s")
        await store.request_drain("default", worker.row.id)
        await let_pass(clock, app.settings.claim_renew)
        assert [row.state for row in await store.list_workers("default")] == ["draining"]
        late = await sleep.submit(1)
        await let_pass(clock, "20s")
        assert [row.state for row in await store.list_workers("default")] == ["stopped"]
        assert all(loop.stopping for loop in worker.loops)
        await worker.drain()  # When the rest of its process ends, nothing is left to do.
    assert (await row_of(handle)).state == "succeeded"
    assert (await row_of(late)).token == 0


async def test_an_idle_worker_hears_that_it_is_asked(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    async with working(app, store, clock, app.settings) as worker:
        await store.request_drain("default", worker.row.id)
        await let_pass(clock, app.settings.claim_renew)
        await let_pass(clock, "1s")
        assert [row.state for row in await store.list_workers("default")] == ["stopped"]


async def test_what_does_not_end_keeps_its_claim_while_the_process_goes_on(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    may_end = asyncio.Event()

    @app.task
    async def stubborn() -> str:
        while not may_end.is_set():
            with suppress(asyncio.CancelledError):
                await may_end.wait()
        return "done"

    handle = await stubborn.submit()
    async with working(app, store, clock, app.settings) as worker:
        await let_pass(clock, "1s")
        await store.request_drain("default", worker.row.id)
        await let_pass(clock, app.settings.claim_renew)
        await let_pass(clock, int((GRACE_S + 2 * ENDING_S) * SECOND))
        await let_pass(clock, app.settings.claim_ttl)
        run = await row_of(handle)
        states = [row.state for row in await store.list_workers("default")]
        may_end.set()  # Whatever holds by now: the task would outlive a failed test.
        assert (run.state, run.worker, run.token, states) == ("running", worker.row.id, 1, ["draining"])
        await let_pass(clock, "1s")
        assert [row.state for row in await store.list_workers("default")] == ["stopped"]
