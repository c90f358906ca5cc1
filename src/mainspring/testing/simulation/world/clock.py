"""Clocks of the simulated world: the store's, which is right, and each process's own, which is not quite."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

from mainspring.clock import Alarm
from mainspring.core.instants import HOUR, MILLISECOND, SECOND, Duration, Instant
from mainspring.testing.simulation.world.hosts import HostingLoop

LARGEST_DRIFT = 0.02
"""Faster or slower than the store's; claims and leases allow for a tenth."""
LARGEST_ERROR: Duration = 50 * MILLISECOND
"""How far a process may be off about the store's time."""


class StoreClock:
    """The store's clock: the loop's virtual time, from an instant on. It may be put forward, never back."""

    def __init__(self, loop: HostingLoop, start: Instant) -> None:
        self._loop = loop
        self._start = start

    def now(self) -> Instant:
        """The true time."""
        return self._start + round(self._loop.time() * SECOND)

    def leap(self, seconds: float) -> None:
        """Put it forward: the host was suspended, or its clock had been slow."""
        self._start += round(seconds * SECOND)

    def monotonic(self) -> float:
        """Virtual seconds."""
        return self._loop.time()

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Until this virtual time has passed."""
        return self._loop.nap(seconds)

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Alarm:
        """After this virtual time."""
        return self._loop.call_later(seconds, ring)


class ProcessClock:
    """A process's clock. Its wall clock is set wrong and jumps; its monotonic clock runs a little fast or slow, and on
    while the process is frozen; what it thinks of the store's time is off by no more than `LARGEST_ERROR`."""

    def __init__(self, true: StoreClock, random: Random, *, wrong: bool) -> None:
        self.true = true
        self._random = random
        self._rate = 1.0 + random.uniform(-LARGEST_DRIFT, LARGEST_DRIFT) if wrong else 1.0
        self._origin = random.uniform(0, 1_000_000)
        self._skew: Duration = round(random.uniform(-HOUR, HOUR)) if wrong else 0
        self._error: Duration = round(random.uniform(-LARGEST_ERROR, LARGEST_ERROR)) if wrong else 0

    def now(self) -> Instant:
        """The wall clock: nothing may rest on it."""
        return self.true.now() + self._skew

    def monotonic(self) -> float:
        """Seconds that never go back."""
        return self._origin + self.true.monotonic() * self._rate

    def sleep(self, seconds: float) -> Awaitable[None]:
        """Until this time has passed on this clock."""
        return self.true.sleep(seconds / self._rate)

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Alarm:
        """After this time on this clock."""
        return self.true.alarm(seconds / self._rate, ring)

    def store_now(self) -> Instant:
        """What this process takes for the store's time."""
        return self.true.now() + self._error

    def jump(self) -> None:
        """Set the wall clock; the estimate of the store's time moves within its bounds."""
        self._skew = round(self._random.uniform(-24 * HOUR, 24 * HOUR))
        self._error = round(self._random.uniform(-LARGEST_ERROR, LARGEST_ERROR))
