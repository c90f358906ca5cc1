"""A transaction as both stores have it: work that is written once runs in either, statement by statement."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Sequence
from typing import Any, ClassVar, Protocol, TypeAlias

from mainspring.core.instants import Instant
from mainspring.core.model import Event

Row: TypeAlias = Any
"""A row in the driver's own type, with its values in order."""


class Transaction(Protocol):
    """What shared work sees. Its queries are those of the dialect: `load_queries(tx.dialect, topic)`. They have the
    same names, values and columns in both."""

    dialect: ClassVar[str]
    now: Instant
    events: list[Event]
    changed: bool

    @property
    def given(self) -> Instant | None:
        """What a statement takes that goes by the store's own clock."""

    def fetch(self, query: str, *values: Any) -> Awaitable[Sequence[Row]]:
        """All rows."""

    def fetchrow(self, query: str, *values: Any) -> Awaitable[Row | None]:
        """The first row."""

    def fetchval(self, query: str, *values: Any) -> Awaitable[Any]:
        """The first value of the first row; None if there is no row."""

    def run(self, query: str, *values: Any) -> Awaitable[int]:
        """Execute a statement; how many rows it touched."""

    def many(self, query: str, rows: Sequence[Row]) -> Awaitable[None]:
        """Execute a statement once per row."""

    def take_turns(self, *names: str) -> Awaitable[None]:
        """Wait until no other transaction has the same names, and keep them until this one ends."""

    def list_of(self, values: Collection[str] | Collection[int]) -> object:
        """Several texts or numbers as one value of a query."""
