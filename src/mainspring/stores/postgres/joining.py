"""Work inside a transaction of the caller's own: committed with what the caller writes, or not at all."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any, TypeVar

from mainspring.errors import InvalidInput, MainspringError
from mainspring.stores.postgres.database import Database, Transaction
from mainspring.stores.postgres.listener import CHANNEL
from mainspring.stores.postgres.trouble import explain

T = TypeVar("T")

_NOTIFY = "SELECT pg_notify($1, $2)"
_IDLE = 0
"""What psycopg says of a connection without a transaction."""


async def join(db: Database, connection: Any, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run work on the caller's connection, in the transaction that it has open.

    If the work fails, all of it is undone and the caller's transaction is as it was before. Others hear of it when the
    caller commits.
    """
    joined = _adapt(connection)
    try:
        await joined.check()
        async with connection.transaction():  # Within the caller's: a savepoint.
            tx = Transaction(joined, db.clock.now(), db.clock.given())
            answer = await work(tx)
            await tx.append_events()
            if tx.changed:
                await tx.fetch(_NOTIFY, CHANNEL, "")
            return answer
    except MainspringError:
        raise
    except Exception as error:
        raise joined.explain(error, db.server.url) or error from error


def _adapt(connection: Any) -> _Asyncpg | _Psycopg:
    package, name = type(connection).__module__.partition(".")[0], type(connection).__name__
    if package == "asyncpg":
        return _Asyncpg(connection)
    if package == "psycopg" and name == "AsyncConnection":
        return _Psycopg(connection)
    problem = "is not a connection that a submission can join"
    remedy = "give an asyncpg connection or a psycopg.AsyncConnection, with a transaction open"
    raise InvalidInput("connection", f"{package}.{name}", problem, remedy)


def _no_transaction() -> InvalidInput:
    problem = "has no transaction open, so there is nothing to join"
    return InvalidInput("connection", "it", problem, "begin one first: async with connection.transaction(): ...")


class _Asyncpg:
    """A caller's asyncpg connection, which has all that a transaction needs."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.fetch, self.fetchrow, self.fetchval = connection.fetch, connection.fetchrow, connection.fetchval
        self.execute = connection.execute

    async def check(self) -> None:
        """InvalidInput unless there is a transaction."""
        if not self._connection.is_in_transaction():
            raise _no_transaction()

    @staticmethod
    def explain(error: Exception, url: str) -> MainspringError | None:
        """The driver's errors as ours."""
        return explain(error, url)


class _Psycopg:
    """A caller's psycopg connection, spoken to as if it were asyncpg's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._cursor_of = import_module("psycopg").AsyncRawCursor

    async def check(self) -> None:
        """InvalidInput unless there is a transaction. A connection that is not in autocommit begins one by itself with
        its first statement."""
        if self._connection.info.transaction_status == _IDLE:
            if self._connection.autocommit:
                raise _no_transaction()
            await self._connection.execute("SELECT 1")

    @staticmethod
    def explain(error: Exception, url: str) -> MainspringError | None:
        """Errors of a driver that the caller brought are the caller's to read."""
        return None

    async def execute(self, query: str, *args: object) -> str:
        """The status of a statement."""
        async with self._cursor_of(self._connection) as cursor:
            await cursor.execute(query, _lists(args))
            return str(cursor.statusmessage)

    async def fetch(self, query: str, *args: object) -> list[Any]:
        """All rows, as tuples."""
        async with self._cursor_of(self._connection) as cursor:
            await cursor.execute(query, _lists(args))
            return list(await cursor.fetchall())

    async def fetchrow(self, query: str, *args: object) -> Any:
        """The first row."""
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *args: object) -> Any:
        """The first value of the first row."""
        row = await self.fetchrow(query, *args)
        return None if row is None else row[0]


def _lists(args: tuple[object, ...]) -> list[object]:
    """psycopg takes a tuple for a composite value."""
    return [list(value) if isinstance(value, tuple) else value for value in args]
