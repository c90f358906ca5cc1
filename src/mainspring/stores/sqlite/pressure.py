"""How much waits, and letting go of what matters least."""

from __future__ import annotations

from mainspring.core.degradation import SHED_FROM, shed_end
from mainspring.store import Backlog, Strain
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.database import Database
from mainspring.stores.sqlite.endings import end_unstarted
from mainspring.stores.sqlite.transaction import Transaction

_Q = load_queries("sqlite", "pressure")


class Pressure:
    """See `store.PressureStore`. On a file there is no pool to wait for, and the clock is the host's own."""

    _db: Database

    async def backlog(self, limit: int) -> list[Backlog]:
        rows = await self._db.read(lambda tx: tx.execute(_Q["backlog"], (tx.now, limit)).fetchall())
        return [Backlog(*row) for row in rows if row[4]]

    async def shed(self, reason: str, limit: int) -> int:
        def work(tx: Transaction) -> int:
            least = tx.execute(_Q["least"], (SHED_FROM, tx.now, limit)).fetchall()
            return end_unstarted(tx, [(run_id, shed_end(reason)) for (run_id,) in least])

        return await self._db.write(work)

    def strain(self) -> Strain:
        return Strain()
