"""Rate limits by subject. Submissions and jobs have one budget in the store for all servers; each server takes slices
of it, so that not every request costs a write. Queries have a budget in each server, so that a read writes nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Final, NamedTuple

from mainspring.api.problems import Problem, retry_after
from mainspring.clock import Clock
from mainspring.core.instants import MINUTE, SECOND, Instant
from mainspring.core.load.rate_limits import Pace, allow
from mainspring.limiter import RateLimiter

SLICE = 20
"""A slice is at most this fraction of the budget."""
SLICE_S = 1.0
"""The unused rest of a slice expires after this time, so that an idle server keeps nothing from the others."""
MOST_SUBJECTS = 10_000


class _Slice:
    __slots__ = ("left", "remaining", "size", "until")

    def __init__(self, size: int, left: int, until: float, remaining: int) -> None:
        self.size, self.left, self.until, self.remaining = size, left, until, remaining


class Operation(NamedTuple):
    """What is counted, as error messages name it."""

    name: str
    what: str
    done: str


SUBMIT: Final = Operation("submit", "runs", "submitted")
DEFINE: Final = Operation("define", "jobs and calendars", "created, declared or edited")
REGISTER: Final = Operation("register", "workers", "registered")
QUERY: Final = Operation("query", "queries", "made of one server")


class Limits:
    """Counts submissions, definitions, registrations and queries."""

    def __init__(self, limiter: Callable[[], RateLimiter], clock: Clock) -> None:
        self._limiter = limiter
        self._clock = clock
        self._slices: dict[str, _Slice] = {}
        self._taking: dict[str, asyncio.Lock] = {}
        self._queried: dict[str, Instant] = {}
        self.refused: Counter[str] = Counter()
        """Refusals by operation."""

    async def spend(self, subject: str, cost: int, rate: int, operation: Operation = SUBMIT) -> dict[str, str]:
        """Take an amount from a subject's budget; returns the headers that show the rest. Problem if it is used up."""
        name = f"{operation.name}:{subject}"
        headers = self._from_slice(name, cost, rate, self._clock.monotonic())
        if headers is not None:
            return headers
        # One request at a time takes a slice: many at once would use up the budget with slices.
        async with self._taking.setdefault(name, asyncio.Lock()):
            now = self._clock.monotonic()
            return self._from_slice(name, cost, rate, now) or await self._take(name, cost, rate, operation, now)

    def query(self, subject: str, rate: int) -> None:
        """Count a query of a subject; Problem if it has made too many."""
        now, pace = round(self._clock.monotonic() * SECOND), Pace(rate, MINUTE)
        asked = allow(self._queried.get(subject, 0), now, 1, pace)
        if not asked.granted:
            self.refused[QUERY.name] += 1
            raise _refusal(QUERY, 1, rate, asked.left, -(-asked.wait // SECOND))
        if len(self._queried) > MOST_SUBJECTS:
            self._queried = {name: paid_at for name, paid_at in self._queried.items() if paid_at > now}
        self._queried[subject] = asked.paid_at

    def _from_slice(self, name: str, cost: int, rate: int, now: float) -> dict[str, str] | None:
        held = self._slices.get(name)
        if held is None or held.until <= now or held.left < cost:
            return None
        held.left -= cost
        return _headers(rate, held.remaining + held.left)

    async def _take(self, name: str, cost: int, rate: int, operation: Operation, now: float) -> dict[str, str]:
        if len(self._slices) > MOST_SUBJECTS:
            self._slices.clear()
            self._taking = {name: lock for name, lock in self._taking.items() if lock.locked()}
        pace = Pace(rate, MINUTE)
        # Twice what was used of the last slice, so that a caller with few requests takes small slices.
        last = self._slices.get(name)
        used = 0 if last is None else last.size - last.left
        wanted = max(cost, min(2 * used, rate // SLICE))
        allowance = await self._limiter().spend(name, wanted, pace)
        if not allowance.granted and wanted > cost:
            wanted = cost
            allowance = await self._limiter().spend(name, cost, pace)
        if not allowance.granted:
            self.refused[operation.name] += 1
            raise _refusal(operation, cost, rate, allowance.left, -(-allowance.wait // SECOND))
        self._slices[name] = _Slice(wanted, wanted - cost, now + SLICE_S, allowance.left)
        return _headers(rate, allowance.left + wanted - cost)


def _headers(rate: int, left: int) -> dict[str, str]:
    return {"RateLimit-Limit": str(rate), "RateLimit-Remaining": str(left), "RateLimit-Reset": "60"}


def _refusal(operation: Operation, cost: int, rate: int, left: int, seconds: int) -> Problem:
    headers = {**_headers(rate, left), "RateLimit-Reset": str(seconds), **retry_after(seconds)}
    _, what, done = operation
    if cost > rate:
        detail, remedy = f"{cost} {what} at once are more than the {rate} of a minute", "send fewer at once"
    else:
        detail, remedy = f"{cost} more would be too many: {rate} {what} may be {done} in a minute", "try again later"
    return Problem("rate-limited", detail, remedy=remedy, headers=headers)
