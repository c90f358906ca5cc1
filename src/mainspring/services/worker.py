"""A worker: claims, executes, reports, keeps its claims, and drains. Its loops run beside the user's loop, so that a
function that blocks cannot stop renewal."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from random import Random
from typing import Literal

import msgspec

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.model import Worker as WorkerRow
from mainspring.executor import AttemptContext, Executor, StopKind
from mainspring.services.claimer import Claimer
from mainspring.services.crew import Crew
from mainspring.services.heart import Heart
from mainspring.services.held import Held
from mainspring.services.loop import Loop, log
from mainspring.services.reporter import Reporter
from mainspring.settings import Settings
from mainspring.store import Store

DRAIN_LOOK_S = 0.02
EXIT_UNSTOPPABLE = 70


def end_process() -> None:
    """The last resort: work that lost its claim and cannot be stopped must not go on."""
    os._exit(EXIT_UNSTOPPABLE)


class Worker:
    """Assembles the loops. `crew_loop` is the loop on which tasks run; it may be the same as the worker's own."""

    def __init__(
        self,
        store: Store,
        row: WorkerRow,
        executor_of: Callable[[str], Executor],
        crew_loop: asyncio.AbstractEventLoop,
        settings: Settings,
        clock: Clock,
        random: Random,
        on_unstoppable: Callable[[], None] = end_process,
    ) -> None:
        self.row = row
        self._store = store
        self._clock = clock
        self._settings = settings
        self._crew_loop = crew_loop
        self._own_loop = asyncio.get_running_loop()
        self._on_unstoppable = on_unstoppable
        self._told = False
        self.held = Held(clock)
        self.crew = Crew(executor_of, row.concurrency, clock, store.now, self._tell_done)
        self.claimer = Claimer(store, row, self.held, self._hand_over, settings, clock, random)
        self.reporter = Reporter(store, self.crew, self.held, self.claimer.wake, settings, clock, random)
        self.heart = Heart(store, row, self.held, self._stop_run, settings, clock, random)

    @property
    def loops(self) -> Iterable[Loop]:
        """What has to run."""
        return (self.claimer, self.reporter, self.heart)

    def wake(self) -> None:
        """Something changed: there may be work, or a cancel."""
        self.claimer.wake()
        if len(self.held):
            self.heart.wake()

    def _on_crew(self, call: Callable[..., object], *args: object) -> None:
        if self._crew_loop is self._own_loop:
            call(*args)
        else:
            self._crew_loop.call_soon_threadsafe(call, *args)

    def _hand_over(self, attempts: list[AttemptContext]) -> None:
        self._on_crew(self.crew.begin, attempts)

    def _tell_done(self) -> None:
        """Called on the crew's loop; many ends before the reporter looks are told once."""
        if self._crew_loop is self._own_loop:
            self.reporter.wake()
        elif not self._told:
            self._told = True
            self._own_loop.call_soon_threadsafe(self._hear_done)

    def _hear_done(self) -> None:
        self._told = False
        self.reporter.wake()

    def _stop_run(self, run_id: str, kind: StopKind, reason: str) -> None:
        if kind == "fenced" and run_id in self.crew.unstoppable():
            log.critical(
                "run %s has lost its claim and runs in a thread that cannot be stopped: ending the process", run_id
            )
            self._on_unstoppable()
        self._on_crew(self.crew.stop, run_id, kind, reason)

    async def register(self, state: Literal["active", "draining", "stopped"] = "active") -> None:
        """Let the store know of this worker."""
        self.row = msgspec.structs.replace(self.row, state=state, running=len(self.held))
        await self._store.register(self.row)

    async def drain(self, grace_s: float | None = None) -> None:
        """Claim no more, give back what has not started, let the rest finish within the grace, give back what did
        not."""
        self.claimer.stop()
        await self.register("draining")
        waiting = await self._ask_crew(self.crew.take_waiting)
        await self._give_back(waiting)
        grace_s = self._settings.drain_grace / SECOND if grace_s is None else grace_s
        deadline = self._clock.monotonic() + grace_s
        while len(self.held) and self._clock.monotonic() < deadline:
            await self._clock.sleep(DRAIN_LOOK_S)
        late = self.held.claims()
        for run_id, _ in late:
            self._on_crew(self.crew.stop, run_id, "handed_back", "")
        if late:
            await self._clock.sleep(DRAIN_LOOK_S)
            await self._give_back(late)
        while not self.reporter.idle:
            await self.reporter.turn()

    async def _give_back(self, claims: list[tuple[str, int]]) -> None:
        if claims:
            count = await self._store.hand_back(claims)
            self.held.remove(claims)
            log.info("%d runs handed back", count)

    async def _ask_crew(self, question: Callable[[], list[tuple[str, int]]]) -> list[tuple[str, int]]:
        if self._crew_loop is self._own_loop:
            return question()

        async def ask() -> list[tuple[str, int]]:
            return question()

        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(ask(), self._crew_loop))
