"""The outbox, and the public numbering of events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Event
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "events")
_INSIGHT = load_queries("sqlite", "insight")
_decode = msgspec.json.Decoder(list[Event]).decode


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

    async def position_at(self, instant: Instant) -> int:
        """By halving: positions grow with time, and no index has the times."""

        def work(tx: Transaction) -> int:
            first, last = tx.execute(_INSIGHT["first_position"]).fetchone()
            low, high = first or last + 1, last + 1
            while low < high:
                middle = (low + high) // 2
                row = tx.execute(_INSIGHT["relayed_from"], (middle,)).fetchone()
                if row is None or row[0] >= high or row[1] >= instant:
                    high = middle
                else:
                    low = row[0] + 1
            # A position within a transaction before the instant stands for the next transaction.
            row = tx.execute(_INSIGHT["relayed_from"], (low,)).fetchone()
            return int(last + 1 if row is None else min(row[0], last + 1))

        return await self._db.read(work)

    async def note_heard(self, listener: str, position: int) -> None:
        await self._db.write(lambda tx: tx.execute(_Q["note_heard"], (listener, position)))

    async def record_events(self, events: Sequence[Event]) -> None:
        await self._db.write(lambda tx: tx.events.extend(events))
