"""No broker: the store tells what is due."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mainspring.broker import Delivery, Notice
from mainspring.core.model import Worker
from mainspring.core.runs.priority import Ordering, rank
from mainspring.store import DispatchStore


class DirectBroker:
    """See `broker.Broker`. Nothing is under way: several may receive the same, and the claim decides."""

    def __init__(self, store: DispatchStore, ordering: Ordering) -> None:
        self._store = store
        self._ordering: Ordering = ordering

    async def publish(self, notices: Sequence[Notice]) -> None:
        """The store knows."""

    async def receive(self, worker: Worker, limit: int) -> list[Delivery]:
        due, _ = await self._store.due_runs(limit)
        served = [
            notice
            for notice in due
            if notice.namespace == worker.namespace
            and notice.queue in worker.queues
            and notice.region in worker.regions
            and notice.priority in worker.priorities
        ]
        served.sort(key=lambda notice: rank(notice.priority, notice.due_at, self._ordering))
        return [Delivery(notice.run_id, notice.token, None) for notice in served[:limit]]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """The store knows."""

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """They never left."""

    def on_arrival(self, worker: Worker, listener: Callable[[], None]) -> Callable[[], None]:
        return lambda: None

    async def close(self) -> None:
        """The store is closed by whoever opened it."""
