"""All loops of one process, started and stopped together, in an order that loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from random import Random

from mainspring.broker import Broker
from mainspring.cache import StatusCache
from mainspring.clock import Clock
from mainspring.core.instants import Duration
from mainspring.core.load.leadership import LEASE, lease_names
from mainspring.core.model import Term
from mainspring.errors import StoreFailed
from mainspring.lease import Lease
from mainspring.process.metrics import figures_of
from mainspring.services.chores.chores import Chores, Duty
from mainspring.services.chores.status_feeder import StatusFeeder
from mainspring.services.loop import Loop, log, within
from mainspring.services.scheduler.contender import Contender
from mainspring.services.scheduler.dispatcher import Dispatcher
from mainspring.services.scheduler.elector import Elector
from mainspring.services.scheduler.planner import Planner
from mainspring.services.scheduler.standin import StandIn
from mainspring.services.supervisor import Supervisor, end_process
from mainspring.services.worker.broker_source import Delivered
from mainspring.services.worker.worker import Worker
from mainspring.settings import Settings
from mainspring.sink import Sink
from mainspring.store import Store

PARTING_S, HASTE_S = 2.0, 0.3
"""How long one step of stopping may take where the store does not answer; and those after one that took so long."""


STALL_AFTER = Settings().stall_after
PLANNER_GAP_S, PLANNER_BUSY_S = 0.02, 0.1
"""Most changes are of runs, not of jobs: a planner looks for edits a moment after a change, but, while there is one
after another, only so often."""


BROKER_GAP_S = 0.1
"""So long after a change a worker looks for itself, if its broker has not told it."""


class Scheduler:
    """The loops that schedule: one node at a time leads, unless the coordination is `cluster` or `lock`. Where leaders
    share the jobs, there are an elector and a planner for each shard, and who leads the first one does the rest."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        owner: str,
        sinks: Sequence[Sink],
        settings: Settings,
        clock: Clock,
        random: Random,
        alerts: bool | None = None,
    ) -> None:
        """`alerts`: whether somebody is surely to be told of failures; None: nobody ever is."""
        self.lease = lease
        self.random = random
        everyone = settings.coordination != "leader"
        contender = Contender(lease, owner, settings.lease_ttl) if settings.coordination == "lock" else None
        names = [LEASE] if everyone else lease_names(settings.shards)
        led = self.count_led if len(names) > 1 else None
        foreign = settings.lease is not None
        self.electors = [
            Elector(
                *(store, StandIn(lease, store, clock, name) if foreign else lease, owner, settings, clock, random),
                lease_name=name,
                led=led,
            )
            for name in names
        ]
        self.planners = [
            Planner(
                *(store, None if everyone else elector.term, settings, clock, random),
                shard=number,
                contender=contender,
            )
            for number, elector in enumerate(self.electors)
        ]
        self.chores = Chores(store, self.leads, sinks, settings, clock, random, alerts=alerts)
        self.electors[0].on_elected.append(self.chores.begin)
        for elector, planner in zip(self.electors, self.planners, strict=True):
            elector.on_elected.append(planner.wake)
            planner.on_overtaken.append(elector.begin_anew)

    def term(self) -> Term | None:
        """The term of this node, if it leads; of several shards, the first."""
        return self.electors[0].term()

    def leads(self) -> bool:
        """Whether this node does what only one should do."""
        return self.term() is not None

    def count_led(self) -> int:
        """How many shards this node leads."""
        return sum(elector.term() is not None for elector in self.electors)

    @property
    def loops(self) -> Sequence[Loop]:
        """What has to run."""
        return (*self.electors, *self.planners, *self.chores.loops)


class Node:
    """Runs a scheduler, a worker, or both, on the loop it is started on."""

    def __init__(
        self,
        store: Store,
        scheduler: Scheduler | None,
        worker: Worker | None,
        broker: Broker | None = None,
        source: Delivered | None = None,
        cache: StatusCache | None = None,
        *,
        stall_after: Duration = STALL_AFTER,
        on_failed: Callable[[str], None] = end_process,
        settings: Settings | None = None,
    ) -> None:
        """`source`: where the worker's claims come from, if there is a broker. `on_failed` is called when a loop cannot
        be kept alive. With `settings`, a node that only works does the fleet's chores while no node schedules."""
        self._store = store
        self._broker = broker
        self._source = source
        self._cache = cache
        self._extra: list[Loop] = []
        self._dispatcher: Dispatcher | None = None
        if scheduler is not None and broker is not None:
            planner = scheduler.planners[0]
            self._dispatcher = Dispatcher(store, broker, scheduler.leads, planner.clock, scheduler.random)
            self._extra.append(self._dispatcher)
        if scheduler is not None and cache is not None:
            clock = scheduler.chores.relay.clock
            self._extra.append(StatusFeeder(store, cache, scheduler.leads, clock, scheduler.random))
        self.scheduler = scheduler
        self.worker = worker
        self._chores = None if scheduler is None else scheduler.chores
        self.duty: Duty | None = None
        if scheduler is None and worker is not None and settings is not None:
            self._take_on_chores(worker, settings)
        self._loop = asyncio.get_running_loop()
        self.supervisor = Supervisor(self.loops, self.loops[0].clock, stall_after, figures_of(store).count, on_failed)
        self.supervisor.on_store_failed = self._give_up
        self.watchdog: Callable[[], dict[str, str]] = dict
        """What watches the event loops of this process from outside, if anything does, and found wrong."""
        self.failure: StoreFailed | None = None
        self.on_failure: Callable[[], None] = _nothing
        """Called on the node's loop when the store can no longer be used by this process, which has to end."""
        self._unsubscribe: Callable[[], None] = _nothing
        self._hinted = False
        self._planner_waits = False
        self._planner_woken_at = -PLANNER_BUSY_S
        self._worker_waits = False
        self._patience_s = PARTING_S
        if worker is not None and self._chores is not None and self._chores.alerter is not None:
            worker.reporter.on_alerts = self._chores.alerter.wake

    def _take_on_chores(self, worker: Worker, settings: Settings) -> None:
        clock, random = worker.claimer.clock, worker.random
        self.duty = Duty(self._store, worker.row.id, clock, random)
        self._chores = Chores(self._store, self.duty.is_on_duty, (), settings, clock, random, alerts=False, aside=True)
        self.duty.on_begun = self._chores.begin
        self._extra += [self.duty, *self._chores.loops]

    @property
    def loops(self) -> list[Loop]:
        """All loops of this node."""
        loops = [*(self.scheduler.loops if self.scheduler else ()), *(self.worker.loops if self.worker else ())]
        return [*loops, *self._extra]

    async def start(self) -> None:
        """Announce the worker and let the loops turn."""
        if self.worker is not None:
            await self.worker.register()
            if self._source is not None:
                self._source.start(self.worker.row, self.worker.claimer.hint)
        remote = self.scheduler is not None or self._broker is not None
        remote = remote or (self.worker is not None and self.worker.needs_hints)
        self._unsubscribe = self._store.on_change(self._hint, remote=remote)
        self.supervisor.start()

    def _give_up(self, error: StoreFailed) -> None:
        self.failure = error
        self.on_failure()

    def troubles(self) -> dict[str, str]:
        """What does not run although it should, by name; empty if all is well."""
        return self.supervisor.troubles() | dict(self._store.strain().troubles) | self.watchdog()

    def _hint(self) -> None:
        """From any thread: many changes before the loops look are one wake-up."""
        if not self._hinted:
            self._hinted = True
            with suppress(RuntimeError):  # This node has ended, and the store did not know yet.
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._hinted = False
        if self.duty is not None and self._chores is not None and self.duty.is_on_duty():
            self._chores.relay.wake()
        if self.worker is not None:
            delivers = self._source is not None and self._source.delivers()
            self.worker.wake(work=not delivers)
            if delivers and not self._worker_waits:
                self._worker_waits = True
                self._loop.call_later(BROKER_GAP_S, self._wake_worker, self.worker)
        if self.scheduler is not None and not self._planner_waits:
            self._planner_waits = True
            pause_s = max(PLANNER_GAP_S, self._planner_woken_at + PLANNER_BUSY_S - self._loop.time())
            self._loop.call_later(pause_s, self._wake_scheduler, self.scheduler)

    def _wake_worker(self, worker: Worker) -> None:
        """The broker was the quicker, or does not answer."""
        self._worker_waits = False
        worker.claimer.hint()

    def _wake_scheduler(self, scheduler: Scheduler) -> None:
        self._planner_waits, self._planner_woken_at = False, self._loop.time()
        if self._dispatcher is not None:
            self._dispatcher.wake()
        if scheduler.chores.relay.is_quiet:
            scheduler.chores.relay.wake()
        for elector, planner in zip(scheduler.electors, scheduler.planners, strict=True):
            planner.wake()
            if elector.term() is None:
                elector.wake()

    async def stop(self, grace_s: float | None = None) -> None:
        """Hand leadership over, drain the worker, tell what is left to tell, then end: whatever the store does, within
        the grace and a few seconds."""
        if self.scheduler is not None:
            for planner in self.scheduler.planners:
                planner.stop()
            await self._try(asyncio.gather(*(elector.hand_over() for elector in self.scheduler.electors)))
        if self.worker is not None:
            await self.worker.drain(grace_s)
        if self.duty is not None:
            await self._try(self.duty.halt())
        if self._chores is not None and (self.scheduler is not None or self._chores.on_duty()):
            await self._try(self._chores.relay.finish())
        if self.duty is not None:
            await self._try(self.duty.let_go())
        self._unsubscribe()
        self._unsubscribe = _nothing  # It may be asked to end more than once.
        self.supervisor.release()
        for loop in self.loops:
            loop.stop()
        if tasks := self.supervisor.tasks:
            await self._try(asyncio.wait(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=self._patience_s)
        if self.scheduler is not None:
            await self._try(self.scheduler.lease.close())
        for backend in (self._source, self._broker, self._cache):
            if backend is not None:
                await self._try(backend.close())

    async def _try(self, step: Awaitable[object]) -> None:
        """What cannot be done in time is left to those who go on: leases and claims run out by themselves."""
        clock = self.loops[0].clock
        began = clock.monotonic()
        try:
            await within(clock, self._patience_s, step)
        except Exception as error:
            if clock.monotonic() - began >= self._patience_s:
                self._patience_s = HASTE_S
            log.warning("while stopping: %s", error)


def _nothing() -> None:
    return None
