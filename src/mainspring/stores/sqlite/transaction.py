"""What work on the database sees while it is in a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain

from mainspring.core.instants import Instant
from mainspring.core.model import Event

BULK_ROWS = 250
"""SQLite takes 32,766 parameters in a statement; beyond a few hundred rows nothing is gained."""


class Transaction:
    """What work sees: the connection, the store's time, and a place to tell what happened."""

    __slots__ = ("changed", "connection", "events", "execute", "executemany", "now")

    def __init__(self, connection: sqlite3.Connection, now: Instant) -> None:
        self.connection = connection
        self.execute = connection.execute
        self.executemany = connection.executemany
        self.now = now
        self.events: list[Event] = []
        self.changed = False
        """Whether planners or workers may now have something to do."""

    def bulk(self, query: str, rows: Sequence[tuple[object, ...]], constants: tuple[object, ...] = ()) -> int:
        """Execute a query over many rows at once: its `:rows` becomes a list of VALUES, and constants follow them. How
        many rows it changed, unless it begins with WITH: of such a query the driver does not tell.

        A statement opens a cursor on the table and on each of its indexes: once per chunk instead of once per row makes
        an insert into a table with many indexes two to four times as fast.
        """
        changed = 0
        for start in range(0, len(rows), BULK_ROWS):
            chunk = rows[start : start + BULK_ROWS]
            values = [*chain.from_iterable(chunk), *constants]
            changed += self.execute(_expand(query, len(chunk), len(chunk[0])), values).rowcount
        return changed


@lru_cache(maxsize=256)
def _expand(query: str, rows: int, width: int) -> str:
    return query.replace(":rows", ", ".join(["(" + ", ".join("?" * width) + ")"] * rows))
