"""Tells somebody of runs that have failed for good, by submitting a run that does."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.core.alerts import alert_of
from mainspring.core.model import EventBatch
from mainspring.core.states import FAILED
from mainspring.errors import NotFound
from mainspring.store import Store

_FAILED = f"run.{FAILED}"


class AlertSink:
    """However often it hears of a failure, there is one run that tells of it: its id follows from the failed run's."""

    def __init__(self, store: Store, everybody: str | None) -> None:
        self._store = store
        self._everybody = everybody

    async def deliver(self, batches: Sequence[EventBatch]) -> None:
        for batch in batches:
            for event in batch.events:
                if event.kind == _FAILED and event.run_id is not None:
                    await self._tell(event.namespace, event.run_id)

    async def _tell(self, namespace: str, run_id: str) -> None:
        try:
            run = await self._store.get_run(namespace, run_id)
        except NotFound:
            return
        alert = alert_of(run, self._everybody, self._store.now())
        if alert is not None:
            await self._store.submit([alert])
