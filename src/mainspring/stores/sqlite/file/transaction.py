"""What work on the database sees while it is in a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Event
from mainspring.stores.sql import Numbered, load_queries

_APPEND = load_queries("sqlite", "events")["append"]
_encode_events = msgspec.json.Encoder().encode
BULK_ROWS = 256
"""SQLite takes 32,766 parameters in a statement; beyond a few hundred rows nothing is gained."""


class Transaction:
    """What work sees: the connection, the store's time, and a list for its events."""

    __slots__ = ("changed", "connection", "events", "now")

    def __init__(self, connection: sqlite3.Connection, now: Instant) -> None:
        self.connection = connection
        self.now = now
        self.events: list[Event] = []
        self.changed = False
        """Whether planners or workers may now have something to do."""

    def execute(self, query: str, values: Sequence[object] | Mapping[str, object] = ()) -> sqlite3.Cursor:
        """Execute a query."""
        if isinstance(query, Numbered):
            return self.connection.execute(query.plain, query.arrange(values))
        return self.connection.execute(query, values)

    def executemany(
        self, query: str, rows: Iterable[Sequence[object]] | Iterable[Mapping[str, object]]
    ) -> sqlite3.Cursor:
        """Execute a query once per row."""
        if isinstance(query, Numbered):
            return self.connection.executemany(query.plain, map(query.arrange, rows))
        return self.connection.executemany(query, rows)

    def commit(self) -> None:
        """End it, and record its events."""
        if self.events:
            text = _encode_events(self.events).decode("utf-8", "replace")
            self.execute(_APPEND, (len(self.events), text, self.now))
        self.execute("COMMIT")

    def bulk(self, query: str, rows: Sequence[tuple[object, ...]], constants: tuple[object, ...] = ()) -> int:
        """Execute a query over many rows at once: its `:rows` becomes a list of VALUES, and constants follow them. How
        many rows it changed, unless it begins with WITH: the driver does not count those.

        A statement opens a cursor on the table and on each of its indexes: once per chunk instead of once per row makes
        an insert into a table with many indexes two to four times as fast. Chunks are as long as powers of two, since
        each length is a statement that is kept, the long ones half a megabyte each.
        """
        changed = start = 0
        while start < len(rows):
            size = min(1 << (len(rows) - start).bit_length() - 1, BULK_ROWS)
            values = [*chain.from_iterable(rows[start : start + size]), *constants]
            changed += self.execute(_expand(query, size, len(rows[start])), values).rowcount
            start += size
        return changed


@lru_cache(maxsize=256)
def _expand(query: str, rows: int, width: int) -> str:
    return query.replace(":rows", ", ".join(["(" + ", ".join("?" * width) + ")"] * rows))
