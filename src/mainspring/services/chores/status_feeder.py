"""Feeds the status cache with what numbered events say of runs and workers, in their order, where the node leads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from mainspring.cache import Mark, StatusCache
from mainspring.clock import Clock
from mainspring.core.instants import SECOND, Duration
from mainspring.core.model import EventBatch
from mainspring.core.runs.status import Posting, posting_of
from mainspring.errors import CacheUnavailable
from mainspring.services.breaker import CircuitBreaker
from mainspring.services.loop import Loop
from mainspring.store import Store

BATCH: Final = 200
BUSY_S: Final = 0.02
IDLE_S: Final = 0.25
AGAIN_S: Final = 0.5
"""How often the mark is moved although nothing has happened, so that it does not expire."""
AWAY_S: Final = 0.4
"""How soon to try again: soon enough that the breaker counts two failures within its window."""
LATE: Duration = 2 * SECOND
"""Where the newest event that was written is older than this, readers ask the store."""


class StatusFeeder(Loop):
    """Two leaders at once write the same, and one of them moves the mark. A cache that does not answer is tried again
    later; nothing waits for it."""

    name = "status-feeder"

    def __init__(
        self, store: Store, cache: StatusCache, leads: Callable[[], bool], clock: Clock, random: Random
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._cache = cache
        self._leads = leads
        self._breaker = CircuitBreaker(
            store,
            clock,
            "status-feeder",
            kind="cache",
            lost="statuses are not cached",
            back="statuses are cached again",
            unavailable=CacheUnavailable,
        )
        self._mark: Mark | None = None
        self._moved_at = clock.monotonic()

    async def turn(self) -> float:
        if not self._leads():
            self._mark = None
            return IDLE_S
        try:
            return await self._pass()
        except CacheUnavailable:
            return AWAY_S

    async def _pass(self) -> float:
        mark = self._mark
        if mark is None:
            mark = await self._begin()
        batches = await self._store.events_since(mark.position, BATCH)
        postings = _newest(batches)
        if postings:
            await self._breaker.call(lambda: self._cache.write(mark.epoch, postings))
        await self._move(mark, batches)
        if len(batches) >= BATCH:
            return 0.0
        return BUSY_S if batches else IDLE_S

    async def _begin(self) -> Mark:
        """Continue where the cache is; with a new epoch if it has no mark."""
        fresh = Mark(f"{self._random.getrandbits(64):016x}", await self._store.next_position())
        return await self._breaker.call(lambda: self._cache.advance(None, fresh)) or fresh

    async def _move(self, mark: Mark, batches: Sequence[EventBatch]) -> None:
        now = self.clock.monotonic()
        if not batches and self._mark is not None and now - self._moved_at < AGAIN_S:
            return
        after = mark._replace(late=False)
        if batches:
            last = batches[-1]
            late = self._store.now() - last.events[-1].at > LATE
            after = Mark(mark.epoch, last.position + len(last.events), late)
        there = await self._breaker.call(lambda: self._cache.advance(mark, after))
        self._mark = after if there == after else None  # Another has moved it, or it is gone.
        self._moved_at = now


def _newest(batches: Sequence[EventBatch]) -> list[Posting]:
    """What events say: the latest of each subject only."""
    newest: dict[str, Posting] = {}
    for batch in batches:
        for number, event in enumerate(batch.events):
            posting = posting_of(event, batch.position + number)
            if posting is not None:
                newest[posting.subject] = posting
    return list(newest.values())
