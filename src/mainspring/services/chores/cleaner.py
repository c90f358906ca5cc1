"""Applies retention: deletes what has been kept long enough, a little at a time."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from mainspring.clock import Clock
from mainspring.services.loop import Loop
from mainspring.settings import Settings
from mainspring.store import MaintenanceStore

EVERY_S = 15.0
"""How long a job may keep more runs than its limits allow."""
IDLE_S = 60.0
"""How often to look where nothing happens: only time makes rows old."""
PAUSE_S = 0.2
LIMIT = 1_000


class Cleaner(Loop):
    """Acts while on duty. Its transactions are small, with pauses between them, so that runs do not wait for it."""

    name = "cleaner"

    def __init__(
        self, store: MaintenanceStore, on_duty: Callable[[], bool], settings: Settings, clock: Clock, random: Random
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._on_duty = on_duty
        self._settings = settings
        self._looks_at = clock.monotonic()
        self._has_news = False

    async def turn(self) -> float:
        now = self.clock.monotonic()
        if not self._on_duty() or (now < self._looks_at and not self._has_news):
            return EVERY_S
        self._has_news = False
        keep = self._settings
        gone = await self._store.clean(keep.keep_runs, keep.keep_firings, keep.keep_events, LIMIT)
        self._looks_at = now if gone else now + IDLE_S
        return PAUSE_S if gone >= LIMIT else EVERY_S

    def hint(self) -> None:
        """There are new events: runs may have ended of which their jobs keep few. The next turn, which is soon, looks
        at the store."""
        self._has_news = True
