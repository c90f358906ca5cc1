"""The audit trail: each row is written in the transaction of its change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from mainspring.store import Audit, Change
from mainspring.stores.rows.transaction import Transaction
from mainspring.stores.sql import load_queries

T = TypeVar("T")
Tx = TypeVar("Tx", bound=Transaction)


async def note(tx: Transaction, changes: Sequence[Change]) -> None:
    """Add changes to the trail when the transaction commits."""
    rows = [
        (each.namespace, tx.now, each.subject, each.action, each.target, each.before, each.after, each.request_id)
        for each in changes
    ]
    await tx.many(load_queries(tx.dialect, "api")["note"], rows)


def audited(work: Callable[[Tx], Awaitable[T]], audit: Audit[T] | None) -> Callable[[Tx], Awaitable[T]]:
    """The work, which also adds the rows of `audit` to the trail, if there is one."""
    if audit is None:
        return work

    async def work_and_note(tx: Tx) -> T:
        answer = await work(tx)
        await note(tx, audit(answer))
        return answer

    return work_and_note
