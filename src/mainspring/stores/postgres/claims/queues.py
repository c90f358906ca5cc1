"""Paused queues, gates, lines, and what belongs to a run or a job. The queries that claim pass paused queues over."""

from __future__ import annotations

from mainspring.core.answers import PausedQueue
from mainspring.core.model import Event
from mainspring.store import Audit
from mainspring.stores.postgres.history.trail import audited
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "insight")


class Queues:
    """See `insight.QueueStore` and `insight.RelationStore`."""

    _db: Database

    async def pause_queue(
        self,
        namespace: str,
        queue: str,
        *,
        paused: bool,
        reason: str,
        audit: Audit[PausedQueue | None] | None = None,
    ) -> PausedQueue | None:
        async def work(tx: Transaction) -> PausedQueue | None:
            found = None
            if paused:
                row = await tx.fetchrow(_Q["pause"], namespace, queue, tx.now, reason)
                found = None if row is None else PausedQueue(*row)
            else:
                await tx.run(_Q["resume"], namespace, queue)
                tx.changed = True
            text = f"{queue}: {reason}" if reason else queue
            tx.events.append(Event("queue.paused" if paused else "queue.resumed", tx.now, namespace, reason=text))
            return found

        return await self._db.write(audited(work, audit))
