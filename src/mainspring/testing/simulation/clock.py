"""Clocks of the simulated world: the store's, which is right, and each process's own, which is not quite."""

from __future__ import annotations

import asyncio
from random import Random

from mainspring.core.instants import HOUR, MILLISECOND, SECOND, Duration, Instant

LARGEST_DRIFT = 0.02
"""Faster or slower than the store's; claims and leases allow for a tenth."""
LARGEST_ERROR: Duration = 50 * MILLISECOND
"""How far a process may be off about the store's time."""


class StoreClock:
    """The store's clock: the loop's virtual time, from an instant on."""

    def __init__(self, loop: asyncio.AbstractEventLoop, start: Instant) -> None:
        self._loop = loop
        self._start = start

    def now(self) -> Instant:
        """The true time."""
        return self._start + round(self._loop.time() * SECOND)

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._loop.time()

    async def sleep(self, seconds: float) -> None:
        """Until so much virtual time has passed."""
        await asyncio.sleep(seconds)


class ProcessClock:
    """A process's clock. Its wall clock is set wrong and jumps; its monotonic clock runs a little fast or slow, and on
    while the process is frozen; what it thinks of the store's time is off by no more than `LARGEST_ERROR`."""

    def __init__(self, true: StoreClock, random: Random, *, wrong: bool) -> None:
        self._true = true
        self._random = random
        self._rate = 1.0 + random.uniform(-LARGEST_DRIFT, LARGEST_DRIFT) if wrong else 1.0
        self._origin = random.uniform(0, 1_000_000)
        self._skew: Duration = round(random.uniform(-HOUR, HOUR)) if wrong else 0
        self._error: Duration = round(random.uniform(-LARGEST_ERROR, LARGEST_ERROR)) if wrong else 0

    def now(self) -> Instant:
        """The wall clock: nothing may rest on it."""
        return self._true.now() + self._skew

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._origin + self._true.monotonic() * self._rate

    async def sleep(self, seconds: float) -> None:
        """Until so much time has passed on this clock."""
        await asyncio.sleep(seconds / self._rate)

    def store_now(self) -> Instant:
        """What this process takes for the store's time."""
        return self._true.now() + self._error

    def jump(self) -> None:
        """Somebody sets the wall clock, and the estimate of the store's time moves within its bounds."""
        self._skew = round(self._random.uniform(-24 * HOUR, 24 * HOUR))
        self._error = round(self._random.uniform(-LARGEST_ERROR, LARGEST_ERROR))
