"""Decides which of several workers does the chores while no scheduler runs."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import LATEST, SECOND, Duration
from mainspring.core.load.leadership import LEASE, trusted_until
from mainspring.core.model import Hold
from mainspring.services.loop import Loop, log
from mainspring.store import Store

CHORES = "chores"
"""The name of the lease."""
LOOK_S = 5.0
"""How often, at the latest, a worker asks whether a scheduler runs. While one does, the lease costs nothing else."""
TTL: Duration = 10 * SECOND
RENEW_S = 3.0
ALONE_S = 4.0
"""How long no scheduler may have been seen before a worker takes over: longer than a change of leaders takes."""
WARN_S = 600.0
"""How often to warn that jobs do not fire."""


class ChoreLease(Loop):
    """Held by one process of the fleet, and only while no scheduler leads: a leader does the chores itself."""

    name = "chore_lease"

    def __init__(self, store: Store, owner: str, clock: Clock, random: Random) -> None:
        super().__init__(clock, random)
        self._store = store
        self._owner = owner
        self._hold: Hold | None = None
        self._trusted_until = 0.0
        self._alone_since: float | None = None
        self._warn_at = 0.0
        self.on_begun: Callable[[], None] = lambda: None
        """Called when this process has got the lease."""

    def is_held(self) -> bool:
        """Whether this process holds the lease and may still trust it."""
        return self._hold is not None and self.clock.monotonic() < self._trusted_until

    async def turn(self) -> float:
        now = self.clock.monotonic()
        if await self._store.holders(LEASE):
            self._alone_since = None
            await self.release()
            return self.jitter(LOOK_S)
        if self._alone_since is None:
            self._alone_since = now
        alone_s = now - self._alone_since
        if alone_s < ALONE_S:
            return self.jitter(ALONE_S - alone_s) + 0.01
        await self._acquire(now)
        if self._hold is not None and now >= self._warn_at:
            await self._warn(now)
        return RENEW_S if self._hold is not None else self.jitter(LOOK_S)

    async def _acquire(self, sent_at: float) -> None:
        before = self._hold
        self._hold = None if before is None else await self._store.renew_hold(before)
        if self._hold is None:
            self._hold = await self._store.acquire(CHORES, self._owner, TTL)
        self._trusted_until = trusted_until(sent_at, TTL)
        if before is None and self._hold is not None:
            log.info("%s does the chores of the fleet: no scheduler runs", self._owner)
            self.on_begun()

    async def _warn(self, now: float) -> None:
        """Without a scheduler, runs are executed and recovered, but no job fires."""
        jobs = await self._store.due_jobs(LATEST, 1)
        self._warn_at = now + (WARN_S if jobs else 2 * LOOK_S)
        if jobs:
            log.warning(
                "no scheduler runs, so no job fires (the next one would be %s): start `mainspring server` or "
                "`mainspring up` with the same store",
                jobs[0].name,
            )

    async def release(self) -> None:
        """Leave the chores to another process."""
        hold, self._hold = self._hold, None
        if hold is not None:
            await self._store.release(hold)
