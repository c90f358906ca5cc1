"""Sends alerts about runs that have failed for good, by submitting runs that send them.

No failure is left out, whichever process dies: the position is in the store, and the next process goes on from there.
"""

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
"""How often to ask whether there are recipients at all, and whether this process is on duty."""
NOTE_S = 5.0
"""How often to store the position while there is nothing to send. Events that are read again cause no second alert: the
id of an alert's run follows from that of the failed run."""
_FAILED = f"run.{FAILED}"


async def expect_alerts(store: EventStore) -> int:
    """Send alerts from now on; returns the position from which failures are looked for."""
    position = await store.heard(LISTENER)
    if position is None:
        position = await store.next_position()
        await store.note_heard(LISTENER, position)
    return position


class Alerter(Loop):
    """Acts while on duty, once there are recipients: `wanted` here, or noted by a worker whose run names one."""

    name = "alerter"

    def __init__(
        self,
        store: Store,
        on_duty: Callable[[], bool],
        default_recipient: str | None,
        clock: Clock,
        random: Random,
        *,
        wanted: bool,
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._on_duty = on_duty
        self._default_recipient = default_recipient
        self._wanted = wanted or default_recipient is not None
        self._position: int | None = None
        self._noted_at = clock.monotonic()

    async def turn(self) -> float:
        if self._wanted:
            await expect_alerts(self._store)
            self._wanted = False
        if not self._on_duty():
            self._position = None  # Another process goes on.
            return ASIDE_S
        if self._position is None:
            self._position = await self._store.heard(LISTENER)
            if self._position is None:
                return ASIDE_S
        batches = await self._store.events_since(self._position, BATCH)
        failures = await self._send_alerts(batches)
        if batches:
            self._position = batches[-1].position + len(batches[-1].events)
            if failures or self.clock.monotonic() - self._noted_at >= NOTE_S:
                await self._store.note_heard(LISTENER, self._position)
                self._noted_at = self.clock.monotonic()
        return 0.0 if len(batches) >= BATCH else IDLE_S

    async def _send_alerts(self, batches: Sequence[EventBatch]) -> int:
        """How many failures there were."""
        failures = [event for batch in batches for event in batch.events if event.kind == _FAILED]
        for event in failures:
            try:
                await self._send_alert(event.namespace, event.run_id or "")
            except StoreUnavailable:
                raise
            except (MainspringError, ValueError) as error:
                log.error("run %s has failed, and its alert could not be submitted: %s", event.run_id, error)
        return len(failures)

    async def _send_alert(self, namespace: str, run_id: str) -> None:
        try:
            run = await self._store.get_run(namespace, run_id)
        except NotFound:
            return
        alert = alert_of(run, self._default_recipient, self._store.now())
        if alert is not None:
            await self._store.submit([alert])
