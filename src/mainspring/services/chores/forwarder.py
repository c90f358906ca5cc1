"""Sends every event on to a sink: in order, at least once, whichever process dies.

The position is in the store. The process on duty goes on from there; a sink that fails gets the same events again.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Final

from mainspring.clock import Clock
from mainspring.errors import BackendUnavailable
from mainspring.services.loop import Loop, log
from mainspring.sink import Sink
from mainspring.store import EventStore

BATCH: Final = 1_000
"""Transactions that are sent together."""
IDLE_S: Final = 0.25
ASIDE_S: Final = 2.0
"""How often a process that is not on duty looks whether it is."""
AGAIN_S: Final = 1.0
LAST_ROUNDS: Final = 10
"""How much a process that ends still sends: the next process goes on from the position."""


class Forwarder(Loop):
    """Acts while on duty. `listener` is the name under which the store keeps the position."""

    name = "forwarder"

    def __init__(
        self, store: EventStore, listener: str, sink: Sink, on_duty: Callable[[], bool], clock: Clock, random: Random
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._listener = f"sink:{listener}"
        self._sink = sink
        self._on_duty = on_duty
        self._position: int | None = None
        self._failing = False

    async def turn(self) -> float:
        if not self._on_duty():
            self._position = None  # Another process goes on.
            return ASIDE_S
        return 0.0 if await self._forward() >= BATCH else AGAIN_S if self._failing else IDLE_S

    async def finish(self) -> None:
        """Stop, and send what has happened so far."""
        await self.halt()
        for _ in range(LAST_ROUNDS):
            if await self._forward() < BATCH:
                return

    async def close(self) -> None:
        """Close the sink."""
        with suppress(BackendUnavailable):
            await self._sink.close()

    async def _forward(self) -> int:
        """How many transactions were sent on."""
        if self._position is None:
            self._position = await self._begin()
        batches = [batch.since(self._position) for batch in await self._store.events_since(self._position, BATCH)]
        if not batches:
            return 0
        if (lost := batches[0].position - self._position) > 0:
            log.error(
                "%d events were deleted before they were sent: the sink was away for longer than they are kept", lost
            )
            self._position = batches[0].position
        try:
            await self._sink.deliver(batches)
        except BackendUnavailable as error:
            if not self._failing:
                log.warning("events wait in the store: %s", error)
            self._failing = True
            return 0
        if self._failing:
            log.warning("events are sent on again")
        self._failing = False
        self._position = batches[-1].position + len(batches[-1].events)
        await self._store.note_heard(self._listener, self._position)
        return len(batches)

    async def _begin(self) -> int:
        """The position that was noted; for a sink that was never named before, that of the next event."""
        position = await self._store.heard(self._listener)
        if position is None:
            position = await self._store.next_position()
            await self._store.note_heard(self._listener, position)
        return position
