"""The server's time, as far as this process knows it without asking."""

from __future__ import annotations

from typing import Protocol

from mainspring.clock import Clock
from mainspring.core.instants import MILLISECOND, SECOND, Duration, Instant

RESAMPLE_S = 5.0
"""Clocks drift apart by microseconds in this time; and a server's clock that was set is noticed within it."""
VAGUE: Duration = 5 * MILLISECOND
AGAIN_S = 0.5
"""While no answer was quicker than the first value, as on a machine that has just started, ask again after the
second."""

DRIFT = 0.0005
"""How much faster this host's clock may run than the server's. Adjustments by time daemons stay within this."""


class StoreClock(Protocol):
    """The source of time for the adapter's transactions."""

    def now(self) -> Instant:
        """The store's time."""

    def surely_now(self) -> Instant:
        """A time that the server's clock has certainly reached."""

    def given(self) -> Instant | None:
        """The time that the server uses in place of its own clock; None for its own."""

    def is_stale(self) -> bool:
        """Whether the server should be asked again."""

    def learn(self, server: Instant, sent_at: float) -> None:
        """The server's time in an answer that just arrived, and the monotonic time at which the question was sent."""


class ServerClock:
    """The last server time seen, plus monotonic time since.

    An answer proves that the server's clock was there between question and answer. The estimate is the latest that it
    must have been by all answers: never ahead of the server, so that nothing begins early, and behind it by less than
    the quickest answer took.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._offset: int | None = None
        self._asked_at = 0.0
        self._vague = True

    def now(self) -> Instant:
        if self._offset is None:
            return self._clock.now()
        return self._offset + int(self._clock.monotonic() * SECOND)

    def surely_now(self) -> Instant:
        drift = (self._clock.monotonic() - self._asked_at) * DRIFT
        return self.now() if self._offset is None else self.now() - self._micros(drift)

    def given(self) -> Instant | None:
        return None

    def is_stale(self) -> bool:
        since = self._clock.monotonic() - self._asked_at
        return self._offset is None or since > (AGAIN_S if self._vague else RESAMPLE_S)

    def learn(self, server: Instant, sent_at: float) -> None:
        answered_at = self._clock.monotonic()
        earliest, latest = server - self._micros(answered_at), server - self._micros(sent_at)
        offset = earliest if self._offset is None else max(self._offset, earliest)
        self._offset = min(offset, latest)
        self._vague = latest - self._offset > VAGUE
        self._asked_at = answered_at

    @property
    def skew(self) -> int:
        """How far the host's wall clock is ahead of the server's, in microseconds."""
        return self._clock.now() - self.now()

    @staticmethod
    def _micros(seconds: float) -> int:
        return int(seconds * SECOND)


class GivenClock:
    """The clock of a test: the test sets the server's time."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> Instant:
        return self._clock.now()

    def surely_now(self) -> Instant:
        return self._clock.now()

    def given(self) -> Instant | None:
        return self._clock.now()

    def is_stale(self) -> bool:
        return False

    def learn(self, server: Instant, sent_at: float) -> None:
        return
