"""Work inside a transaction of the caller's own: committed with what the caller writes, or not at all."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from importlib import import_module
from typing import Any, TypeVar

from mainspring.errors import InvalidInput, MainspringError
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.postgres.server.errors import explain
from mainspring.stores.postgres.server.listener import CHANNEL

T = TypeVar("T")

_NOTIFY = "SELECT pg_notify($1, $2)"
_IDLE = 0
"""The status of a psycopg connection without a transaction."""


async def join(db: Database, connection: Any, work: Callable[[Transaction], Awaitable[T]]) -> T:
    """Run work on the caller's connection, in the transaction that it has open.

    If the work fails, all of it is undone and the caller's transaction is as it was before. Other processes are
    notified when the caller commits.
    """
    joined = _adapt(connection)
    try:
        await joined.check()
        async with joined.transaction():  # Within the caller's: a savepoint.
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
    if package == "psycopg" and name in ("AsyncConnection", "Connection"):
        return (_AsyncPsycopg if name == "AsyncConnection" else _BlockingPsycopg)(connection)
    problem = "is not a connection that a submission can join"
    remedy = "give a connection of asyncpg or of psycopg (3), with a transaction open"
    raise InvalidInput("connection", f"{package}.{name}", problem, remedy)


def _no_transaction() -> InvalidInput:
    problem = "has no transaction open, so there is nothing to join"
    return InvalidInput("connection", "it", problem, "begin one first: async with connection.transaction(): ...")


class _Asyncpg:
    """A caller's asyncpg connection, which has all that a transaction needs."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self.fetch, self.fetchrow, self.fetchval = connection.fetch, connection.fetchrow, connection.fetchval
        self.execute, self.transaction = connection.execute, connection.transaction

    async def check(self) -> None:
        """InvalidInput unless there is a transaction."""
        if not self._connection.is_in_transaction():
            raise _no_transaction()

    @staticmethod
    def explain(error: Exception, url: str) -> MainspringError | None:
        """The driver's errors as ours."""
        return explain(error, url)


class _Psycopg(ABC):
    """A caller's psycopg connection, with the interface of asyncpg's."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[object]:
        """A part of the caller's transaction that may be undone alone."""

    @abstractmethod
    async def _ask(self, query: str, args: list[object], *, rows: bool) -> Any:
        """All rows of a statement's answer, or its status."""

    async def check(self) -> None:
        """InvalidInput unless there is a transaction. A connection that is not in autocommit begins one by itself with
        its first statement."""
        if self._connection.info.transaction_status == _IDLE:
            if self._connection.autocommit:
                raise _no_transaction()
            await self.execute("SELECT 1")

    @staticmethod
    def explain(error: Exception, url: str) -> MainspringError | None:
        """Errors of the caller's own driver are raised unchanged."""
        return None

    async def execute(self, query: str, *args: object) -> str:
        """The status of a statement."""
        return str(await self._ask(query, _lists(args), rows=False))

    async def fetch(self, query: str, *args: object) -> list[Any]:
        """All rows, as tuples."""
        return list(await self._ask(query, _lists(args), rows=True))

    async def fetchrow(self, query: str, *args: object) -> Any:
        """The first row."""
        rows = await self.fetch(query, *args)
        return rows[0] if rows else None

    async def fetchval(self, query: str, *args: object) -> Any:
        """The first value of the first row."""
        row = await self.fetchrow(query, *args)
        return None if row is None else row[0]


class _AsyncPsycopg(_Psycopg):
    def transaction(self) -> AbstractAsyncContextManager[object]:
        context: AbstractAsyncContextManager[object] = self._connection.transaction()
        return context

    async def _ask(self, query: str, args: list[object], *, rows: bool) -> Any:
        async with import_module("psycopg").AsyncRawCursor(self._connection) as cursor:
            await cursor.execute(query, args)
            return await cursor.fetchall() if rows else cursor.statusmessage


class _BlockingPsycopg(_Psycopg):
    """A blocking connection, as code without an event loop has it. It is used on a thread, which psycopg allows, so
    that it blocks no other code."""

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        part = self._connection.transaction()
        await asyncio.to_thread(part.__enter__)
        try:
            yield
        except BaseException as error:
            await asyncio.to_thread(part.__exit__, type(error), error, error.__traceback__)
            raise
        await asyncio.to_thread(part.__exit__, None, None, None)

    async def _ask(self, query: str, args: list[object], *, rows: bool) -> Any:
        return await asyncio.to_thread(self._ask_here, query, args, rows)

    def _ask_here(self, query: str, args: list[object], rows: bool) -> Any:
        with import_module("psycopg").RawCursor(self._connection) as cursor:
            cursor.execute(query, args)
            return cursor.fetchall() if rows else cursor.statusmessage


def _lists(args: tuple[object, ...]) -> list[object]:
    """psycopg takes a tuple for a composite value."""
    return [list(value) if isinstance(value, tuple) else value for value in args]
