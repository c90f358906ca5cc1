"""Keeps the board: posts what numbered events tell of runs and workers, in their order, where the node leads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final

from mainspring.cache import Board, Mark
from mainspring.clock import Clock
from mainspring.core.instants import SECOND, Duration
from mainspring.core.model import EventBatch
from mainspring.core.runs.status import Posting, posting_of
from mainspring.errors import BrokerUnavailable
from mainspring.services.breaker import Switch
from mainspring.services.loop import Loop
from mainspring.store import Store

BATCH: Final = 200
BUSY_S: Final = 0.02
IDLE_S: Final = 0.25
AGAIN_S: Final = 0.5
"""The mark is moved so often though nothing has happened: or it would be gone."""
AWAY_S: Final = 0.4
"""How soon to try again: so soon that the breaker sees that it was not by chance."""
LATE: Duration = 2 * SECOND
"""Where the events to be posted are so old, the store knows better."""


class Poster(Loop):
    """Two that lead at once post the same, and one of them moves the mark. A board that does not answer is tried again:
    nobody waits for it."""

    name = "poster"

    def __init__(self, store: Store, board: Board, leads: Callable[[], bool], clock: Clock, random: Random) -> None:
        super().__init__(clock, random)
        self._store = store
        self._board = board
        self._leads = leads
        self._switch = Switch(
            store, clock, "poster", kind="cache", lost="statuses are not kept", back="statuses are kept again"
        )
        self._mark: Mark | None = None
        self._moved_at = clock.monotonic()

    async def turn(self) -> float:
        if not self._leads():
            self._mark = None
            return IDLE_S
        try:
            return await self._pass()
        except BrokerUnavailable:
            return AWAY_S

    async def _pass(self) -> float:
        mark = self._mark
        if mark is None:
            mark = await self._begin()
        batches = await self._store.events_since(mark.position, BATCH)
        postings = _newest(batches)
        if postings:
            await self._switch.call(lambda: self._board.post(mark.epoch, postings))
        await self._move(mark, batches)
        if len(batches) >= BATCH:
            return 0.0
        return BUSY_S if batches else IDLE_S

    async def _begin(self) -> Mark:
        """Go on from where the board is; with a new epoch, if nobody knows where that was."""
        fresh = Mark(f"{self._random.getrandbits(64):016x}", await self._store.next_position())
        return await self._switch.call(lambda: self._board.advance(None, fresh)) or fresh

    async def _move(self, mark: Mark, batches: Sequence[EventBatch]) -> None:
        now = self.clock.monotonic()
        if not batches and self._mark is not None and now - self._moved_at < AGAIN_S:
            return
        after = mark._replace(late=False)
        if batches:
            last = batches[-1]
            late = self._store.now() - last.events[-1].at > LATE
            after = Mark(mark.epoch, last.position + len(last.events), late)
        there = await self._switch.call(lambda: self._board.advance(mark, after))
        self._mark = after if there == after else None  # Another has moved it, or it is gone.
        self._moved_at = now


def _newest(batches: Sequence[EventBatch]) -> list[Posting]:
    """What events tell, the last word on each subject only."""
    newest: dict[str, Posting] = {}
    for batch in batches:
        for number, event in enumerate(batch.events):
            posting = posting_of(event, batch.position + number)
            if posting is not None:
                newest[posting.subject] = posting
    return list(newest.values())
