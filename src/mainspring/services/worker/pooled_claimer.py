"""Claims runs where the places of a worker are divided into pools (`core.runs.pools`), the highest priority first.

A pool claims only what it can start, so that no run waits behind one of another pool.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cached_property

import msgspec

from mainspring.core.instants import SECOND
from mainspring.core.load.leadership import trusted_until
from mainspring.core.model import Worker
from mainspring.core.runs.pools import Pool, make_pools, room_of
from mainspring.services.worker.claimer import (
    FULL_WAIT_S,
    HEAD_START_S,
    LONGEST_WAIT_S,
    OVERDUE_WAIT_S,
    SHORTEST_WAIT_S,
    Claimer,
)


class PooledClaimer(Claimer):
    """A claimer with a limit for each pool."""

    stands = False

    @cached_property
    def _pools(self) -> tuple[Pool, ...]:
        return make_pools(dict(self._settings.pools))

    @cached_property
    def _pool_of(self) -> dict[int, int]:
        """The pool of each priority."""
        return {priority: index for index, pool in enumerate(self._pools) for priority in pool.priorities}

    async def _turn(self) -> float:
        self._sated = False
        hinted, self._hinted = self._hinted, False
        self._asked_at = self._store.now()
        claimed, asked = 0, []
        for index in range(len(self._pools)):
            wanted = 0 if self._claims.solitary else room_of(self._pools, self._count_held(), index)
            if wanted > 0:
                claimed += await self._claim_for(index, wanted)
                asked.append(index)
        self._in_vain = 0 if claimed else self._in_vain + hinted
        if claimed:
            return HEAD_START_S
        self._sated = len(asked) == len(self._pools)
        return await self._wait_for(asked) if asked else FULL_WAIT_S

    def _count_held(self) -> list[int]:
        held = Counter(self._pool_of[priority] for priority in self._claims.priorities())
        return [held[index] for index in range(len(self._pools))]

    def _row(self, pools: Sequence[int]) -> Worker:
        priorities = tuple(priority for index in pools for priority in self._pools[index].priorities)
        return msgspec.structs.replace(self._asking(), priorities=priorities)

    async def _claim_for(self, pool: int, wanted: int) -> int:
        sent_at = self.clock.monotonic()
        limit = min(wanted, self.breaker.most) if self.breaker is not None else wanted
        claims = await self._store.claim(self._row([pool]), limit, self._ttl, self._ordering)
        if claims:
            self._take(claims, trusted_until(sent_at, self._ttl), early=False)
        return len(claims)

    async def _wait_for(self, pools: Sequence[int]) -> float:
        """Nothing is due for these pools. Returns when something will be. The other pools are full, and the end of a
        run wakes this loop."""
        due_at = await self._store.next_due(self._row(pools))
        if due_at is None:
            return LONGEST_WAIT_S
        if due_at <= self._asked_at:
            return OVERDUE_WAIT_S
        return min(max((due_at - self._store.now()) / SECOND, SHORTEST_WAIT_S), LONGEST_WAIT_S)

    def _stand(self) -> None:
        """Leave no standing claim with the store, which does not know pools."""
