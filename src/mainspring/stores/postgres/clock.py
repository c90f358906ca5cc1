"""What time it is at the server, as far as this process can tell without asking."""

from __future__ import annotations

from typing import Protocol

from mainspring.clock import Clock
from mainspring.core.instants import SECOND, Instant

RESAMPLE_S = 5.0
"""Clocks drift apart by microseconds in this time; and a server's clock that was set is noticed within it."""


class StoreClock(Protocol):
    """What the adapter's transactions take their time from."""

    def now(self) -> Instant:
        """The store's time."""

    def given(self) -> Instant | None:
        """The time that the server shall take for its own; None for its own clock."""

    def is_stale(self) -> bool:
        """Whether the server should be asked again."""

    def learn(self, server: Instant, sent_at: float) -> None:
        """The server said that it was this late, to a question sent at that monotonic time and answered just now."""


class ServerClock:
    """The last server time seen, plus monotonic time since.

    An answer proves that the server's clock was there between question and answer: the estimate is moved only where it
    lies outside of that, so that one slow answer does not make it worse.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset: int | None = None
        self._asked_at = 0.0

    def now(self) -> Instant:
        if self._offset is None:
            return self._clock.now()
        return self._offset + self._micros(self._clock.monotonic())

    def given(self) -> Instant | None:
        return None

    def is_stale(self) -> bool:
        return self._offset is None or self._clock.monotonic() > self._asked_at + RESAMPLE_S

    def learn(self, server: Instant, sent_at: float) -> None:
        answered_at = self._clock.monotonic()
        earliest, latest = server - self._micros(answered_at), server - self._micros(sent_at)
        offset = (earliest + latest) // 2 if self._offset is None else self._offset
        self._offset = min(max(offset, earliest), latest)
        self._asked_at = answered_at

    @property
    def skew(self) -> int:
        """How far the host's wall clock is ahead of the server's, in microseconds."""
        return self._clock.now() - self.now()

    @staticmethod
    def _micros(seconds: float) -> int:
        return int(seconds * SECOND)


class GivenClock:
    """The clock of a test: the server is told what time it is."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> Instant:
        return self._clock.now()

    def given(self) -> Instant | None:
        return self._clock.now()

    def is_stale(self) -> bool:
        return False

    def learn(self, server: Instant, sent_at: float) -> None:
        return
