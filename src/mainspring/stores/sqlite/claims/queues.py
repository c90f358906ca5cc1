"""Paused queues, as claims see them."""

from __future__ import annotations

import msgspec

from mainspring.core.model import Worker
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "insight")


def without_paused(tx: Transaction, worker: Worker) -> Worker:
    """The worker, with those of its queues that are not paused."""
    paused = {row[0] for row in tx.execute(_Q["paused"], (worker.namespace,))}
    if not paused:
        return worker
    return msgspec.structs.replace(worker, queues=tuple(queue for queue in worker.queues if queue not in paused))


def paused_places(tx: Transaction) -> set[tuple[str, str]]:
    """Namespace and name of every queue that is paused."""
    return {(row[0], row[1]) for row in tx.execute(_Q["all_paused"])}
