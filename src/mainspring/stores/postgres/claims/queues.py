"""Pausing queues. The queries that claim skip the runs of paused queues."""

from __future__ import annotations

from mainspring.core.answers import PausedQueue
from mainspring.store import Audit
from mainspring.stores.postgres.history.trail import audited
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.rows.job_rows import queue_event
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "insight")


class Queues:
    """The writes of `insight.QueueStore`; its reads are in `stores.rows.views`."""

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
            tx.events.append(queue_event(namespace, queue, reason, tx.now, paused=paused))
            return found

        return await self._db.write(audited(work, audit))
