"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable
from datetime import datetime, timedelta
from itertools import count

from mainspring.clock import Alarm
from mainspring.core.instants import SECOND, Duration, Instant, format_duration, parse_duration, parse_instant
from mainspring.errors import InvalidDuration

START = "2026-01-01T00:00:00Z"


class ManualClock:
    """A `Clock` whose time passes only in `advance` and `set`, and whose sleepers wake in order of their due time.

    Read it from any thread; move it and sleep on it from one event loop. A woken sleeper runs when the loop next runs,
    and sees the time that the clock was moved to: step to `pending()` where each sleeper must see its own instant.
    """

    def __init__(self, start: Instant | datetime | str = START) -> None:
        self._now = _read_instant(start)
        self._elapsed: Duration = 0
        self._order = count()
        # By due time, then in the order in which they fell asleep.
        self._sleepers: list[tuple[Duration, int, asyncio.Future[None]]] = []

    def now(self) -> Instant:
        """The wall clock: microseconds since the epoch, UTC."""
        return self._now

    def monotonic(self) -> float:
        """Seconds since this clock was made; it does not go back when the wall clock is set back."""
        return self._elapsed / SECOND

    async def sleep(self, seconds: float) -> None:
        """Return once the clock has been moved this far; at once, but not without letting others run, for none."""
        duration = round(seconds * SECOND)
        if duration <= 0:
            await asyncio.sleep(0)
            return
        await self._sleeper(duration)

    def alarm(self, seconds: float, ring: Callable[[], None]) -> Alarm:
        """Call `ring` once the clock has been moved this far; soon, for none."""
        duration = round(seconds * SECOND)
        if duration <= 0:
            return asyncio.get_running_loop().call_soon(ring)
        woken = self._sleeper(duration)
        woken.add_done_callback(lambda _: None if woken.cancelled() else ring())
        return woken

    def _sleeper(self, duration: Duration) -> asyncio.Future[None]:
        woken = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._elapsed + duration, next(self._order), woken))
        return woken

    def advance(self, duration: Duration | timedelta | str) -> None:
        """Let time pass: microseconds, a timedelta, or text like `"1h30m"`. Every sleeper that is due by then wakes."""
        passed = duration if isinstance(duration, int) else parse_duration(duration)
        if passed < 0:
            remedy = "time runs forward; set() turns the wall clock back"
            raise InvalidDuration("duration", format_duration(passed), "is negative", remedy)
        self._now += passed
        self._elapsed += passed
        self._wake()

    def set(self, instant: Instant | datetime | str) -> None:
        """Make it this instant: a later one by letting time pass, an earlier one by turning the wall clock back."""
        target = _read_instant(instant)
        if target >= self._now:
            self.advance(target - self._now)
        else:
            self._now = target

    def pending(self) -> Instant | None:
        """When the earliest sleeper is due; None if there is no sleeper."""
        while self._sleepers and self._sleepers[0][2].done():
            heapq.heappop(self._sleepers)  # it was cancelled
        return self._now + self._sleepers[0][0] - self._elapsed if self._sleepers else None

    def _wake(self) -> None:
        while self._sleepers and self._sleepers[0][0] <= self._elapsed:
            woken = heapq.heappop(self._sleepers)[2]
            if not woken.done():
                woken.set_result(None)


def _read_instant(value: Instant | datetime | str) -> Instant:
    return value if isinstance(value, int) else parse_instant(value, "instant")
