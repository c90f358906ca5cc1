"""The guard: measures how hard it is, gives up what matters least, and does not call a store that does not answer."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from inspect import iscoroutinefunction
from typing import Any, TypeVar, cast

from mainspring.api.problems import Problem, retry_after
from mainspring.clock import Clock
from mainspring.core import breaker, degradation
from mainspring.core.breaker import Breaker
from mainspring.core.degradation import NO_WAITING, REFUSING, SHED_FROM, SHEDDING, SLOW_HISTORY, Level, Limits, Load
from mainspring.core.instants import SECOND, Duration
from mainspring.core.model import Worker
from mainspring.enduring import endure
from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.settings import Settings
from mainspring.store import Backlog, Change, Store, Strain

T = TypeVar("T")
U = TypeVar("U")
log = logging.getLogger("mainspring")

LOOK_S = 2.0
"""How often the pressure is measured."""
TOLD_TOGETHER = 16
SHED_AT_ONCE = 1_000
HISTORY_AT_ONCE = 2
"""Under pressure, so many requests for history are served at once, each after a pause."""
HISTORY_PAUSE_S = 0.25


class GuardedStore:
    """A store behind a breaker: while too many calls fail because it cannot be reached, they fail at once."""

    def __init__(self, store: Store, guard: Guard) -> None:
        self._store = store
        self._guard = guard

    def attested(self, tell: Callable[[Any], Sequence[Change]]) -> Store:
        return cast(Store, GuardedStore(self._store.attested(tell), self._guard))

    def __getattr__(self, name: str) -> Any:
        call = getattr(self._store, name)
        if not iscoroutinefunction(call):
            setattr(self, name, call)
            return call
        guard = self._guard

        async def guarded(*args: Any, **words: Any) -> Any:
            guard.admit()
            try:
                answer = await call(*args, **words)
            except StoreUnavailable:
                guard.note(well=False)
                raise
            except MainspringError:
                guard.note(well=True)
                raise
            guard.note(well=True)
            return answer

        setattr(self, name, guarded)
        return guarded


class Guard:
    """One for a server. Lives on the API's loop."""

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.limits = Limits(settings.most_pool_wait, settings.most_waiting, settings.most_late)
        self.level = Level()
        self.load = Load()
        self.breaker = Breaker()
        self.worst_lag_s = 0.0
        self._clock = clock
        self._dead_after = settings.worker_dead_after
        self._untold = 0
        self._strain = Strain()
        self._history = 0
        self._stall_s = settings.stall_after / SECOND
        self.looked_at = clock.monotonic()
        """When the last look ended, well or not."""
        self._task: asyncio.Task[None] | None = None

    @property
    def pressure(self) -> float:
        """The worst of what is measured, beside its limit."""
        return degradation.pressure(self.load, self.limits)

    def admit(self) -> None:
        """Before a call of the store; StoreUnavailable if it is not to be made."""
        if self.breaker.state == "closed":
            return
        self.breaker, let = breaker.admit(self.breaker, self._clock.monotonic())
        if not let:
            raise StoreUnavailable("the store has not answered lately, and is asked again in a moment")

    def note(self, *, well: bool) -> None:
        """How that call went."""
        before = self.breaker
        if well and before.state == "closed" and self._untold < TOLD_TOGETHER:
            self._untold += 1  # Most calls go well, and to say so each time would cost more than to count.
            return
        self.breaker = breaker.note(before, self._clock.monotonic(), well=well, before=self._untold)
        self._untold = 0
        if before.state != self.breaker.state:
            log.warning("breaker of the store: %s", self.breaker.state)

    def check_room(self, *, grows: bool) -> None:
        """Refuse what would make more work, where there is far too much."""
        if grows and self.level.number >= REFUSING:
            detail = f"no new work is taken on: {degradation.describe(self.load, self.limits)}"
            raise Problem("overloaded", detail, remedy="try again later", headers=retry_after(10))

    async def look_back(self, act: Callable[[T], Awaitable[U]], call: T) -> U:
        """Serve a look at history: under pressure few at once, and slowly."""
        if self.level.number < SLOW_HISTORY:
            return await act(call)
        if self._history >= HISTORY_AT_ONCE:
            detail = f"history has to wait: {degradation.describe(self.load, self.limits)}"
            raise Problem("overloaded", detail, remedy="try again later", headers=retry_after(5))
        self._history += 1
        try:
            await asyncio.sleep(HISTORY_PAUSE_S)
            return await act(call)
        finally:
            self._history -= 1

    def start(self, store: Store) -> None:
        """Begin to measure, on the running loop."""
        self._task = asyncio.get_running_loop().create_task(
            endure("guard", partial(self._watch, store), 0.0), name="guard"
        )
        self.looked_at = self._clock.monotonic()

    def stop(self) -> None:
        """Measure no more."""
        if self._task is not None:
            self._task.cancel()
        self._task = None

    def troubles(self) -> dict[str, str]:
        """What is wrong with measuring, if it should be under way."""
        silent_s = self._clock.monotonic() - self.looked_at
        if self._task is None or (not self._task.done() and silent_s < self._stall_s):
            return {}
        return {"guard": f"has not measured for {silent_s:.0f} s"}

    async def _watch(self, store: Store) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time() + LOOK_S
        await asyncio.sleep(LOOK_S)
        self.worst_lag_s = max(self.worst_lag_s * 0.9, loop.time() - due)
        try:
            await self.look(store)
        except MainspringError as error:
            log.debug("the pressure could not be measured: %s", error)
        finally:
            self.looked_at = self._clock.monotonic()

    async def look(self, store: Store) -> None:
        """Measure, decide, and act."""
        rows = await store.backlog(3 * self.limits.depth)
        workers = [worker for name in {row.namespace for row in rows} for worker in await store.list_workers(name)]
        now = store.now()
        living = [each for each in workers if each.state == "active" and each.heartbeat_at >= now - self._dead_after]
        self.load = measure(rows, living, now, self._pool_wait(store.strain()))
        before = self.level
        self.level = degradation.judge(before, self.pressure, round(self._clock.monotonic() * SECOND))
        why = degradation.describe(self.load, self.limits)
        if before.number != self.level.number:
            log.warning("degradation: %s, after %s: %s", self.level.name, before.name, why)
        if self.level.number >= SHEDDING and self.pressure >= degradation.LEAVE:
            shed = await store.shed(why, SHED_AT_ONCE)
            if shed:
                log.warning("degradation: %d runs of priorities %d to 10 were shed: %s", shed, SHED_FROM, why)
        if self.level.number >= NO_WAITING:
            hurried = await store.hurry(why, SHED_AT_ONCE)
            if hurried:
                log.warning("degradation: %d did not wait for what they follow: %s", hurried, why)

    def _pool_wait(self, strain: Strain) -> Duration:
        """The mean of the waits since the last look."""
        before, self._strain = self._strain, strain
        waits = strain.waits - before.waits
        return round((strain.waited_s - before.waited_s) / waits * SECOND) if waits > 0 else 0


def measure(rows: Sequence[Backlog], workers: Sequence[Worker], now: int, pool_wait: Duration) -> Load:
    """What waits although it should not. What is shed first is no reason to shed. And lateness counts only where the
    workers that serve a queue have no hand free: one that nobody serves is late, but shedding would not change that."""
    served = [row for row in rows if row.priority < SHED_FROM]
    free: dict[tuple[str, str, str], list[bool]] = defaultdict(list)
    for worker in workers:
        for queue in worker.queues:
            for region in worker.regions:
                free[worker.namespace, queue, region].append(worker.running < worker.concurrency)
    late = [
        now - row.oldest_at
        for row in served
        if (hands := free[row.namespace, row.queue, row.region]) and not any(hands)
    ]
    return Load(pool_wait, sum(row.count for row in served), max(late, default=0))
