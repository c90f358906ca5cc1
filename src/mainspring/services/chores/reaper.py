"""Recovers what will not finish by itself: expired claims, runs past their starting deadline, silent workers."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.services.loop import Loop, log
from mainspring.settings import Settings
from mainspring.store import MaintenanceStore

EVERY_S = 1.0
IDLE_S = 3.0
"""How often to look while nothing runs. A run that is claimed meanwhile cannot be lost before its claim expires."""
LIMIT = 500


class Reaper(Loop):
    """Acts while on duty. Two reapers at once do no harm: each recovery is guarded by the state of the run."""

    name = "reaper"

    def __init__(
        self,
        store: MaintenanceStore,
        settings: Settings,
        clock: Clock,
        random: Random,
        *,
        on_duty: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._on_duty = on_duty
        self.every_s = EVERY_S
        self._dead_after = settings.worker_dead_after
        self._idle_s = min(IDLE_S, settings.claim_ttl / SECOND)

    async def turn(self) -> float:
        if not self._on_duty():
            return self.every_s
        found = await self._store.recover(self._dead_after, LIMIT)
        for worker in found.dead_workers:
            log.warning("worker %s has sent no heartbeat for %.0f s: it counts as dead", worker, self._dead_after / 1e6)
        if found.moved:
            log.warning("%d runs moved to another region: theirs did not take them in time", found.moved)
        if found.postponed or max(found.lost, found.expired, found.moved) >= LIMIT:
            return 0.0
        return max(self.every_s, self._idle_s) if found.idle else self.every_s
