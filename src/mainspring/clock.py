"""The clock port. Code outside `core` reads time and waits only through it, so that tests and the simulator can replace
it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Protocol


class Alarm(Protocol):
    """A pending call of `Clock.alarm`."""

    def cancel(self) -> object:
        """Do not ring any more."""


class Clock(Protocol):
    """Wall-clock time for decisions (`now`), elapsed time (`monotonic`), and waits (`sleep`, `alarm`)."""

    def now(self) -> int:
        """The wall clock: microseconds since the epoch, UTC."""

    def monotonic(self) -> float:
        """Seconds that never go back, and that go on while the machine is suspended where the system offers it."""

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Return after this many seconds of this clock."""

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Alarm:
        """Call `ring` on the running loop after this many seconds of this clock. Cheaper than a sleep that is usually
        cancelled before its end."""


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

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Alarm:
        return asyncio.get_running_loop().call_later(seconds, ring)
