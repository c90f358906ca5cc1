"""A scheduler that a test controls: it sets the time, ticks, and looks at jobs and runs.

The real planner, worker and reaper run on a real SQLite store in memory. Only the clock is the test's own, and nothing
happens between two calls.
"""

from __future__ import annotations

import asyncio
from datetime import datetime
from random import Random
from types import TracebackType
from typing import Self

import msgspec

from mainspring.core.instants import DAY, Duration, Instant, parse_duration, parse_instant, to_datetime
from mainspring.core.runs.retry import Length
from mainspring.core.states import State
from mainspring.errors import InvalidInput
from mainspring.operations.records import Firing, Job, Run
from mainspring.process.lifetime import Lifetime
from mainspring.sdk.app import Mainspring
from mainspring.services.chores.reaper import Reaper
from mainspring.services.scheduler.planner import Planner
from mainspring.store import Store
from mainspring.testing.clock import START, ManualClock
from mainspring.wiring import build_worker, describe_worker, open_memory

_HORIZON: Duration = 36_500 * DAY
_MOST_ROUNDS = 10_000


class ManualScheduler:
    """Runs an app's jobs and tasks in virtual time.

        async with ManualScheduler(app, start="2026-03-01T00:00:00Z") as scheduler:
            await scheduler.advance("1d")
            assert [run.state for run in await scheduler.runs(job="report")] == ["succeeded"]

    In a test that cannot await, `with ManualScheduler(app) as scheduler:` gives a `BlockingScheduler`, which has the
    same methods. Inside the block the app's own store and clock are replaced: what is submitted through the app goes to
    this scheduler.
    """

    def __init__(self, app: Mainspring, *, start: datetime | str = START) -> None:
        self.app = app
        self.clock = ManualClock(start)
        # Nothing else ends while a test waits: to gather results for a moment would be to wait for ever.
        self._settings = msgspec.structs.replace(app.settings, horizon=_HORIZON, flush=0)

    def __enter__(self) -> BlockingScheduler:
        self._block = self.app.sync(lambda: self)
        return BlockingScheduler(self._block.__enter__())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool | None:
        return self._block.__exit__(kind, error, traceback)

    async def __aenter__(self) -> Self:
        self._store: Store = open_memory(self.clock)
        self._restore = self.app.borrow(self._store, self.clock)
        self._lifetime = Lifetime(self.app.hooks.alive)
        await self._lifetime.begin()
        await self.app.sync_jobs()
        random = Random(0)
        row = describe_worker(self.app, self._settings, "manual")
        loop = asyncio.get_running_loop()
        self._worker = build_worker(self.app, self._store, row, loop, self._settings, random)
        self._planner = Planner(self._store, None, self._settings, self.clock, random)
        self._reaper = Reaper(self._store, self._settings, self.clock, random)
        await self._worker.register()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._lifetime.end()
        self._restore()
        await self._store.close()

    @property
    def now(self) -> datetime:
        """The time, in UTC."""
        return to_datetime(self.clock.now())

    async def tick(self) -> int:
        """Fire what is due now, and execute until nothing more is due; how many attempts that took."""
        attempts = 0
        for _ in range(_MOST_ROUNDS):
            await self._worker.heartbeat.turn()
            await self._reaper.turn()
            await self._planner.turn()
            await self._worker.claimer.turn()
            begun = self._worker.runner.busy
            await self._worker.runner.settle()
            await self._worker.reporter.turn()
            attempts += begun
            if not begun and not self._is_due(self.clock.now()):
                return attempts
        raise InvalidInput("tick", _MOST_ROUNDS, "rounds did not bring it to rest", "a task submits itself without end")

    async def advance(self, duration: Length) -> int:
        """Let time pass (`"3d"`, a timedelta, or seconds), stopping at each instant at which something is due; how many
        attempts that took."""
        return await self._go_to(self.clock.now() + parse_duration(duration))

    async def set_time(self, instant: datetime | str) -> int:
        """Go straight to an instant, as if the scheduler had been down until then: what was due meanwhile is a
        misfire."""
        self.clock.set(parse_instant(instant))
        return await self.tick()

    async def _go_to(self, target: Instant) -> int:
        attempts = await self.tick()
        while (due_at := await self._next_due()) is not None and due_at <= target:
            self.clock.set(max(due_at, self.clock.now()))
            attempts += await self.tick()
        self.clock.set(target)
        return attempts + await self.tick()

    async def _next_due(self) -> Instant | None:
        found = (self._planner.next_fire_at, await self._store.next_due(self._worker.row))
        return min((instant for instant in found if instant is not None), default=None)

    def _is_due(self, now: Instant) -> bool:
        due_at = self._planner.next_fire_at
        return due_at is not None and due_at <= now

    async def runs(self, *, job: str | None = None, task: str | None = None, state: State | None = None) -> list[Run]:
        """Runs, oldest first."""
        states = () if state is None else (state,)
        found: list[Run] = [run async for run in self.app.runs.list(states=states, job=job, task=task)]
        return found[::-1]

    async def job(self, name: str) -> Job:
        """A job as it is stored."""
        return await self.app.jobs.get(name)

    async def firings(self, job: str) -> list[Firing]:
        """The ledger of a job, oldest first."""
        return [firing async for firing in self.app.jobs.firings(job)][::-1]


class BlockingScheduler:
    """A `ManualScheduler` for tests that cannot await. Other calls of the app go through `app.sync`."""

    def __init__(self, scheduler: ManualScheduler) -> None:
        self._scheduler = scheduler
        self._sync = scheduler.app.sync

    @property
    def now(self) -> datetime:
        """See `ManualScheduler.now`."""
        return self._scheduler.now

    def tick(self) -> int:
        """See `ManualScheduler.tick`."""
        return self._sync(self._scheduler.tick)

    def advance(self, duration: Length) -> int:
        """See `ManualScheduler.advance`."""
        return self._sync(self._scheduler.advance, duration)

    def set_time(self, instant: datetime | str) -> int:
        """See `ManualScheduler.set_time`."""
        return self._sync(self._scheduler.set_time, instant)

    def runs(self, *, job: str | None = None, task: str | None = None, state: State | None = None) -> list[Run]:
        """See `ManualScheduler.runs`."""
        return self._sync(self._scheduler.runs, job=job, task=task, state=state)

    def job(self, name: str) -> Job:
        """See `ManualScheduler.job`."""
        return self._sync(self._scheduler.job, name)

    def firings(self, job: str) -> list[Firing]:
        """See `ManualScheduler.firings`."""
        return self._sync(self._scheduler.firings, job)
