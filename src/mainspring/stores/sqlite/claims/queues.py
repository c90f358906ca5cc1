"""Pausing queues."""

from __future__ import annotations

import msgspec

from mainspring.core.answers import PausedQueue
from mainspring.core.model import Worker
from mainspring.store import Audit
from mainspring.stores.rows.job_rows import queue_event
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.history.trail import audited

_Q = load_queries("sqlite", "insight")


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
        def work(tx: Transaction) -> PausedQueue | None:
            found = None
            if paused:
                found = PausedQueue(*tx.execute(_Q["pause"], (namespace, queue, tx.now, reason)).fetchone())
            else:
                tx.execute(_Q["resume"], (namespace, queue))
                tx.changed = True
            tx.events.append(queue_event(namespace, queue, reason, tx.now, paused=paused))
            return found

        return await self._db.write(audited(work, audit))


def without_paused(tx: Transaction, worker: Worker) -> Worker:
    """The worker, with those of its queues that are not paused."""
    paused = {row[0] for row in tx.execute(_Q["paused"], (worker.namespace,))}
    if not paused:
        return worker
    return msgspec.structs.replace(worker, queues=tuple(queue for queue in worker.queues if queue not in paused))


def paused_places(tx: Transaction) -> set[tuple[str, str]]:
    """Namespace and name of every queue that is paused."""
    return {(row[0], row[1]) for row in tx.execute(_Q["all_paused"])}
