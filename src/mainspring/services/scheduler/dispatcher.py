"""Publishes what is due: soon after it is, and again for as long as no worker has claimed it.

A broker that was emptied is thereby filled again, and a message that was lost is sent again. Only the first of each
queue, region and priority are published: the rest follow as these are claimed.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from mainspring.broker import Broker, Notice
from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.services.broker_metrics import measured_publish
from mainspring.services.loop import Loop
from mainspring.store import Store

LIMIT: Final = 2_000
"""Published at once of each queue, region and priority."""
FULL_GAP_S: Final = 0.25
"""While there are more, workers find them in the store: see `broker_source`."""
GAP_S: Final = 0.01
"""Runs that come due within this time are published together."""
AGAIN_S: Final = 1.0
"""How soon to publish again what no worker has claimed."""
AGAIN_TWICE_S: Final = 15.0
"""As AGAIN_S, for a broker that would then hold the message twice. Workers find in the store what it lost, within a
second."""
LONGEST_WAIT_S: Final = 0.5


class Dispatcher(Loop):
    """Runs where the node leads. Two leaders at once publish the same twice, which does no harm."""

    name = "dispatcher"

    def __init__(self, store: Store, broker: Broker, leads: Callable[[], bool], clock: Clock, random: Random) -> None:
        super().__init__(clock, random)
        self._store = store
        self._broker = broker
        self._leads = leads
        self._looked_at = -GAP_S
        self._again_s = AGAIN_S if broker.capabilities.deduplicates else AGAIN_TWICE_S
        self._published: dict[str, tuple[int, float]] = {}
        """Token and time of what was published lately."""

    async def turn(self) -> float:
        if not self._leads():
            self._published.clear()
            return LONGEST_WAIT_S
        now = self.clock.monotonic()
        if now < self._looked_at + GAP_S:
            return self._looked_at + GAP_S - now
        due, next_at = await self._store.due_runs(LIMIT)
        self._looked_at = self.clock.monotonic()
        news = [notice for notice in due if self._is_news(notice, now)]
        if news:
            await measured_publish(self._broker, news, self._store.metrics, self.clock)
        self._published = {notice.run_id: self._published.get(notice.run_id, (0, 0.0)) for notice in due} | {
            notice.run_id: (notice.token, now) for notice in news
        }
        if len(due) >= LIMIT:
            self._looked_at += FULL_GAP_S - GAP_S
            return FULL_GAP_S
        wait_s = LONGEST_WAIT_S if next_at is None else (next_at - self._store.now()) / SECOND
        return min(max(wait_s, GAP_S), LONGEST_WAIT_S)

    def _is_news(self, notice: Notice, now: float) -> bool:
        token, published_at = self._published.get(notice.run_id, (-1, 0.0))
        return token != notice.token or now - published_at >= self._again_s
