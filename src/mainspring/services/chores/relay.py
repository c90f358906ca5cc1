"""Tells what happened: numbers the events of committed transactions where the node leads, and passes them to this
node's sinks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from mainspring.clock import Clock
from mainspring.services.loop import Loop
from mainspring.sink import Sink
from mainspring.store import EventStore

BATCH = 200
BUSY_S = 0.02
IDLE_S = 0.25
QUIET_AFTER_S, QUIET_S = 5.0, 2.0
"""Where nothing has happened for so long, it looks so often; hints of changes wake it."""


class Relay(Loop):
    """Each sink sees every event from `position` on, in order, at least once."""

    name = "relay"

    def __init__(
        self, store: EventStore, leads: Callable[[], bool], sinks: Sequence[Sink], clock: Clock, random: Random
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._leads = leads
        self._sinks = sinks
        self._position: int | None = None
        self.idle_s = IDLE_S
        self._news_at = clock.monotonic()

    async def turn(self) -> float:
        """After a pass with news, wait a moment: what happens meanwhile is told together."""
        told = await self._pass()
        if told >= BATCH:
            return 0.0
        now = self.clock.monotonic()
        if told:
            self._news_at = now
            return BUSY_S
        return self.idle_s if now - self._news_at < QUIET_AFTER_S else max(self.idle_s, QUIET_S)

    @property
    def is_quiet(self) -> bool:
        """Whether nothing has happened for long: then it is to be woken by a hint."""
        return self.clock.monotonic() - self._news_at >= QUIET_AFTER_S

    async def finish(self) -> None:
        """Stop, and tell everything that has happened so far, also where this node no longer leads: nobody else may be
        there to do it."""
        await self.halt()
        while await self._pass(number=True) >= BATCH:
            pass

    async def _pass(self, *, number: bool = False) -> int:
        if self._sinks and self._position is None:
            self._position = await self._store.next_position()
        numbered = await self._store.number_events(BATCH) if number or self._leads() else 0
        batches = [] if self._position is None else await self._store.events_since(self._position, BATCH)
        if batches:
            for sink in self._sinks:
                await sink.deliver(batches)
            self._position = batches[-1].position + len(batches[-1].events)
        return max(numbered, len(batches))
