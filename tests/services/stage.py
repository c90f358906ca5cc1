"""What the tests of the services share: a clock that can jump, a line to the store that can fail, loops that run."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from random import Random
from typing import Any

import msgspec

from mainspring import Mainspring
from mainspring.clock import Clock
from mainspring.core.instants import MILLISECOND, Duration, parse_duration
from mainspring.core.model import Run
from mainspring.errors import StoreUnavailable
from mainspring.handle import RunHandle
from mainspring.services.loop import Loop
from mainspring.services.worker import Worker
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.testing import ManualClock
from mainspring.wiring import describe_worker, find_executors

FAST = Settings(
    lease_ttl=300 * MILLISECOND,
    lease_renew=80 * MILLISECOND,
    claim_ttl=500 * MILLISECOND,
    claim_renew=100 * MILLISECOND,
    worker_dead_after=600 * MILLISECOND,
)
"""Settings for tests in real time."""


def settings(base: Settings = Settings(), **changes: Any) -> Settings:
    """Settings, as they are but for these."""
    return msgspec.structs.replace(base, **changes)


class JumpingClock(ManualClock):
    """A manual clock whose wall clock can be set without time passing."""

    def jump(self, duration: str) -> None:
        """Set the wall clock ahead."""
        self._now += parse_duration(duration)


class FaultyStore:
    """The real store behind a line that loses requests or replies, delays them, or is cut."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._faults: defaultdict[str, deque[str]] = defaultdict(deque)
        self._released = asyncio.Event()
        self.calls: Counter[str] = Counter()
        self.is_cut = False

    def lose_request(self, method: str, times: int = 1) -> None:
        """The next calls never reach the store."""
        self._faults[method].extend(["request"] * times)

    def lose_reply(self, method: str, times: int = 1) -> None:
        """The store does what the next calls ask, and nobody hears of it."""
        self._faults[method].extend(["reply"] * times)

    def hold(self, method: str, times: int = 1) -> None:
        """The next calls reach the store only after `let_through`."""
        self._faults[method].extend(["hold"] * times)

    def hold_reply(self, method: str, times: int = 1) -> None:
        """The replies to the next calls come only after `let_through`."""
        self._faults[method].extend(["hold reply"] * times)

    def let_through(self) -> None:
        """Let everything through that is held."""
        self._released.set()
        self._released = asyncio.Event()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in ("now", "on_change", "close") or not callable(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            fault = self._faults[name].popleft() if self._faults[name] else ""
            if self.is_cut or fault == "request":
                raise StoreUnavailable(f"the request {name} was lost")
            if fault == "hold":
                await self._released.wait()
            answer = await method(*args, **options)
            if fault == "hold reply":
                await self._released.wait()
            if fault == "reply":
                raise StoreUnavailable(f"the reply to {name} was lost")
            return answer

        return call


async def let_others_run(rounds: int = 30) -> None:
    """Give every task the chance to go on until it waits for time."""
    for _ in range(rounds):
        await asyncio.sleep(0)


async def let_pass(clock: ManualClock, duration: Duration | str) -> None:
    """Let time pass, so that each sleeper wakes at its own instant."""
    left = duration if isinstance(duration, int) else parse_duration(duration)
    await let_others_run()
    while (due := clock.pending()) is not None and due - clock.now() <= left:
        step = max(due - clock.now(), 0)
        clock.advance(step)
        left -= step
        await let_others_run()
    clock.advance(left)
    await let_others_run()


async def until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    """Wait, in real time and not for ever, until something holds."""
    async with asyncio.timeout(seconds):
        while not condition():
            await asyncio.sleep(0.002)


async def until_true(question: Callable[[], Awaitable[object]], seconds: float = 5.0) -> None:
    """The same for a question that has to be awaited."""
    async with asyncio.timeout(seconds):
        while not await question():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def turning(*loops: Loop) -> AsyncIterator[None]:
    """Let loops run."""
    tasks = [asyncio.create_task(loop.run()) for loop in loops]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def make_worker(
    app: Mainspring,
    store: Any,
    clock: Clock,
    using: Settings = FAST,
    *,
    name: str = "worker-1",
    on_unstoppable: Callable[[], None] = lambda: None,
) -> Worker:
    """A worker whose tasks run on this loop, as they do in simulation."""
    row = describe_worker(app, using, name)
    loop = asyncio.get_running_loop()
    executors = find_executors(app, using.concurrency)
    return Worker(store, row, executors, loop, using, clock, Random(0), on_unstoppable)


@asynccontextmanager
async def working(
    app: Mainspring, store: Any, clock: Clock, using: Settings = FAST, **more: Any
) -> AsyncIterator[Worker]:
    """A worker at work."""
    worker = make_worker(app, store, clock, using, **more)
    await worker.register()
    unsubscribe = store.on_change(worker.wake)
    async with turning(*worker.loops):
        yield worker
    unsubscribe()


@contextmanager
def at_home(app: Mainspring, store: Any, clock: Clock) -> Iterator[Mainspring]:
    """Let an app submit to this store."""
    restore = app.borrow(store, clock)
    try:
        yield app
    finally:
        restore()


async def ended(handle: RunHandle[Any]) -> Run:
    """The run, once it has ended; it must not take long."""
    return await handle.wait(10)
