"""Rate limits that all servers share: on a backend of their own where there is one, else in the store.

While the backend does not answer, the store counts, beginning with nothing. Around such a change a subject may
therefore spend up to twice its limit, for one period.
"""

from __future__ import annotations

from mainspring.clock import Clock
from mainspring.core.load.rate_limits import Allowance, Pace
from mainspring.errors import LimiterUnavailable
from mainspring.limiter import RateLimiter
from mainspring.services.breaker import CircuitBreaker
from mainspring.store import Store


class SharedLimits:
    """See `limiter.RateLimiter`. `spare` is asked while `limiter` does not answer; `store` has the events and metrics
    of that."""

    def __init__(self, limiter: RateLimiter, spare: RateLimiter, store: Store, clock: Clock) -> None:
        self._limiter = limiter
        self._spare = spare
        self._breaker = CircuitBreaker(
            store,
            clock,
            "rate limits",
            lost="the store counts rate limits",
            back="rate limits are shared again",
            unavailable=LimiterUnavailable,
        )

    async def spend(self, name: str, cost: int, pace: Pace) -> Allowance:
        """See `limiter.RateLimiter`."""
        try:
            return await self._breaker.call(lambda: self._limiter.spend(name, cost, pace))
        except LimiterUnavailable:
            return await self._spare.spend(name, cost, pace)

    async def close(self) -> None:
        """Close the backend; the store stays open."""
        await self._limiter.close()
