"""The audit trail as rows: who changed what, written in the transaction of the change."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.store import Change
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "api")


async def note(tx: Transaction, changes: Sequence[Change]) -> None:
    """Tell of changes when the transaction is committed."""
    rows = [
        (each.namespace, tx.now, each.subject, each.action, each.target, each.before, each.after, each.request_id)
        for each in changes
    ]
    await tx.many(_Q["note"], rows)
