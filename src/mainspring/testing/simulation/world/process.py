"""One simulated process: a node, a worker or both, with its own clock, wire and lease. It is started, stopped, frozen
and killed, and comes back under a new name."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextvars import Context
from random import Random

import msgspec

from mainspring.core.model import Worker as WorkerRow
from mainspring.errors import MainspringError, StoreFailed
from mainspring.services.chores.chores import Chores
from mainspring.services.node import Node
from mainspring.services.scheduler.scheduler import SchedulerService
from mainspring.services.worker.broker_source import BrokerSource
from mainspring.services.worker.worker import WorkerService
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.testing.simulation.faults import Weather
from mainspring.testing.simulation.load.tasks import TASKS, SimulatedExecutor, describe_tasks
from mainspring.testing.simulation.ports.broker import Courier, Post
from mainspring.testing.simulation.ports.lease import LyingLease
from mainspring.testing.simulation.ports.scribe import Scribe
from mainspring.testing.simulation.ports.wire import Wire
from mainspring.testing.simulation.world.clock import ProcessClock, StoreClock
from mainspring.testing.simulation.world.hosts import Host, HostingLoop
from mainspring.wiring import open_lease

STOP_GRACE_S = 1.5
KILLED_AFTER_S = 20.0
"""How long the supervisor of a process waits for it to stop before killing it."""


class Surroundings(msgspec.Struct, frozen=True):
    """What all processes of a world share."""

    seed: str
    loop: HostingLoop
    clock: StoreClock
    store: Store
    weather: Weather
    scribe: Scribe
    declare: Callable[[Store, int], Awaitable[object]]
    """Stores the jobs that a version of the program declares."""
    post: Post | None
    """The broker, in a world that has one."""


class Process:
    """`version` is that of the program: after an upgrade other jobs are declared."""

    def __init__(self, name: str, around: Surroundings, settings: Settings, *, schedules: bool, works: bool) -> None:
        self.name = name
        self._around = around
        self._settings = settings
        self._schedules = schedules
        self.works = works
        self._generation = 0
        self._random = Random(f"{around.seed}:process:{name}")
        self._host = Host(around.loop)
        self._host.kill()
        self.version = 1
        self.ready = False
        self.is_old: bool | None = None
        """Whether its code is older than that of others, until it is upgraded; None: all have the same."""

    @property
    def alive(self) -> bool:
        """Whether the process has not ended; it may be frozen."""
        return not self._host.dead

    def start(self) -> None:
        """Begin a new life, unless it has one."""
        if self.alive:
            return
        self._generation += 1
        around, self.ready = self._around, False
        self.actor = f"{self.name}.{self._generation}"
        self._host = Host(around.loop)
        wrong = around.weather.has("wrong_clocks")
        around.weather.note("wrong_clocks", wrong)
        self.clock = ProcessClock(around.clock, self._random, wrong=wrong)
        self.wire = Wire(around.store, self.actor, self._host, self.clock, around.weather, around.scribe, around.seed)
        self.lease = LyingLease(open_lease(Settings(), self.wire.as_store, self.clock), around.clock)
        self._executor = SimulatedExecutor(
            self.actor, around.seed, self.clock, around.weather, around.scribe, self._die_of
        )
        self._executor.is_old = bool(self.is_old)
        self._host.spawn(self._live())

    async def _live(self) -> None:
        self._node = self._build_node()
        self._node.on_failure = lambda: self._die_of("failed store")
        while True:
            try:
                if self._schedules:
                    await self._around.declare(self.wire.as_store, self.version)
                await self._node.start()
                break
            except StoreFailed:
                self._die_of("failed store")
            except (MainspringError, asyncio.CancelledError):
                await self.clock.sleep(0.5)
        self.ready = True

    def _build_scheduler(self, random: Random, broker: Courier | None) -> SchedulerService | None:
        if not self._schedules:
            return None
        around = (self._settings, self.clock, random)
        return SchedulerService(self.wire.as_store, self.lease, self.actor, *around, broker=broker)

    def _build_chores(self, random: Random, scheduler: SchedulerService | None) -> Chores:
        around = (self._settings, self.clock, random)
        if scheduler is None:
            return Chores(self.wire.as_store, self.actor, *around)
        return Chores(self.wire.as_store, self.actor, *around, leads=scheduler.leads, alerts=None)

    def _build_node(self) -> Node:
        around, store = self._around, self.wire.as_store
        random = Random(f"{around.seed}:scheduler:{self.actor}")
        if around.post is None:
            scheduler = self._build_scheduler(random, None)
            chores = self._build_chores(random, scheduler)
            return Node(store, scheduler, self._build_worker(store, None), chores, on_failed=self._die_of_loop)
        courier = Courier(
            around.post, self.wire, self._host, around.clock, Random(f"{around.seed}:courier:{self.actor}")
        )
        scheduler = self._build_scheduler(random, courier)
        chores = self._build_chores(random, scheduler)
        source = BrokerSource(store, courier, self.clock, self.actor)
        worker = self._build_worker(store, source)
        return Node(store, scheduler, worker, chores, courier, source, on_failed=self._die_of_loop)

    def _build_worker(self, store: Store, source: BrokerSource | None) -> WorkerService | None:
        if not self.works:
            return None
        settings = self._settings
        row = WorkerRow(
            id=self.actor, app="simulated", host="simulated", pid=self._generation, queues=settings.queues,
            regions=settings.regions, tasks=tuple(sorted(TASKS)), concurrency=settings.concurrency,
            notices=() if self.is_old is None else describe_tasks(old=self.is_old),
        )  # fmt: skip
        random = Random(f"{self._around.seed}:worker:{self.actor}")
        return WorkerService(
            store, row, lambda _: self._executor, self._around.loop, settings, self.clock, random,
            lambda: self._die_of("unstoppable work"), source=source,
        )  # fmt: skip

    def _die_of(self, cause: str) -> None:
        self._around.weather.note(cause)
        self.kill()
        self.start_after(self._random.uniform(0.2, 3.0))

    def _die_of_loop(self, _why: str) -> None:
        self._die_of("failed loop")

    def fail_store(self) -> None:
        """Its disk did not keep what was written: the store refuses this process from now on."""
        if self.alive:
            self.wire.failed = True

    def cancel_loop(self, number: int) -> None:
        """Cancel one of its loops, as a mistake elsewhere in the program might."""
        if self.ready and (tasks := self._node.supervisor.tasks):
            tasks[number % len(tasks)].cancel()

    def upgrade(self) -> None:
        """The next life is one of newer code."""
        self.version += 1
        if self.is_old is not None:
            self.is_old = False

    def kill(self) -> None:
        """As `kill -9` does: nothing of it runs any more, and its work ends where it is."""
        if self.alive:
            self._host.kill()
            self._executor.end_all()

    def start_after(self, seconds: float) -> None:
        """Its supervisor starts it again."""
        self._around.loop.call_later(seconds, self.start, context=Context())

    def freeze(self, seconds: float) -> None:
        """As SIGSTOP does, for this time."""
        host = self._host
        host.freeze()
        self._around.loop.call_later(seconds, host.thaw, context=Context())

    def thaw(self) -> None:
        """As SIGCONT does."""
        if self._host.frozen:
            self._host.thaw()

    async def stop(self) -> None:
        """Ask it to end, and wait; killed if it takes too long."""
        if self.alive and self.ready:
            host, ended = self._host, asyncio.Event()
            host.spawn(self._stop(ended))
            try:
                async with asyncio.timeout(KILLED_AFTER_S):
                    await ended.wait()
            except TimeoutError:
                self._around.weather.note("stop took too long")
            if host is not self._host:
                return  # it was killed meanwhile, and lives again
        self.kill()

    async def _stop(self, ended: asyncio.Event) -> None:
        await self._node.stop(STOP_GRACE_S)
        ended.set()
