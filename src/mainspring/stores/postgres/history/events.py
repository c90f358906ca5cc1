"""The outbox, and the public numbering of events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Event
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "events")
_INSIGHT = load_queries("postgres", "insight")
_decode = msgspec.json.Decoder(list[Event]).decode


class Events:
    """See `store.EventStore`."""

    _db: Database

    async def number_events(self, limit: int) -> int:
        ((count,),) = await self._db.alone(_Q["number"], limit)
        return int(count)

    async def position_at(self, instant: Instant) -> int:
        """By halving: positions grow with time, and no index has the times."""

        async def work(tx: Transaction) -> int:
            ((first, last),) = await tx.fetch(_INSIGHT["first_position"])
            low, high = first or last + 1, last + 1
            while low < high:
                middle = (low + high) // 2
                row = await tx.fetchrow(_INSIGHT["relayed_from"], middle)
                if row is None or row[0] >= high or row[1] >= instant:
                    high = middle
                else:
                    low = row[0] + 1
            # A position within a transaction before the instant stands for the next transaction.
            row = await tx.fetchrow(_INSIGHT["relayed_from"], low)
            return int(last + 1 if row is None else min(row[0], last + 1))

        return await self._db.read(work)

    async def note_heard(self, listener: str, position: int) -> None:
        await self._db.write(lambda tx: tx.run(_Q["note_heard"], listener, position))

    async def record_events(self, events: Sequence[Event]) -> None:
        async def work(tx: Transaction) -> None:
            tx.events.extend(events)

        await self._db.write(work)
