"""How much waits, and letting go of what matters least."""

from __future__ import annotations

from mainspring.core.degradation import SHED_FROM, shed_end
from mainspring.store import Backlog, Strain
from mainspring.stores.postgres.database import Database, Transaction
from mainspring.stores.postgres.endings import end_unstarted
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "pressure")


class Pressure:
    """See `store.PressureStore`."""

    _db: Database

    async def backlog(self, limit: int) -> list[Backlog]:
        rows = await self._db.read(lambda tx: tx.fetch(_Q["backlog"], tx.now, limit))
        return [Backlog(*row) for row in rows if row[4]]

    async def shed(self, reason: str, limit: int) -> int:
        async def work(tx: Transaction) -> int:
            least = await tx.fetch(_Q["least"], SHED_FROM, tx.now, limit)
            return await end_unstarted(tx, [(row[0], shed_end(reason)) for row in least])

        return await self._db.write(work)

    def strain(self) -> Strain:
        waiting = self._db.waiting
        skew = getattr(self._db.clock, "skew", 0)
        return Strain(waiting.count, waiting.seconds, waiting.longest_s, skew)
