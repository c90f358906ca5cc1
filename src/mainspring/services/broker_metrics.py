"""What is measured of a broker: how long publishing takes, and what waits in its queues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from mainspring.broker import Broker, Notice
from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.errors import BrokerUnavailable
from mainspring.process.metrics import Metrics
from mainspring.services.loop import Loop, log

EVERY_S: Final = 10.0
"""How often the depths are read. Scrapers come every 15 s or so, and SQS charges for each request."""
ASIDE_S: Final = 2.0
"""How often a process that does not lead looks whether it does."""


async def measured_publish(broker: Broker, notices: Sequence[Notice], metrics: Metrics, clock: Clock) -> None:
    """Publish, and record how long that took if it succeeded. Failures are the circuit breaker's to count."""
    began = clock.monotonic()
    await broker.publish(notices)
    metrics.broker_publish.add(round((clock.monotonic() - began) * SECOND))


class DepthReader(Loop):
    """Reads the depths of the broker's queues where the node leads, so that the fleet asks once. The leader publishes
    every due run that no worker has claimed, so it knows every queue that has something waiting."""

    name = "broker_depths"

    def __init__(
        self, broker: Broker, leads: Callable[[], bool], metrics: Metrics, clock: Clock, random: Random
    ) -> None:
        super().__init__(clock, random)
        self._broker = broker
        self._leads = leads
        self._metrics = metrics

    async def turn(self) -> float:
        if not self._leads():
            self._metrics.broker_depths = {}
            return ASIDE_S
        try:
            depths = await self._broker.depth()
        except BrokerUnavailable as error:
            log.debug("the depths of the broker are unknown: %s", error)
            depths = []
        self._metrics.broker_depths = {(*each.place, each.source): each.waiting for each in depths}
        return EVERY_S
