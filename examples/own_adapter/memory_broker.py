"""A broker of one's own, in 60 lines: it carries notices within one process, by the name `memory://`.

An adapter is a class that takes `(url, context)` and fulfils its port. A package offers it by an entry point in its
pyproject.toml; after `pip install`, `MAINSPRING_BROKER=memory://` finds it:

    [project.entry-points."mainspring.adapters"]
    "broker.memory" = "memory_broker:MemoryBroker"

`mainspring.conformance.BrokerConformance` proves that it works: see docs/adapters.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from mainspring.adapter import AdapterContext
from mainspring.broker import Capabilities, Delivery, Depth, Notice
from mainspring.core.model import Worker
from mainspring.core.runs.priority import PRIORITIES, rank

UNACKNOWLEDGED_S = 5.0
"""A delivery that is not acknowledged for this long goes to another subscription."""


class MemoryBroker:
    """See `mainspring.broker.Broker`."""

    capabilities = Capabilities()

    def __init__(self, url: str, context: AdapterContext) -> None:
        self.ordering, self.clock = context.settings.ordering, context.clock
        self.waiting: dict[tuple[str, int], Notice] = {}
        self.taken: dict[tuple[str, int], tuple[float, Notice]] = {}
        self.listeners: dict[object, Callable[[Notice], None]] = {}

    async def publish(self, notices: Sequence[Notice]) -> None:
        for notice in notices:
            if (name := notice[:2]) not in self.taken and name not in self.waiting:
                self.waiting[name] = notice
                for listener in list(self.listeners.values()):
                    listener(notice)

    async def subscribe(self, worker: Worker, on_arrival: Callable[[], None]) -> MemorySubscription:
        return MemorySubscription(self, worker, on_arrival)

    async def depth(self) -> list[Depth]:
        counts = Counter(notice.place for notice in self.waiting.values())
        return [Depth(place, count) for place, count in counts.items()]

    async def ping(self) -> None:
        """Memory always answers."""

    async def close(self) -> None:
        self.listeners.clear()


class MemorySubscription:
    """See `mainspring.broker.Subscription`."""

    def __init__(self, broker: MemoryBroker, worker: Worker, on_arrival: Callable[[], None]) -> None:
        self._broker, self._worker = broker, worker
        broker.listeners[self] = lambda notice: on_arrival() if self._serves(notice) else None

    def _serves(self, notice: Notice) -> bool:
        worker = self._worker
        return (
            notice.namespace == worker.namespace and notice.queue in worker.queues and notice.region in worker.regions
        )

    async def receive(self, limit: int, priorities: Sequence[int] = PRIORITIES) -> list[Delivery]:
        broker, now = self._broker, self._broker.clock.monotonic()
        for name, (until, notice) in list(broker.taken.items()):
            if until < now:
                del broker.taken[name]
                broker.waiting[name] = notice
        found = [each for each in broker.waiting.values() if self._serves(each) and each.priority in priorities]
        found.sort(key=lambda notice: rank(notice.priority, notice.due_at, broker.ordering))
        for notice in found[:limit]:
            broker.taken[notice[:2]] = now + UNACKNOWLEDGED_S, broker.waiting.pop(notice[:2])
        return [Delivery(notice.run_id, notice.token, self) for notice in found[:limit]]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            self._broker.taken.pop(each[:2], None)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        for each in deliveries:
            if (held := self._broker.taken.pop(each[:2], None)) is not None:
                self._broker.waiting[each[:2]] = held[1]

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Deliveries need no extension."""

    async def close(self) -> None:
        self._broker.listeners.pop(self, None)
