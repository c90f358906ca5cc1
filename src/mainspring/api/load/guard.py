"""The guard: measures pressure, sheds the least important work, and stops calling a store that does not answer."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import msgspec

from mainspring.api.problems import Problem, retry_after
from mainspring.clock import Clock
from mainspring.core.instants import SECOND, Duration, Instant
from mainspring.core.load import breaker, degradation
from mainspring.core.load.breaker import Breaker
from mainspring.core.load.degradation import (
    NO_WAITING,
    REFUSING,
    SHED_FROM,
    SHEDDING,
    SLOW_HISTORY,
    Level,
    Limits,
    Load,
)
from mainspring.core.model import Event, NewRun, RunOptions, Worker
from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.process.background import endure
from mainspring.settings import Settings, breaker_policy
from mainspring.store import Audit, Backlog, Store, Strain

T = TypeVar("T")
U = TypeVar("U")
log = logging.getLogger("mainspring")

LOOK_S = 2.0
"""How often the pressure is measured."""
IDLE_SHARE = 2
"""The interval is this many times longer after a measurement that found nothing waiting."""
NOTED_TOGETHER = 16
SHED_AT_ONCE = 1_000
HISTORY_AT_ONCE = 2
"""Under pressure, this many requests for history are served at once, each after a pause."""
HISTORY_PAUSE_S = 0.25


class Burden(NamedTuple):
    """The pressure on one namespace, or on all of them together, and the level of degradation that follows from it."""

    load: Load = Load()
    level: Level = Level()

    def after(self, load: Load, limits: Limits, now: Instant) -> Burden:
        """The pressure and the level after another measurement."""
        return Burden(load, degradation.judge(self.level, degradation.pressure(load, limits), now))


class Guard:
    """One for a server. Lives on the API's loop.

    The namespace that causes the pressure bears it: no other namespace's runs are shed or refused because of its
    backlog. Only the time that requests wait for the database counts for all namespaces.
    """

    def __init__(self, settings: Settings, clock: Clock) -> None:
        self.limits = Limits(settings.most_pool_wait, settings.most_waiting, settings.most_late)
        self.shared = Burden()
        self.tenants: dict[str, Burden] = {}
        """The burden of namespaces that are, or may soon be, under pressure."""
        policy = breaker_policy(settings)
        self.breaker = Breaker(policy)
        self.dependencies = Breaker(policy)
        """The breaker around checks of dependencies. While it is open, runs that allow it (`under_pressure`) do not
        wait."""
        self.worst_lag_s = 0.0
        self._busy = True
        self._clock = clock
        self._dead_after = settings.worker_dead_after
        self._unnoted = 0
        self._strain = Strain()
        self._stall_s = settings.stall_after / SECOND
        self.looked_at = clock.monotonic()
        """When the last measurement ended, successful or not."""
        self._history: Counter[str] = Counter()
        self._task: asyncio.Task[None] | None = None

    @property
    def level(self) -> Level:
        """The worst level of all."""
        burdens = (self.shared, *self.tenants.values())
        return max((each.level for each in burdens), key=lambda level: level.number)

    @property
    def pressure(self) -> float:
        """The highest measured value anywhere, relative to its limit."""
        burdens = (self.shared, *self.tenants.values())
        return max(degradation.pressure(each.load, self.limits) for each in burdens)

    def count_levels(self) -> dict[str, int]:
        """How many namespaces are at each level above the normal one."""
        found = Counter(each.level.name for each in self.tenants.values())
        return {name: found[name] for name in degradation.NAMES[SHEDDING:]}

    def burden_of(self, namespace: str) -> Burden:
        """The burden of a namespace: its own, or the shared one if that is worse."""
        return max(self.tenants.get(namespace, Burden()), self.shared, key=lambda each: each.level.number)

    def admit(self) -> None:
        """Called before each call of the store; StoreUnavailable if the breaker is open."""
        if self.breaker.state == "closed":
            return
        self.breaker, let = breaker.admit(self.breaker, self._clock.monotonic())
        if not let:
            raise StoreUnavailable("the store has not answered lately, and is asked again in a moment")

    def note(self, *, well: bool) -> None:
        """Record how that call went."""
        before = self.breaker
        if well and before.state == "closed" and self._unnoted < NOTED_TOGETHER:
            self._unnoted += 1  # Most calls succeed. Reporting each would cost more than counting them.
            return
        self.breaker = breaker.note(before, self._clock.monotonic(), well=well, before=self._unnoted)
        self._unnoted = 0
        if before.state != self.breaker.state:
            log.warning("breaker of the store: %s", self.breaker.state)

    async def submit_waiting(
        self, store: Store, runs: Sequence[NewRun], audit: Audit[list[str]] | None = None
    ) -> list[str]:
        """Accept runs with dependencies. While dependencies cannot be checked, runs that allow it are accepted without
        them."""
        self.dependencies, let = breaker.admit(self.dependencies, self._clock.monotonic())
        if not let:
            if not all(_is_hasty(run) for run in runs if run.after):
                raise StoreUnavailable(
                    "what runs wait for could not be checked lately, and is tried again in a moment. A run that may do "
                    'without says so by under_pressure="run"'
                )
            ids = await store.submit([msgspec.structs.replace(run, after=()) for run in runs], audit=audit)
            await self._tell_hurried(store, [run for run in runs if run.after])
            return ids
        try:
            ids = await store.submit(runs, audit=audit)
        except (StoreUnavailable, asyncio.CancelledError):
            self._note_dependencies(well=False)
            raise
        except MainspringError:
            self._note_dependencies(well=True)
            raise
        self._note_dependencies(well=True)
        return ids

    def _note_dependencies(self, *, well: bool) -> None:
        before = self.dependencies.state
        self.dependencies = breaker.note(self.dependencies, self._clock.monotonic(), well=well)
        if before != self.dependencies.state:
            log.warning("breaker of dependency checks: %s", self.dependencies.state)

    async def _tell_hurried(self, store: Store, runs: Sequence[NewRun]) -> None:
        store.metrics.count("hurried", "", len(runs))
        why, now = degradation.hurried_why("dependency checks fail"), store.now()
        events = [Event("run.hurried", now, run.namespace, run.id, task=run.task, reason=why) for run in runs]
        try:
            await store.record_events(events)
        except MainspringError as error:
            log.warning("%d runs do not wait for what they follow, which could not be recorded: %s", len(runs), error)

    def check_room(self, namespace: str, *, grows: bool) -> None:
        """Refuse requests that add work while the pressure is at its highest level."""
        if grows and (burden := self.burden_of(namespace)).level.number >= REFUSING:
            detail = f"No new work is taken on: {degradation.describe(burden.load, self.limits)}"
            raise Problem("overloaded", detail, remedy="try again later", headers=retry_after(10))

    async def look_back(self, namespace: str, act: Callable[[T], Awaitable[U]], call: T) -> U:
        """Serve a read of history: under pressure, few at once and with a delay."""
        burden = self.burden_of(namespace)
        if burden.level.number < SLOW_HISTORY:
            return await act(call)
        if self._history[namespace] >= HISTORY_AT_ONCE:
            detail = f"History has to wait: {degradation.describe(burden.load, self.limits)}"
            raise Problem("overloaded", detail, remedy="try again later", headers=retry_after(5))
        self._history[namespace] += 1
        try:
            await asyncio.sleep(HISTORY_PAUSE_S)
            return await act(call)
        finally:
            self._history[namespace] -= 1
            if not self._history[namespace]:
                del self._history[namespace]

    def start(self, store: Store) -> None:
        """Start measuring, on the running loop."""
        self._task = asyncio.get_running_loop().create_task(
            endure("guard", partial(self._watch, store), 0.0), name="guard"
        )
        self.looked_at = self._clock.monotonic()

    def stop(self) -> None:
        """Stop measuring."""
        if self._task is not None:
            self._task.cancel()
        self._task = None

    def troubles(self) -> dict[str, str]:
        """What is wrong with the measuring task, if it should be running."""
        silent_s = self._clock.monotonic() - self.looked_at
        if self._task is None or (not self._task.done() and silent_s < self._stall_s):
            return {}
        return {"guard": f"has not measured for {silent_s:.0f} s"}

    async def _watch(self, store: Store) -> None:
        loop = asyncio.get_running_loop()
        pause_s = LOOK_S if self._busy else LOOK_S * IDLE_SHARE
        due = loop.time() + pause_s
        await asyncio.sleep(pause_s)
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
        now, tick = store.now(), round(self._clock.monotonic() * SECOND)
        self._judge_shared(Load(pool_wait=self._pool_wait(store.strain())), tick)
        waiting: dict[str, list[Backlog]] = {name: [] for name in self.tenants}
        for row in rows:
            waiting.setdefault(row.namespace, []).append(row)
        for namespace, own in waiting.items():
            load = measure(own, await self._living(store, namespace, own, now), now)
            self._judge(namespace, load, tick)
        self._busy = bool(rows) or self.level.number > 0
        await self._give_up(store, rows)

    async def _living(self, store: Store, namespace: str, rows: Sequence[Backlog], now: Instant) -> list[Worker]:
        """The workers of a namespace, if it matters whether they have free slots."""
        if all(now - row.oldest_at < self.limits.lateness * degradation.LEAVE for row in rows):
            return []
        oldest = now - self._dead_after
        workers = await store.list_workers(namespace)
        return [each for each in workers if each.state == "active" and each.heartbeat_at >= oldest]

    def _judge_shared(self, load: Load, tick: Instant) -> None:
        before, self.shared = self.shared.level, self.shared.after(load, self.limits, tick)
        if before.number != self.shared.level.number:
            why = degradation.describe(load, self.limits)
            log.warning("degradation of all: %s, after %s: %s", self.shared.level.name, before.name, why)

    def _judge(self, namespace: str, load: Load, tick: Instant) -> None:
        before = self.tenants.get(namespace, Burden())
        after = before.after(load, self.limits, tick)
        if before.level.number != after.level.number:
            words = (namespace, after.level.name, before.level.name, degradation.describe(load, self.limits))
            log.warning("degradation of namespace %s: %s, after %s: %s", *words)
        if after.level == Level() and degradation.pressure(load, self.limits) < degradation.LEAVE:
            self.tenants.pop(namespace, None)
        else:
            self.tenants[namespace] = after

    async def _give_up(self, store: Store, rows: Sequence[Backlog]) -> None:
        """Shed what the levels ask for: of namespaces under pressure; or of all, beginning with the longest queues."""
        depths: Counter[str] = Counter()
        for row in rows:
            depths[row.namespace] += row.count
        left = SHED_AT_ONCE
        for namespace, _ in depths.most_common():
            burden = self.burden_of(namespace)
            hard = degradation.pressure(burden.load, self.limits) >= degradation.LEAVE
            if left > 0 and hard and burden.level.number >= SHEDDING:
                left -= await self._shed(store, namespace, degradation.describe(burden.load, self.limits), left)
        if self.shared.level.number >= NO_WAITING:
            await self._hurry(store, None, degradation.describe(self.shared.load, self.limits))
            return
        for namespace, burden in list(self.tenants.items()):
            if burden.level.number >= NO_WAITING:
                await self._hurry(store, namespace, degradation.describe(burden.load, self.limits))

    async def _shed(self, store: Store, namespace: str, why: str, limit: int) -> int:
        shed = await store.shed(namespace, why, limit)
        if shed:
            words = (shed, SHED_FROM, namespace, why)
            log.warning("degradation: %d runs of priorities %d to 10 of namespace %s were shed: %s", *words)
        return shed

    async def _hurry(self, store: Store, namespace: str | None, why: str) -> None:
        hurried = await store.hurry(namespace, why, SHED_AT_ONCE)
        if hurried:
            log.warning("degradation: %d did not wait for what they follow: %s", hurried, why)

    def _pool_wait(self, strain: Strain) -> Duration:
        """The mean of the waits since the last measurement."""
        before, self._strain = self._strain, strain
        waits = strain.waits - before.waits
        return round((strain.waited_s - before.waited_s) / waits * SECOND) if waits > 0 else 0


_OPTIONS = msgspec.json.Decoder(RunOptions)


def _is_hasty(run: NewRun) -> bool:
    return _OPTIONS.decode(run.options).under_pressure == "run"


def measure(rows: Sequence[Backlog], workers: Sequence[Worker], now: Instant) -> Load:
    """The late runs of a namespace. Runs that are shed first are no reason to shed. Lateness counts only where the
    workers that serve a queue have no free slots: a queue without workers is late, but shedding would not change
    that."""
    served = [row for row in rows if row.priority < SHED_FROM]
    free: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for worker in workers:
        for queue in worker.queues:
            for region in worker.regions:
                free[queue, region].append(worker.running < worker.concurrency)
    late = [now - row.oldest_at for row in served if (found := free[row.queue, row.region]) and not any(found)]
    return Load(depth=sum(row.count for row in served), lateness=max(late, default=0))
