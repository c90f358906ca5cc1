"""Relays events: numbers those of committed transactions while on duty, and passes them to this process's sinks."""

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
"""After this long without events, look only this often. Hints of changes wake the loop."""


class Relay(Loop):
    """Each sink receives every event from its starting position on, in order, at least once."""

    name = "relay"

    def __init__(
        self, store: EventStore, on_duty: Callable[[], bool], sinks: Sequence[Sink], clock: Clock, random: Random
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._on_duty = on_duty
        self._sinks = sinks
        self._position: int | None = None
        self.idle_s = IDLE_S
        self._news_at = clock.monotonic()
        self.on_numbered: Callable[[], None] = lambda: None
        """Called when events have become public."""

    async def turn(self) -> float:
        """After a pass with events, wait a moment: the events of that time are relayed together."""
        relayed = await self._pass()
        if relayed >= BATCH:
            return 0.0
        now = self.clock.monotonic()
        if relayed:
            self._news_at = now
            return BUSY_S
        return self.idle_s if now - self._news_at < QUIET_AFTER_S else max(self.idle_s, QUIET_S)

    def hint(self) -> None:
        """The store has changed. While the loop looks often anyway, it need not look at each change."""
        if self.idle_s >= QUIET_S or self.clock.monotonic() - self._news_at >= QUIET_AFTER_S:
            self.wake()

    async def finish(self) -> None:
        """Stop, and relay everything that has happened, even where this process is no longer on duty: there may be no
        other process to do it."""
        await self.halt()
        while await self._pass(number=True) >= BATCH:
            pass

    async def _pass(self, *, number: bool = False) -> int:
        if self._sinks and self._position is None:
            self._position = await self._store.next_position()
        numbered = await self._store.number_events(BATCH) if number or self._on_duty() else 0
        if numbered:
            self.on_numbered()
        batches = [] if self._position is None else await self._store.events_since(self._position, BATCH)
        if batches:
            for sink in self._sinks:
                await sink.deliver(batches)
            self._position = batches[-1].position + len(batches[-1].events)
        return max(numbered, len(batches))
