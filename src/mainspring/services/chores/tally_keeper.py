"""Keeps the tallies and the error groups: reads the numbered events, and adds up what they say.

The position is stored with the counts, in one transaction. So every event is counted once, whichever process dies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Final

from mainspring.clock import Clock
from mainspring.core.answers import SeenFailure
from mainspring.core.instants import EARLIEST, Duration
from mainspring.core.model import Event
from mainspring.core.runs.errors import kind_of_error
from mainspring.core.runs.tallies import NO_LEVELS, Tally, TallyKey, period_of, tally_events
from mainspring.core.states import FAILED
from mainspring.services.loop import Loop
from mainspring.store import Store

BATCH: Final = 500
"""Transactions that are counted together."""
BUSY_S: Final = 1.0
"""How often to count while there are events: what a second brings changes the same few rows."""
QUIET_AFTER_S: Final = 5.0
QUIET_S: Final = 30.0
"""After this long without events, look only this often. The relay wakes the loop when it numbers some."""
LAST_ROUNDS: Final = 10
"""How much a process that ends still counts: the next one goes on from the position."""
_FAILED: Final = f"run.{FAILED}"


class TallyKeeper(Loop):
    """Acts while on duty. Of two that count at once, the store accepts one."""

    name = "tally-keeper"

    def __init__(
        self,
        store: Store,
        on_duty: Callable[[], bool],
        clock: Clock,
        random: Random,
        levels: Mapping[int, Duration] = NO_LEVELS,
    ) -> None:
        """`levels` are the service levels by priority."""
        super().__init__(clock, random)
        self._store = store
        self._on_duty = on_duty
        self._levels = levels
        self._position: int | None = None
        self._news_at = clock.monotonic()

    async def turn(self) -> float:
        if not self._on_duty():
            self._position = None  # Another process goes on.
            return QUIET_S
        counted = await self._count()
        now = self.clock.monotonic()
        if counted:
            self._news_at = now
        if counted >= BATCH:
            return 0.0
        return BUSY_S if now - self._news_at < QUIET_AFTER_S else QUIET_S

    def hint(self) -> None:
        """There are new events. While the loop looks often anyway, it need not look at once."""
        if self.clock.monotonic() - self._news_at >= QUIET_AFTER_S:
            self._news_at = self.clock.monotonic()
            self.wake()

    async def finish(self) -> None:
        """Stop, and count what has happened so far."""
        await self.halt()
        for _ in range(LAST_ROUNDS):
            if await self._count() < BATCH:
                return

    async def _count(self) -> int:
        """Count the next events; how many transactions they came in."""
        store, position = self._store, self._position
        if position is None:
            position = await self._begin()
        batches = await store.events_since(position, BATCH)
        if not batches:
            self._position = position
            return 0
        following = batches[-1].position + len(batches[-1].events)
        events = [event for batch in batches for event in batch.events]
        failures = await self._seen(events)
        counted = await store.add_tallies(
            position, following, tally_events(events, self._levels) | _failed(failures), failures
        )
        self._position = following if counted else None
        return len(batches)

    async def _begin(self) -> int:
        """The position that was noted; the first time, that of the oldest event that is kept."""
        position = await self._store.tallied()
        if position is None:
            position = await self._store.position_at(EARLIEST)
            if not await self._store.add_tallies(None, position, {}, []):
                position = await self._store.tallied() or position
        return position

    async def _seen(self, events: Sequence[Event]) -> list[SeenFailure]:
        """The failures among the events whose runs are still kept."""
        failed = {event.run_id: event for event in events if event.kind == _FAILED and event.run_id is not None}
        runs = await self._store.finished(list(failed)) if failed else []
        return [SeenFailure(run.id, run.namespace, failed[run.id].at, kind_of_error(run)) for run in runs]


def _failed(failures: Sequence[SeenFailure]) -> dict[TallyKey, Tally]:
    """How often each group failed, by hour."""
    found: dict[TallyKey, Tally] = {}
    for each in failures:
        key = TallyKey(each.namespace, "error", period_of("error", each.at), each.kind.id)
        found.setdefault(key, Tally({}, {}, {})).add(Tally({"failed": 1}))
    return found
