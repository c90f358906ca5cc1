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
"""The longest pause. Each pass that finds nothing doubles the pause up to this."""
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
        self._pause_s = EVERY_S

    async def turn(self) -> float:
        if not self._on_duty():
            return EVERY_S
        keep = self._settings
        gone = await self._store.clean(keep.keep_runs, keep.keep_firings, keep.keep_events, LIMIT)
        self._pause_s = EVERY_S if gone else min(2 * self._pause_s, IDLE_S)
        return PAUSE_S if gone >= LIMIT else self._pause_s
