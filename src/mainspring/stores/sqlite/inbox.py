"""Where a run that is submitted alone is accepted: one row in one table, which costs little more than the sync.

Every transaction that writes begins with taking the inbox in, and whoever reads sees to it first that it is empty: so
nobody else ever meets a run that was accepted but is not in its place.
"""

from __future__ import annotations

import sqlite3

from mainspring.core.model import Event, NewRun
from mainspring.stores.run_rows import common_values
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.transaction import Transaction

_Q = load_queries("sqlite", "inbox")
ACCEPT = _Q["accept"]
LIMIT = 256
"""After so many, a process takes them in itself: nobody else may be there to do it."""


def fits(run: NewRun) -> bool:
    """Whether it can be accepted without looking at anything else in the store."""
    return not (run.after or run.lines or run.gates or run.idempotency_key)


def accepted(run: NewRun) -> tuple[object, ...]:
    """The row of a run that fits."""
    return (run.id, run.args, *common_values(run))


def is_waiting(connection: sqlite3.Connection) -> bool:
    """Whether something is to be taken in."""
    return connection.execute(_Q["waiting"]).fetchone() is not None


def take_in(tx: Transaction) -> None:
    """Put what was accepted in its place, and tell of it. Workers were woken when it was accepted."""
    if is_waiting(tx.connection):
        rows = tx.execute(_Q["take_in"]).fetchall()
        tx.execute(_Q["clear"])
        tx.events += [Event("run.submitted", *row) for row in rows]
