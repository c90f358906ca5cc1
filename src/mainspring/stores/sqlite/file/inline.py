"""The database without threads: each call runs in one step on the caller's thread, for simulation in virtual time."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from queue import SimpleQueue
from typing import Any, TypeVar

from mainspring.stores.sqlite.file.connection import begin, explain
from mainspring.stores.sqlite.file.database import MEMORY, Database
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.file.wal_sync import nothing
from mainspring.stores.sqlite.file.work_item import WorkItem
from mainspring.stores.sqlite.submissions.inbox import LIMIT, is_waiting, take_in

T = TypeVar("T")


class InlineDatabase(Database):
    """See `Database`. Everything is done on the caller's thread, on one connection."""

    def _serve(self) -> None:
        self._reader = self._writer
        self._wake = None  # No other process can share it.

    @property
    def _may_be_waiting(self) -> bool:
        """Whether to look into the inbox. No other process can put anything into a database in memory; there, to look
        all the same would be every fourth statement."""
        return self._accepted > 0 or self.path != MEMORY

    async def write(
        self, work: Callable[[Transaction], T], *, promised: bool = True, quick: bool = False, takes_in: bool = False
    ) -> T:
        self._check_open()
        connection = self._writer
        try:
            begin(connection)
            transaction = Transaction(connection, self.clock.now())
            if self._may_be_waiting and not takes_in:
                take_in(transaction)
            answer = work(transaction)
            transaction.commit()
        except BaseException as error:
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            if isinstance(error, sqlite3.Error):
                raise explain(error, self.path) from error
            raise
        self._accepted = 0
        if transaction.changed:
            self._announce()
        self._sync(promised)
        return answer

    async def in_time(self, call: Awaitable[T], size: int = 1) -> T:
        return await call  # It takes no time.

    async def accept(self, query: str, row: Sequence[object]) -> None:
        self._check_open()
        if self._accepted >= LIMIT:
            await self.write(nothing, promised=False)
        try:
            self._put_in(query, row)
        except sqlite3.Error as error:
            raise explain(error, self.path) from error
        self._sync()
        self._announce()

    async def read(
        self,
        work: Callable[[Transaction], T],
        *,
        quick: bool = False,
        queue: SimpleQueue[WorkItem[Any] | None] | None = None,
    ) -> T:
        """No other thread can write while it looks."""
        self._check_open()
        if self._may_be_waiting and is_waiting(self._reader):
            await self.write(nothing, promised=False)
        try:
            return work(Transaction(self._reader, self.clock.now()))
        except sqlite3.Error as error:
            raise explain(error, self.path) from error
