"""Publishes what is due: soon after it is, and again for as long as no worker has claimed it.

A broker that was emptied is thereby filled again, and a message that was lost is sent again. Only the first of each
queue, region and priority are published. Where more are due, their messages say so, and workers claim from the store.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import inf
from random import Random
from typing import Final

from mainspring.broker import Broker, Notice, Place
from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.services.broker_metrics import measured_publish
from mainspring.services.loop import Loop
from mainspring.store import Store

LIMIT: Final = 50
"""How many runs of each queue, region and priority are published at once: as many workers are woken."""
FULL_GAP_S: Final = 0.25
"""How often to publish where more are due: the workers that were woken find them in the store (`broker_source`)."""
GAP_S: Final = 0.01
"""Runs that come due within this time are published together."""
AGAIN_S: Final = 1.0
"""How soon to publish again what no worker has claimed."""
AGAIN_TWICE_S: Final = 15.0
"""As AGAIN_S, for a broker that would then hold the message twice. Workers find in the store what it lost, within a
second."""
LONGEST_WAIT_S: Final = 0.5
Group = tuple[Place, int]
"""A place and a priority."""


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
        self._full: dict[Group, float] = {}
        """The places and priorities where more are due, and when some were last published there."""

    async def turn(self) -> float:
        if not self._leads():
            self._published.clear()
            self._full.clear()
            return LONGEST_WAIT_S
        now = self.clock.monotonic()
        if now < self._looked_at + GAP_S:
            return self._looked_at + GAP_S - now
        due, next_at = await self._store.due_runs(LIMIT)
        self._looked_at = self.clock.monotonic()
        groups: dict[Group, list[Notice]] = {}
        for notice in due:
            groups.setdefault((notice.place, notice.priority), []).append(notice)
        news = [notice for group, notices in groups.items() for notice in self._news_of(group, notices, now)]
        if news:
            await measured_publish(self._broker, news, self._store.metrics, self.clock)
        self._note(due, groups, news, now)
        wait_s = LONGEST_WAIT_S if next_at is None else (next_at - self._store.now()) / SECOND
        return min(max(wait_s, GAP_S), FULL_GAP_S if self._full else LONGEST_WAIT_S)

    def _news_of(self, group: Group, due: Sequence[Notice], now: float) -> list[Notice]:
        """What is to be published of the runs of one place and priority. Where more are due, that is at least one: no
        worker may be able to execute the first runs, while others wait behind them."""
        news = [notice for notice in due if self._is_news(notice, now)]
        if len(due) < LIMIT:
            return news
        if now < self._full.get(group, -inf) + FULL_GAP_S:
            return []
        return [notice.with_more() for notice in news or due[:1]]

    def _note(
        self, due: Sequence[Notice], groups: Mapping[Group, Sequence[Notice]], news: Sequence[Notice], now: float
    ) -> None:
        sent = {notice.run_id for notice in news}
        self._published = {
            notice.run_id: (notice.token, now) if notice.run_id in sent else self._published[notice.run_id]
            for notice in due
            if notice.run_id in sent or notice.run_id in self._published
        }
        published = {(notice.place, notice.priority) for notice in news}
        full = [group for group, notices in groups.items() if len(notices) >= LIMIT]
        self._full = {group: now if group in published else self._full.get(group, now) for group in full}

    def _is_news(self, notice: Notice, now: float) -> bool:
        token, published_at = self._published.get(notice.run_id, (-1, 0.0))
        return token != notice.token or now - published_at >= self._again_s
