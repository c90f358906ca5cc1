"""The audit trail as rows: each is written in the transaction of its change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from mainspring.store import Audit, Change
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "api")
T = TypeVar("T")


def note(tx: Transaction, changes: Sequence[Change]) -> None:
    """Add changes to the trail when the transaction commits."""
    if changes:
        rows = [
            (each.namespace, tx.now, each.subject, each.action, each.target, each.before, each.after, each.request_id)
            for each in changes
        ]
        tx.executemany(_Q["note"], rows)


def audited(work: Callable[[Transaction], T], audit: Audit[T] | None) -> Callable[[Transaction], T]:
    """The work, which also adds the rows of `audit` to the trail, if there is one."""
    if audit is None:
        return work

    def work_and_note(tx: Transaction) -> T:
        answer = work(tx)
        note(tx, audit(answer))
        return answer

    return work_and_note
