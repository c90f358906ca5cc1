"""No loop of a node dies or stands still without notice: planted deaths and stalls are reported, counted and mended, or
end the process."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any

import pytest
from stage import JumpingClock, let_pass, until

from mainspring import Mainspring
from mainspring.core.instants import MINUTE
from mainspring.process.eventloop import new_loop
from mainspring.process.watchdog import Watchdog
from mainspring.services.loop import Loop
from mainspring.services.node import Node
from mainspring.services.supervisor import MOST_RESTARTS, Supervisor
from mainspring.services.worker.worker import WorkerService
from mainspring.settings import Settings


class Steady(Loop):
    """Turns once a second."""

    name = "steady"

    def __init__(self, clock: JumpingClock) -> None:
        super().__init__(clock, Random(0))
        self.turns = 0

    async def turn(self) -> float:
        self.turns += 1
        return 1.0


class Mortal(Steady):
    """Dies in its third turn and a given number of times after that, outside of what a turn may raise."""

    name = "mortal"
    deaths = 1

    async def _turn_safely(self) -> float:
        delay = await super()._turn_safely()
        if self.turns >= 3 and self.deaths:
            self.deaths -= 1
            self.turned_at = 0.0  # It was no good turn.
            raise MemoryError("a planted death")
        return delay


class Stuck(Steady):
    """Hangs in its third turn; if it is `deaf`, also when it is cancelled."""

    name = "stuck"
    deaf = False

    async def turn(self) -> float:
        if await super().turn() and self.turns == 3:
            await self.wait_for_godot()
        return 1.0

    async def wait_for_godot(self) -> None:
        while True:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                if not self.deaf:
                    raise


class Watch:
    """A supervisor, and what it said."""

    def __init__(self, clock: JumpingClock, *loops: Loop) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.failures: list[str] = []
        self.supervisor = Supervisor(loops, clock, MINUTE, self._count, self.failures.append)

    def _count(self, metric: str, loop: str) -> None:
        self.counts[metric, loop] += 1


@asynccontextmanager
async def watching(clock: JumpingClock, *loops: Loop) -> AsyncIterator[Watch]:
    watch = Watch(clock, *loops)
    watch.supervisor.start()
    try:
        yield watch
    finally:
        watch.supervisor.release()
        for loop in loops:
            if isinstance(loop, Stuck):
                loop.deaf = False
        for task in watch.supervisor.tasks:
            task.cancel()
        await asyncio.gather(*watch.supervisor.tasks, return_exceptions=True)


class TestDeath:
    async def test_a_loop_that_ends_unasked_is_reported_counted_and_started_again(
        self, clock: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        loop, other = Mortal(clock), Steady(clock)
        async with watching(clock, loop, other) as watch:
            await let_pass(clock, "10s")
            assert loop.turns >= 9
            assert other.turns == 11
            assert watch.supervisor.troubles() == {}
        assert watch.counts == {("loop_restarts", "mortal"): 1}
        (record,) = [each for each in caplog.records if each.levelname == "ERROR"]
        assert "loop mortal ended without being stopped" in record.getMessage()
        assert record.exc_info
        assert not watch.failures

    async def test_it_shows_as_trouble_until_it_runs_again(self, clock: JumpingClock) -> None:
        loop = Mortal(clock)
        async with watching(clock, loop) as watch:
            await let_pass(clock, "2s")
            assert watch.supervisor.troubles() == {"mortal": "has ended"}
            await let_pass(clock, "1s")
            assert watch.supervisor.troubles() == {}

    async def test_one_that_cannot_be_kept_alive_ends_the_process(self, clock: JumpingClock) -> None:
        loop = Mortal(clock)
        loop.deaths = 1_000
        async with watching(clock, loop) as watch:
            await let_pass(clock, "5m")
            assert "node" in watch.supervisor.troubles()
        assert watch.counts["loop_restarts", "mortal"] == MOST_RESTARTS + 1
        (why,) = watch.failures
        assert "loop mortal ended 9 times in a row" in why
        assert "a planted death" in why

    async def test_one_that_was_cancelled_by_a_stranger_is_started_again(self, clock: JumpingClock) -> None:
        loop = Steady(clock)
        async with watching(clock, loop) as watch:
            await let_pass(clock, "1s")
            watch.supervisor.tasks[0].cancel()
            await let_pass(clock, "3s")
            assert loop.turns >= 4
        assert watch.counts == {("loop_restarts", "steady"): 1}

    async def test_one_that_was_stopped_is_left_alone(self, clock: JumpingClock) -> None:
        loop = Steady(clock)
        async with watching(clock, loop) as watch:
            await let_pass(clock, "1s")
            loop.stop()
            await let_pass(clock, "5m")
            assert watch.supervisor.troubles() == {}
        assert loop.turns == 2
        assert not watch.counts


class TestStall:
    async def test_a_turn_that_hangs_is_reported_with_its_place_cancelled_and_started_again(
        self, clock: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        loop = Stuck(clock)
        async with watching(clock, loop) as watch:
            await let_pass(clock, "90s")
            assert loop.turns > 3
            assert watch.supervisor.troubles() == {}
        assert watch.counts == {("loop_stalls", "stuck"): 1, ("loop_restarts", "stuck"): 1}
        assert "loop stuck has made no progress for 60 s" in caplog.text
        assert "Stuck.wait_for_godot (test_supervisor.py" in caplog.text

    async def test_one_that_cannot_be_cancelled_ends_the_process(self, clock: JumpingClock) -> None:
        loop = Stuck(clock)
        loop.deaf = True
        async with watching(clock, loop) as watch:
            await let_pass(clock, "80s")
            assert watch.supervisor.troubles()["stuck"] == "has made no progress for 70 s"
            await let_pass(clock, "2m")
        (why,) = watch.failures
        assert "loop stuck has made no progress for 120 s and cannot be cancelled" in why

    async def test_a_process_that_was_suspended_finds_nothing_stalled(self, clock: JumpingClock) -> None:
        loop = Steady(clock)
        async with watching(clock, loop) as watch:
            await let_pass(clock, "5s")
            clock.advance("1h")
            await let_pass(clock, "1m")
            assert watch.supervisor.troubles() == {}
        assert not watch.counts

    async def test_one_that_waits_long_on_purpose_is_not_stalled(self, clock: JumpingClock) -> None:
        class Rare(Steady):
            async def turn(self) -> float:
                await super().turn()
                return 600.0

        loop = Rare(clock)
        async with watching(clock, loop) as watch:
            await let_pass(clock, "30m")
        assert loop.turns == 4
        assert not watch.counts


async def test_a_node_says_which_of_its_loops_do_not_run(clock: JumpingClock, store: Any) -> None:
    failures: list[str] = []
    node = Node(store, None, _worker(store, clock), on_failed=failures.append)
    await node.start()
    try:
        await let_pass(clock, "1s")
        assert node.troubles() == {}
        node.watchdog = lambda: {"the node": "has stood still for 60 s"}
        assert node.troubles() == {"the node": "has stood still for 60 s"}
    finally:
        stopping = asyncio.create_task(node.stop(0.0))
        await let_pass(clock, "30s")
        await stopping


def _worker(store: Any, clock: JumpingClock) -> WorkerService:
    from stage import make_worker

    return make_worker(Mainspring(), store, clock, Settings())


@contextmanager
def served_loop() -> Iterator[tuple[asyncio.AbstractEventLoop, threading.Thread]]:
    loop = new_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop, thread
    if thread.is_alive():
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
    loop.close()


class TestWatchdog:
    async def test_an_event_loop_that_is_blocked_is_reported_with_its_place(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        dog, let_go = Watchdog(0.12), threading.Event()
        failures: list[str] = []

        def block_here() -> None:
            let_go.wait(20)

        with served_loop() as (loop, thread):
            dog.watch("the node", loop, thread, failures.append)
            loop.call_soon_threadsafe(block_here)
            await until(lambda: failures)
            assert "the event loop of the node has stood still" in dog.troubles()["the node"]
            let_go.set()
            dog.stop()
        assert len(failures) == 1
        assert "in block_here" in caplog.text

    async def test_a_thread_that_ends_is_reported(self) -> None:
        dog = Watchdog(0.12)
        failures: list[str] = []
        with served_loop() as (loop, thread):
            dog.watch("the API", loop, thread, failures.append)
            loop.call_soon_threadsafe(loop.stop)
            await until(lambda: failures)
            dog.stop()
        assert failures == ["the thread of the API has ended although it was not stopped"]

    async def test_what_answers_and_what_was_stopped_is_not(self) -> None:
        dog = Watchdog(0.06)
        failures: list[str] = []
        with served_loop() as (loop, thread):
            dog.watch("the API", loop, thread, failures.append)
            with served_loop() as (other, its_thread):
                dog.watch("the node", other, its_thread, failures.append)
                dog.forget("the node")
            began = time.monotonic()
            await until(lambda: time.monotonic() > began + 0.3)
            assert dog.troubles() == {}
            dog.stop()
        assert not failures
