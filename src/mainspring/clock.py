"""Time, as the only way that core's callers may see it: inject another one and the whole program lives in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import Protocol


class Clock(Protocol):
    """What time it is, for deciding (`now`), for measuring (`monotonic`), and waiting (`sleep`)."""

    def now(self) -> int:
        """The wall clock: microseconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back, and that go on while the machine is suspended where the system offers it."""

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Done after this many seconds of this clock."""


class SystemClock:
    """The host's clocks."""

    # CLOCK_BOOTTIME counts suspended time, so that a laptop that slept knows that its leases have run out.
    _monotonic_id = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

    def now(self) -> int:
        return time.time_ns() // 1_000

    def monotonic(self) -> float:
        return time.clock_gettime(self._monotonic_id)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
