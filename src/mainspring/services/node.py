"""All loops of one process, started and stopped together, in an order that loses nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from mainspring.broker import Broker
from mainspring.core.instants import Duration
from mainspring.errors import StoreFailed
from mainspring.services.activity import Activity, Listener
from mainspring.services.chores.chores import Chores
from mainspring.services.loop import Loop, log, within
from mainspring.services.scheduler.scheduler import SchedulerService
from mainspring.services.supervisor import Supervisor, end_process
from mainspring.services.worker.broker_source import BrokerSource
from mainspring.services.worker.worker import WorkerService
from mainspring.settings import Settings
from mainspring.store import Store

PARTING_S, HASTE_S = 2.0, 0.3
"""How long one step of stopping may take while the store does not answer, and how long each step after that."""
STALL_AFTER = Settings().stall_after
BROKER_GAP_S = 0.1
"""How long after a change a worker looks in the store, if its broker has delivered nothing."""


class Node:
    """Runs a scheduler, a worker and chores, or some of them, on the event loop on which it is made."""

    def __init__(
        self,
        store: Store,
        scheduler: SchedulerService | None,
        worker: WorkerService | None,
        chores: Chores | None = None,
        broker: Broker | None = None,
        source: BrokerSource | None = None,
        *,
        stall_after: Duration = STALL_AFTER,
        on_failed: Callable[[str], None] = end_process,
        listener: Listener | None = None,
    ) -> None:
        """`source` is where the worker's claims come from, if there is a broker. `on_failed` is called when a loop
        cannot be kept alive. `listener` receives what the process does."""
        self._store = store
        self._broker = broker
        self._source = source
        self.scheduler = scheduler
        self.worker = worker
        self.chores = chores
        self.activity: Activity | None = None
        if scheduler is not None and chores is not None:
            scheduler.electors[0].on_elected.append(chores.begin)
        if worker is not None and chores is not None and chores.alerter is not None:
            worker.reporter.on_alerts = chores.alerter.wake
        if worker is not None and source is not None:
            worker.claims.on_removed = source.ended
        if listener is not None:
            self._listen(listener)
        self._loop = asyncio.get_running_loop()
        self._clock = self.loops[0].clock
        self.supervisor = Supervisor(self.loops, self._clock, stall_after, store.metrics.count, on_failed)
        self.supervisor.on_store_failed = self._give_up
        if scheduler is not None and scheduler.check_in is not None:
            scheduler.check_in.loops = self._describe_loops
        self.watchdog: Callable[[], dict[str, str]] = dict
        """Returns what the watchdog of this process found wrong with its event loops."""
        self.failure: StoreFailed | None = None
        self.on_failure: Callable[[], None] = lambda: None
        """Called on the node's loop when this process can no longer use the store and has to end."""
        self._unsubscribe: Callable[[], None] = lambda: None
        self._hinted = False
        self._worker_waits = False
        self._patience_s = PARTING_S

    def _listen(self, listener: Listener) -> None:
        owner = self.worker or self.scheduler
        assert owner is not None, "a node works, schedules, or both"
        name = "" if self.worker is None else self.worker.row.id
        self.activity = Activity(name, listener, self._store.now, self.loops[0].clock, owner.random)
        if self.worker is not None:
            self.worker.report_to(self.activity)
        for planner in self.scheduler.planners if self.scheduler is not None else ():
            planner.on_fired = self.activity.fired

    @property
    def loops(self) -> list[Loop]:
        """All loops of this node."""
        parts = (self.scheduler, self.worker, self.chores)
        loops = [loop for part in parts if part is not None for loop in part.loops]
        return loops if self.activity is None else [*loops, self.activity]

    async def start(self) -> None:
        """Register the worker and start the loops."""
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

    def _describe_loops(self) -> dict[str, str]:
        """What is wrong with each loop of this node; empty for one that is well."""
        return {loop.name: "" for loop in self.loops} | self.troubles()

    def _hint(self) -> None:
        """The store has changed. Callable from any thread; several changes are one wake-up."""
        if not self._hinted:
            self._hinted = True
            with suppress(RuntimeError):  # This node has ended, and the store did not know yet.
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._hinted = False
        if self.chores is not None:
            self.chores.hint()
        if self.worker is not None:
            delivers = self._source is not None and self._source.delivers()
            self.worker.wake(work=not delivers)
            if delivers and not self._worker_waits:
                self._worker_waits = True
                self._loop.call_later(BROKER_GAP_S, self._wake_worker, self.worker)
        if self.scheduler is not None:
            self.scheduler.hint()

    def _wake_worker(self, worker: WorkerService) -> None:
        """The broker has delivered by now, or does not answer."""
        self._worker_waits = False
        worker.claimer.hint()

    async def stop(self, grace_s: float | None = None) -> None:
        """Hand leadership over, drain the worker, relay the last events, then end. Takes no longer than the grace and
        a few seconds, whatever the store does."""
        if self.scheduler is not None:
            await self._try(self.scheduler.hand_over())
        if self.worker is not None:
            await self.worker.drain(grace_s)
        if self.activity is not None:
            self.activity.summarize()
        if self.chores is not None:
            await self._try(self.chores.finish())
        self._unsubscribe()
        self._unsubscribe = lambda: None  # `stop` may be called more than once.
        self.supervisor.release()
        for loop in self.loops:
            loop.stop()
        if tasks := self.supervisor.tasks:
            await self._try(asyncio.wait(tasks))
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks, timeout=self._patience_s)
        for part in (self.scheduler, self._source, self._broker, self.chores):
            if part is not None:
                await self._try(part.close())

    async def _try(self, step: Awaitable[object]) -> None:
        """What cannot be done in time is left to other processes: leases and claims expire by themselves."""
        began = self._clock.monotonic()
        try:
            await within(self._clock, self._patience_s, step)
        except Exception as error:
            if self._clock.monotonic() - began >= self._patience_s:
                self._patience_s = HASTE_S
            log.warning("while stopping: %s", error)
