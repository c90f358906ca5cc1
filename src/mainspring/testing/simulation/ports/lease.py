"""A lease that may lie: it is a hint, and nothing may go wrong when the hint is wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import msgspec

from mainspring.core.instants import Duration
from mainspring.core.model import Hold
from mainspring.lease import Lease, LeaseTimes
from mainspring.testing.simulation.world.clock import StoreClock

_FALSE = 0
"""The token of a hold that was never granted."""


class LyingLease:
    """See `lease.Lease`. `lie = "false"`: it grants every request, though another may hold it. `lie = "silent"`: it
    says that it was renewed, and was not."""

    def __init__(self, honest: Lease, clock: StoreClock) -> None:
        self._honest = honest
        self._clock = clock
        self.lie: Literal["false", "silent"] | None = None

    @property
    def times(self) -> LeaseTimes | None:
        """The times of the wrapped lease."""
        return self._honest.times

    @property
    def watched(self) -> bool:
        """As the honest one is."""
        return self._honest.watched

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        """The lease, or the belief in it."""
        if self.lie == "false":
            return Hold(name, owner, _FALSE, ttl, self._clock.now() + ttl)
        return await self._honest.acquire(name, owner, ttl)

    async def renew(self, hold: Hold) -> Hold | None:
        """The same hold for longer, or the belief in it."""
        if self.lie is not None:
            return msgspec.structs.replace(hold, expires_at=self._clock.now() + hold.ttl)
        return None if hold.token == _FALSE else await self._honest.renew(hold)

    async def release(self, hold: Hold) -> None:
        """Let go."""
        if hold.token != _FALSE:
            await self._honest.release(hold)

    def on_lost(self, hold: Hold, callback: Callable[[str], None]) -> Callable[[], None]:
        """What the honest one says."""
        return self._honest.on_lost(hold, callback)

    def on_free(self, name: str, callback: Callable[[], None]) -> Callable[[], None]:
        """What the honest one says."""
        return self._honest.on_free(name, callback)

    async def close(self) -> None:
        """Let go of the honest one."""
        await self._honest.close()
