"""The rate limiter port: how much a subject may spend of a limit that all servers share."""

from __future__ import annotations

from typing import Protocol

from mainspring.core.load.rate_limits import Allowance, Pace


class RateLimiter(Protocol):
    """LimiterUnavailable if the limiter cannot be asked; the store's limiter raises StoreError."""

    async def spend(self, name: str, cost: int, pace: Pace) -> Allowance:
        """Spend `cost` of what `name` may spend within a pace, by the rule of `core.load.rate_limits`. A refusal costs
        nothing."""

    async def close(self) -> None:
        """Close all connections."""
