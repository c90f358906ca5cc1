"""The outbox, and the public numbering of events."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.core.model import Event, EventBatch
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.database import Database, Transaction

_Q = load_queries("sqlite", "events")
_decode = msgspec.json.Decoder(list[Event]).decode


class Events:
    """See `store.EventStore`."""

    _db: Database

    async def number_events(self, limit: int) -> int:
        def work(tx: Transaction) -> int:
            rows = tx.execute(_Q["unnumbered"], (limit,)).fetchall()
            if not rows:
                return 0
            position = tx.execute(_Q["advance"], (sum(count for _, count in rows),)).fetchone()[0]
            numbered = []
            for seq, count in rows:
                numbered.append((position, seq))
                position += count
            tx.executemany(_Q["number"], numbered)
            return len(rows)

        # A read first: taking the write lock to find nothing would cost an idle node a commit per look.
        if not await self._db.read(lambda tx: tx.execute(_Q["unnumbered"], (1,)).fetchone()):
            return 0
        return await self._db.write(work)

    async def events_since(self, position: int, limit: int) -> list[EventBatch]:
        rows = await self._db.read(lambda tx: tx.execute(_Q["since"], (position, limit)).fetchall())
        batches = [_from(position, EventBatch(first, _decode(events))) for first, events in rows]
        return [batch for batch in batches if batch.events]

    async def next_position(self) -> int:
        return await self._db.read(lambda tx: int(tx.execute(_Q["next_position"]).fetchone()[0]))

    async def tell(self, events: Sequence[Event]) -> None:
        await self._db.write(lambda tx: tx.events.extend(events))


def _from(position: int, batch: EventBatch) -> EventBatch:
    """The part of a batch that is not before a position."""
    skipped = max(position - batch.position, 0)
    return EventBatch(batch.position + skipped, batch.events[skipped:]) if skipped else batch
