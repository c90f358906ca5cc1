"""From the end of an attempt to the store: every result accepted once, everything written while it can be read."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import chores
import pytest
from stage import (
    USUAL,
    FaultyStore,
    JumpingClock,
    at_home,
    ended,
    let_others_run,
    let_pass,
    make_worker,
    until,
    working,
)

from mainspring import Mainspring, Retry, current_run
from mainspring.clock import SystemClock
from mainspring.services.worker.reporter import OUTPUT_S
from mainspring.services.worker.runner import MOST_LINES
from mainspring.stores.sqlite.store import SqliteStore
from sdk_work import row_of


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(), store, clock) as app:
        yield app


@pytest.fixture
def line(store: Any) -> FaultyStore:
    return FaultyStore(store)


async def texts(store: Any, run_id: str) -> list[str]:
    return [line.text for _, line in await store.list_logs(run_id, limit=100_000)]


class TestResults:
    async def test_a_lone_result_is_reported_without_waiting_for_others(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        @app.task
        async def work() -> int:
            return 1

        handle = await work.submit()
        async with working(app, store, clock, USUAL):
            await let_others_run()
            assert (await row_of(handle)).state == "succeeded", "not a microsecond has passed"

    async def test_results_that_come_together_are_reported_together(
        self, app: Mainspring, line: FaultyStore, clock: JumpingClock
    ) -> None:
        @app.task
        async def work(number: int) -> None:
            await clock.sleep(number / 1_000)

        await work.submit_many([{"number": number} for number in (1, 2, 3, 4, 10_000)])
        async with working(app, line, clock, USUAL):
            await let_pass(clock, "1s")
        assert line.calls["report"] == 1

    @pytest.mark.parametrize("lost", ["lose_request", "lose_reply"])
    async def test_a_lost_word_is_repeated_until_it_is_acknowledged(
        self, store: Any, app: Mainspring, line: FaultyStore, clock: JumpingClock, lost: str
    ) -> None:
        @app.task(retry=Retry(1, delay="1s"))
        async def work(number: int) -> int:
            if number % 2 and current_run().attempt == 1:
                raise ValueError("once")
            return number

        handles = await work.submit_many([{"number": number} for number in range(10)])
        getattr(line, lost)("report", 5)
        async with working(app, line, clock, USUAL) as worker:
            await let_pass(clock, "10s")
            assert len(worker.claims) == 0
            assert worker.reporter.idle
        runs = [await row_of(handle) for handle in handles]
        assert [(run.state, run.result) for run in runs] == [("succeeded", str(number)) for number in range(10)]
        assert [run.attempt for run in runs] == [1, 2] * 5

    async def test_results_of_an_outage_are_reported_after_it(
        self, app: Mainspring, line: FaultyStore, clock: JumpingClock
    ) -> None:
        @app.task
        async def work() -> None:
            await clock.sleep(2)

        handles = await work.submit_many([{}] * 5)
        async with working(app, line, clock, USUAL):
            await let_pass(clock, "1s")
            line.is_cut = True
            await let_pass(clock, "5s")
            line.is_cut = False
            await let_pass(clock, "6s")
        assert {(await row_of(handle)).state for handle in handles} == {"succeeded"}


class TestOutput:
    async def test_it_can_be_read_while_the_run_goes_on(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        @app.task
        async def work() -> None:
            run = current_run()
            for step in range(1, 5):
                await clock.sleep(1)
                run.log(f"step {step}")
                run.progress(step / 4, f"{step} of 4")
            await clock.sleep(100)

        async with working(app, store, clock, USUAL):
            await let_pass(clock, "10s")  # The reporter has gone to sleep.
            handle = await work.submit()
            await let_pass(clock, "2s")
            await let_pass(clock, f"{OUTPUT_S}s")
            run = await row_of(handle)
            assert (run.state, run.progress, run.progress_note) == ("running", 0.5, "2 of 4")
            assert await texts(store, run.id) == ["step 1", "step 2"]

    async def test_a_reader_of_the_end_of_a_run_sees_all_that_it_wrote(
        self, store: Any, app: Mainspring, line: FaultyStore, clock: JumpingClock
    ) -> None:
        @app.task
        async def work() -> None:
            await clock.sleep(1)
            for number in range(2_000):
                current_run().log(str(number))

        handle = await work.submit()
        async with working(app, line, clock, USUAL):
            line.hold_request("record", 100)
            await let_pass(clock, "1500ms")
            while (await row_of(handle)).state == "running":
                line.let_through()
                await let_others_run()
            assert (await row_of(handle)).state == "succeeded"
            assert await texts(store, handle.id) == [str(number) for number in range(2_000)]

    async def test_what_could_not_be_stored_is_stored_later_and_in_order(
        self, store: Any, app: Mainspring, line: FaultyStore, clock: JumpingClock
    ) -> None:
        @app.task
        async def work() -> None:
            for number in range(20):
                current_run().log(str(number))
                current_run().progress(number / 20)
                await clock.sleep(0.5)
            await clock.sleep(100)

        handle = await work.submit()
        async with working(app, line, clock, USUAL):
            for _ in range(4):
                line.hold_request("record")
                await let_pass(clock, "2s")
                line.is_cut = True
                line.let_through()
                await let_pass(clock, "500ms")
                line.is_cut = False
                await let_pass(clock, "500ms")
        assert await texts(store, handle.id) == [str(number) for number in range(20)]
        assert (await row_of(handle)).progress == 0.95

    async def test_each_attempt_has_its_own(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        @app.task(retry=Retry(1, delay="1s"))
        async def work() -> None:
            current_run().log("hello")
            raise ValueError("no")

        handle = await work.submit()
        async with working(app, store, clock, USUAL):
            await let_pass(clock, "3s")
        assert [entry.attempt for _, entry in await store.list_logs(handle.id)] == [1, 2]


class TestFloods:
    @pytest.fixture
    async def live(self) -> AsyncIterator[FaultyStore]:
        store = SqliteStore(":memory:", SystemClock(), inline=True)
        yield FaultyStore(store)
        await store.close()

    async def test_a_program_that_writes_without_end_waits_for_the_store(self, live: FaultyStore) -> None:
        live.hold_request("record")
        with at_home(chores.app, live, SystemClock()):
            async with working(chores.app, live, SystemClock(), USUAL) as worker:
                handle = await chores.app.submit("command", {"argv": ["yes"]}, retry=chores.ONCE)
                await until(lambda: live.calls["record"] and len(worker.runner.lines) > MOST_LINES)
                before = len(worker.runner.lines)
                for _ in range(100):
                    await asyncio.sleep(0.001)
                assert len(worker.runner.lines) == before < 10 * MOST_LINES
                live.let_through()
                await handle.cancel()
                assert (await ended(handle)).state == "cancelled"


async def test_a_drained_worker_has_reported_everything(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    @app.task
    async def work() -> None:
        current_run().log("hello")

    handle = await work.submit()
    worker = make_worker(app, store, clock, USUAL)
    await worker.claimer.turn()
    await let_others_run()
    assert not worker.reporter.idle
    await worker.reporter.turn()
    assert worker.reporter.idle
    assert await texts(store, handle.id) == ["hello"]
