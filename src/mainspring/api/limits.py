"""How much a subject may submit: one budget in the store for all servers, of which each takes slices, so that not
every submission costs a write."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mainspring.api.problems import Problem, retry_after
from mainspring.clock import Clock
from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.limits import Pace
from mainspring.store import Store

SLICE = 20
"""A slice is this part of the whole."""
SLICE_S = 1.0
"""What of a slice is not used in this time is lost: so a server that is not asked keeps nothing from the others."""
MOST_SUBJECTS = 10_000


class _Slice(NamedTuple):
    left: int
    until: float
    remaining: int


class Limits:
    """Counts submissions."""

    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._slices: dict[str, _Slice] = {}
        self.refused = 0

    async def spend(self, subject: str, cost: int, rate: int) -> dict[str, str]:
        """Take so much from a subject's budget; the headers that tell what is left. Problem if it is not there."""
        now = self._clock.monotonic()
        held = self._slices.get(subject)
        if held is not None and held.until > now and held.left >= cost:
            self._slices[subject] = held._replace(left=held.left - cost)
            return _headers(rate, held.remaining + held.left - cost)
        if len(self._slices) > MOST_SUBJECTS:
            self._slices.clear()
        pace = Pace(rate, MINUTE)
        wanted = max(cost, rate // SLICE)
        allowance = await self._store().spend(f"submit:{subject}", wanted, pace)
        if not allowance.granted and wanted > cost:
            wanted = cost
            allowance = await self._store().spend(f"submit:{subject}", cost, pace)
        if not allowance.granted:
            self.refused += 1
            raise _refusal(cost, rate, allowance.left, -(-allowance.wait // SECOND))
        self._slices[subject] = _Slice(wanted - cost, now + SLICE_S, allowance.left)
        return _headers(rate, allowance.left + wanted - cost)


def _headers(rate: int, left: int) -> dict[str, str]:
    return {"RateLimit-Limit": str(rate), "RateLimit-Remaining": str(left), "RateLimit-Reset": "60"}


def _refusal(cost: int, rate: int, left: int, seconds: int) -> Problem:
    headers = {**_headers(rate, left), "RateLimit-Reset": str(seconds), **retry_after(seconds)}
    if cost > rate:
        detail, remedy = f"{cost} runs at once are more than the {rate} of a minute", "submit fewer at once"
    else:
        detail, remedy = f"{cost} more would be too many: {rate} runs may be submitted in a minute", "try again later"
    return Problem("rate-limited", detail, remedy=remedy, headers=headers)
