"""The public numbering of events."""

from __future__ import annotations

from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "events")


class Events:
    """See `store.EventStore`."""

    _db: Database

    async def number_events(self, limit: int) -> int:
        """One writer at a time, so commit order is known at commit, and only what is public has to be moved on."""

        def work(tx: Transaction) -> int:
            count, last = tx.execute(_Q["unpublished"], (limit,)).fetchone()
            if count:
                tx.execute(_Q["publish"], (last,))
            return int(count)

        # A read first: taking the write lock to find nothing would cost an idle node a commit per look.
        if not (await self._db.read(lambda tx: tx.execute(_Q["unpublished"], (1,)).fetchone(), quick=True))[0]:
            return 0
        return await self._db.write(work, promised=False, quick=True)
