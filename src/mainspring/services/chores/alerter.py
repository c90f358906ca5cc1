"""Tells somebody of runs that have failed for good, by submitting a run that does. No failure is passed over, whoever
dies when: where it has got to is in the store, and whoever leads next goes on from there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from mainspring.clock import Clock
from mainspring.core.model import EventBatch
from mainspring.core.runs.alerts import LISTENER, alert_of
from mainspring.core.states import FAILED
from mainspring.errors import MainspringError, NotFound, StoreUnavailable
from mainspring.services.loop import Loop, log
from mainspring.store import EventStore, Store

BATCH = 200
IDLE_S = 0.25
ASIDE_S = 5.0
"""How often to ask whether anybody is to be told at all, and whether this node leads."""
NOTE_S = 5.0
"""How often to note where it has got to while there is nothing to tell. What is looked at again is told once: the id of
the run that tells follows from that of the run that failed."""
_FAILED = f"run.{FAILED}"


async def expect_alerts(store: EventStore) -> int:
    """From now on failures have to be told: the position from which on they are looked for."""
    position = await store.heard(LISTENER)
    if position is None:
        position = await store.next_position()
        await store.note_heard(LISTENER, position)
    return position


class Alerter(Loop):
    """Works where the node leads, once somebody is to be told: `wanted` here, or noted by a worker that was given a run
    which names somebody."""

    name = "alerter"

    def __init__(
        self,
        store: Store,
        leads: Callable[[], bool],
        everybody: str | None,
        clock: Clock,
        random: Random,
        *,
        wanted: bool,
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._leads = leads
        self._everybody = everybody
        self._wanted = wanted or everybody is not None
        self._position: int | None = None
        self._noted_at = clock.monotonic()

    async def turn(self) -> float:
        if self._wanted:
            await expect_alerts(self._store)
            self._wanted = False
        if not self._leads():
            self._position = None  # Another goes on with it.
            return ASIDE_S
        if self._position is None:
            self._position = await self._store.heard(LISTENER)
            if self._position is None:
                return ASIDE_S
        batches = await self._store.events_since(self._position, BATCH)
        told = await self._tell(batches)
        if batches:
            self._position = batches[-1].position + len(batches[-1].events)
            if told or self.clock.monotonic() - self._noted_at >= NOTE_S:
                await self._store.note_heard(LISTENER, self._position)
                self._noted_at = self.clock.monotonic()
        return 0.0 if len(batches) >= BATCH else IDLE_S

    async def _tell(self, batches: Sequence[EventBatch]) -> int:
        """How many failures there were."""
        failures = [event for batch in batches for event in batch.events if event.kind == _FAILED]
        for event in failures:
            try:
                await self._tell_of(event.namespace, event.run_id or "")
            except StoreUnavailable:
                raise
            except (MainspringError, ValueError) as error:
                log.error("run %s has failed, and nobody could be told: %s", event.run_id, error)
        return len(failures)

    async def _tell_of(self, namespace: str, run_id: str) -> None:
        try:
            run = await self._store.get_run(namespace, run_id)
        except NotFound:
            return
        alert = alert_of(run, self._everybody, self._store.now())
        if alert is not None:
            await self._store.submit([alert])
