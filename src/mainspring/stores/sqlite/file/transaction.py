"""What work on the database sees while it is in a transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Collection, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, ClassVar, TypeVar

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Event
from mainspring.stores.rows.job_rows import to_json
from mainspring.stores.sql import Numbered, load_queries

_APPEND = load_queries("sqlite", "events")["append"]
_encode_events = msgspec.json.Encoder().encode
T = TypeVar("T")

BULK_ROWS = 256
"""SQLite takes 32,766 parameters in a statement; beyond a few hundred rows nothing is gained."""


class Transaction:
    """What work sees: the connection, the store's time, and a list for its events."""

    dialect: ClassVar[str] = "sqlite"
    __slots__ = ("changed", "connection", "events", "now")

    def __init__(self, connection: sqlite3.Connection, now: Instant) -> None:
        self.connection = connection
        self.now = now
        self.events: list[Event] = []
        self.changed = False
        """Whether planners or workers may now have something to do."""

    @property
    def given(self) -> Instant:
        """The store's clock is that of this process."""
        return self.now

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

    async def fetch(self, query: str, *values: Any) -> Sequence[Sequence[Any]]:
        """See `rows.transaction`, as for those below: none of them waits, so `at_once` can do shared work."""
        return self.execute(query, values).fetchall()

    async def fetchrow(self, query: str, *values: Any) -> Sequence[Any] | None:
        row: Sequence[Any] | None = self.execute(query, values).fetchone()
        return row

    async def fetchval(self, query: str, *values: Any) -> Any:
        row = self.execute(query, values).fetchone()
        return None if row is None else row[0]

    async def run(self, query: str, *values: Any) -> int:
        return self.execute(query, values).rowcount

    async def many(self, query: str, rows: Sequence[Sequence[Any]]) -> None:
        if rows:
            self.executemany(query, rows)

    async def take_turns(self, *names: str) -> None:
        """A file has one writer at a time."""

    def list_of(self, values: Collection[str] | Collection[int]) -> str:
        return to_json(list(values))

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


def at_once(steps: Awaitable[T]) -> T:
    """The answer of shared work, which waits for nothing but statements."""
    try:
        next(steps.__await__())
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise RuntimeError("work in a transaction waited for something else than a statement")


@lru_cache(maxsize=256)
def _expand(query: str, rows: int, width: int) -> str:
    return query.replace(":rows", ", ".join(["(" + ", ".join("?" * width) + ")"] * rows))
