"""The audit trail for work that is SQLite's own. See `rows.trail`."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from mainspring.store import Audit
from mainspring.stores.rows.trail import note
from mainspring.stores.sqlite.file.transaction import Transaction, at_once

T = TypeVar("T")


def audited(work: Callable[[Transaction], T], audit: Audit[T] | None) -> Callable[[Transaction], T]:
    """The work, which also adds the rows of `audit` to the trail, if there is one."""
    if audit is None:
        return work

    def work_and_note(tx: Transaction) -> T:
        answer = work(tx)
        at_once(note(tx, audit(answer)))
        return answer

    return work_and_note
