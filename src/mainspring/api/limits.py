"""How much a subject may submit: one budget in the store for all servers, of which each takes slices, so that not
every submission costs a write."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mainspring.api.problems import Problem, retry_after
from mainspring.clock import Clock
from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.limits import Pace
from mainspring.store import Store

SLICE = 20
"""A slice is this part of the whole at most."""
SLICE_S = 1.0
"""What of a slice is not used in this time is lost: so a server that is not asked keeps nothing from the others."""
MOST_SUBJECTS = 10_000


class _Slice:
    __slots__ = ("left", "remaining", "size", "until")

    def __init__(self, size: int, left: int, until: float, remaining: int) -> None:
        self.size, self.left, self.until, self.remaining = size, left, until, remaining


class Limits:
    """Counts submissions."""

    def __init__(self, store: Callable[[], Store], clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._slices: dict[str, _Slice] = {}
        self._taking: dict[str, asyncio.Lock] = {}
        self.refused = 0

    async def spend(self, subject: str, cost: int, rate: int) -> dict[str, str]:
        """Take so much from a subject's budget; the headers that tell what is left. Problem if it is not there."""
        headers = self._from_slice(subject, cost, rate)
        if headers is not None:
            return headers
        # One at a time asks for a slice: a crowd that did so at once would use up the budget by asking.
        async with self._taking.setdefault(subject, asyncio.Lock()):
            return self._from_slice(subject, cost, rate) or await self._take(subject, cost, rate)

    def _from_slice(self, subject: str, cost: int, rate: int) -> dict[str, str] | None:
        held = self._slices.get(subject)
        if held is None or held.until <= self._clock.monotonic() or held.left < cost:
            return None
        held.left -= cost
        return _headers(rate, held.remaining + held.left)

    async def _take(self, subject: str, cost: int, rate: int) -> dict[str, str]:
        if len(self._slices) > MOST_SUBJECTS:
            self._slices.clear()
            self._taking = {name: lock for name, lock in self._taking.items() if lock.locked()}
        now, pace = self._clock.monotonic(), Pace(rate, MINUTE)
        # Twice what was used of the last slice: who asks for little is not charged for much.
        last = self._slices.get(subject)
        used = 0 if last is None else last.size - last.left
        wanted = max(cost, min(2 * used, rate // SLICE))
        allowance = await self._store().spend(f"submit:{subject}", wanted, pace)
        if not allowance.granted and wanted > cost:
            wanted = cost
            allowance = await self._store().spend(f"submit:{subject}", cost, pace)
        if not allowance.granted:
            self.refused += 1
            raise _refusal(cost, rate, allowance.left, -(-allowance.wait // SECOND))
        self._slices[subject] = _Slice(wanted, wanted - cost, now + SLICE_S, allowance.left)
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
