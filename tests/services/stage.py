"""What the tests of the services share: a clock that can jump, a line to the store that can fail, loops that run."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict, deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from inspect import isawaitable
from random import Random
from typing import Any

import msgspec

from mainspring import Mainspring, every
from mainspring.clock import Clock
from mainspring.core.instants import MILLISECOND, SECOND, Duration, parse_duration, parse_instant
from mainspring.core.model import Firing, Job, Run, Term
from mainspring.core.states import FINAL
from mainspring.errors import StoreUnavailable
from mainspring.sdk.handle import RunHandle
from mainspring.services.loop import Loop
from mainspring.services.scheduler.planner import Planner
from mainspring.services.worker.claimer import ClaimSource
from mainspring.services.worker.worker import WorkerService
from mainspring.settings import Settings
from mainspring.store import RunFilter, StandingClaim, Store
from mainspring.testing import ManualClock
from mainspring.wiring import describe_worker, find_executors
from sdk_work import add_stored, row_of

START = parse_instant("2026-01-01T00:00:00Z")
"""When a manual clock begins."""
USUAL = Settings()
FAST = Settings(
    lease_ttl=300 * MILLISECOND,
    lease_renew=80 * MILLISECOND,
    claim_ttl=500 * MILLISECOND,
    claim_renew=100 * MILLISECOND,
    worker_dead_after=600 * MILLISECOND,
    unfit_wait=100 * MILLISECOND,
)
"""Settings for tests in real time."""
STEADY = msgspec.structs.replace(FAST, claim_ttl=USUAL.claim_ttl, worker_dead_after=USUAL.worker_dead_after)
"""The same, where no claim is to run out, however busy the machine is."""


class JumpingClock(ManualClock):
    """A manual clock whose wall clock can be set without time passing."""

    def jump(self, duration: str) -> None:
        """Set the wall clock ahead."""
        self._now += parse_duration(duration)


class LocalSink:
    """What a sink of a test has beside `deliver`: it has no connection."""

    async def ping(self) -> None:
        """See the sink port."""

    async def close(self) -> None:
        """See the sink port."""


class FaultyStore:
    """The real store behind a line that loses requests or replies, delays them, or is cut."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._faults: defaultdict[str, deque[str]] = defaultdict(deque)
        self._opened = asyncio.Event()
        self.calls: Counter[str] = Counter()
        self.is_cut = False

    def lose_request(self, method: str, times: int = 1) -> None:
        """The next calls never reach the store."""
        self._faults[method].extend(["request"] * times)

    def lose_reply(self, method: str, times: int = 1) -> None:
        """The store does what the next calls ask, and the replies are lost."""
        self._faults[method].extend(["reply"] * times)

    def hold_request(self, method: str, times: int = 1) -> None:
        """The next calls reach the store only after `let_through`."""
        self._faults[method].extend(["late request"] * times)

    def hold_reply(self, method: str, times: int = 1) -> None:
        """The replies to the next calls come only after `let_through`."""
        self._faults[method].extend(["late reply"] * times)

    def let_through(self) -> None:
        """All that is held goes on."""
        self._opened.set()
        self._opened = asyncio.Event()

    def leave_claim(self, standing: StandingClaim | None) -> None:
        """The store at the other end makes no claims by itself."""

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name in ("now", "surely_now", "on_change", "close") or not callable(method):
            return method

        async def call(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            fault = self._faults[name].popleft() if self._faults[name] else ""
            if fault == "late request":
                await self._opened.wait()
            if self.is_cut or fault == "request":
                raise StoreUnavailable(f"the request {name} was lost")
            answer = await method(*args, **options)
            if fault == "late reply":
                await self._opened.wait()
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


async def until(condition: Callable[[], Any], seconds: float = 20.0) -> None:
    """Wait, in real time and not for ever, until something holds; the condition may have to be awaited."""
    async with asyncio.timeout(seconds):
        while True:
            answer = condition()
            if await answer if isawaitable(answer) else answer:
                return
            await asyncio.sleep(0.002)


@asynccontextmanager
async def turning(*loops: Loop) -> AsyncIterator[None]:
    """Loops that run, until they are ended without a word."""
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
    source: ClaimSource | None = None,
) -> WorkerService:
    """A worker whose tasks run on this loop, as they do in simulation."""
    row = describe_worker(app, using, name)
    executors = find_executors(app, using.concurrency)
    given = (store, row, executors, asyncio.get_running_loop(), using, clock, Random(0), on_unstoppable)
    return WorkerService(*given, source=source)


@asynccontextmanager
async def working(
    app: Mainspring, store: Any, clock: Clock, using: Settings = FAST, **more: Any
) -> AsyncIterator[WorkerService]:
    """A worker at work, until it ends without a word."""
    worker = make_worker(app, store, clock, using, **more)
    await worker.register()
    unsubscribe = store.on_change(worker.wake)
    async with turning(*worker.loops):
        yield worker
    store.leave_claim(None)  # Which would have ended with its process.
    unsubscribe()


@contextmanager
def at_home(app: Mainspring, store: Any, clock: Clock) -> Iterator[Mainspring]:
    """An app that submits to this store."""
    restore = app.borrow(store, clock)
    try:
        yield app
    finally:
        restore()


async def ended(handle: RunHandle[Any]) -> Run:
    """The run, once it has ended; it must not take long."""

    async def has_ended() -> bool:
        return (await row_of(handle)).state in FINAL

    await until(has_ended, 10)
    return await row_of(handle)


def make_planner(
    store: Any, clock: Clock, leads: Callable[[], Term | None] | None = None, using: Settings = USUAL
) -> Planner:
    """A planner that leads by this word; without one, as in a cluster."""
    return Planner(store, leads, using, clock, Random(0))


async def add_job(app: Mainspring, name: str, period: str = "10s", **words: Any) -> Job:
    """A job that fires every so often."""
    return await add_stored(app, name, every(period), task="work", **words)


async def ledger(store: Any, job: Job) -> list[Firing]:
    """The ledger of a job, oldest first."""
    firings: list[Firing] = await store.list_firings(job.id, limit=10_000)
    return firings[::-1]


async def fired_at(store: Any, job: Job) -> list[int]:
    """The instants that fired, in seconds since the start; each must have its run."""
    rows = [row for row in await ledger(store, job) if row.run_id is not None]
    runs = {run.id for run in await store.list_runs(RunFilter(job=job.name, limit=10_000))}
    assert {row.run_id for row in rows} == runs
    return [(row.fire_at - START) // SECOND for row in rows]


class Watched:
    """A task on the manual clock that notes how it ended."""

    def __init__(self, app: Mainspring, clock: JumpingClock, seconds: float) -> None:
        self.story: list[tuple[str, float]] = []

        @app.task(name="watched")
        async def watched() -> str:
            self.story.append(("started", clock.monotonic()))
            try:
                await clock.sleep(seconds)
            except asyncio.CancelledError:
                self.story.append(("stopped", clock.monotonic()))
                raise
            self.story.append(("finished", clock.monotonic()))
            return "done"

        self.task = watched


async def recover(store: Any) -> int:
    """What the reaper does; how many runs were lost."""
    lost: int = (await store.recover(USUAL.worker_dead_after, 500)).lost
    return lost
