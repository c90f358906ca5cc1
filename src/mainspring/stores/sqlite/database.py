"""One writer thread, one reader thread, one file. Work that arrives while a commit is under way shares the next commit;
quick work that meets nobody is done where it is asked for.

The same work can run inline, without threads: for simulation in virtual time.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar, cast

import msgspec

from mainspring.clock import Clock
from mainspring.core.instants import Instant
from mainspring.core.model import Event
from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.connection import (
    begin,
    begin_at_once,
    check_ours,
    connect,
    explain,
    mapped_errors,
    prepare,
)

T = TypeVar("T")

log = logging.getLogger("mainspring")

WATCH_S = 0.02
"""How often an idle process looks whether another has written: 50 looks of about 10 µs a second."""
BUSY_WATCH_S = 0.1
"""How often a busy one looks."""
GROUP_LIMIT = 256
SLOW_S = 0.002
"""Where a synced commit takes longer than this, no caller's loop is made to wait for one."""
BULK_ROWS = 250
"""SQLite takes 32,766 parameters in a statement; beyond a few hundred rows nothing is gained."""

_APPEND = load_queries("sqlite", "events")["append"]
_encode_events = msgspec.json.Encoder().encode


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


class _Job(Generic[T]):
    """Work to be done, here or in a thread, and its answer."""

    __slots__ = ("answer", "error", "future", "loop", "promised", "work")

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]

    def __init__(self, work: Callable[[Transaction], T], promised: bool = False) -> None:
        self.work = work
        self.promised = promised
        self.answer: T | None = None
        self.error: BaseException | None = None

    def result(self) -> T:
        """Of work that has been done."""
        if self.error is not None:
            raise self.error
        return cast(T, self.answer)

    def send(self, queue: SimpleQueue[_Job[Any] | None]) -> asyncio.Future[T]:
        """Let a thread do it; where the answer will be."""
        self.loop = asyncio.get_running_loop()
        self.future = self.loop.create_future()
        queue.put(self)
        return self.future

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast(T, self.answer))


class Database:
    """The file. `write` and `read` run work in a transaction each; writes are durable when they return."""

    def __init__(self, path: str, clock: Clock, *, durable: bool = True, inline: bool = False) -> None:
        self.path = path
        self.clock = clock
        self._durable = durable
        self._synced = durable
        self._inline = inline
        self._listeners: list[Callable[[], None]] = []
        self._writes: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._reads: SimpleQueue[_Job[Any] | None] = SimpleQueue()
        self._writer = connect(path)
        try:
            prepare(self._writer, path, durable=durable, now=clock.now())
            self._reader = self._writer if inline else self._open_reader()
        except BaseException:
            self._writer.close()
            raise
        self._closed = False
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._served: set[asyncio.AbstractEventLoop] = set()
        self._sync_s = 0.0
        """How long a synced commit takes, lately."""
        self._threads: list[threading.Thread] = []
        if not inline:
            self._start(self._write_loop, "writer")
            self._start(self._read_loop, "reader")

    def _open_reader(self) -> sqlite3.Connection:
        reader = connect(self.path)
        with mapped_errors(self.path):
            check_ours(reader, self.path)
            reader.execute("PRAGMA query_only = ON")
        return reader

    def _start(self, target: Callable[[], None], role: str) -> None:
        thread = threading.Thread(target=target, name=f"mainspring-sqlite-{role}", daemon=True)
        thread.start()
        self._threads.append(thread)

    def on_change(self, listener: Callable[[], None]) -> Callable[[], None]:
        """See the store port."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    def _announce(self) -> None:
        for listener in tuple(self._listeners):
            try:
                listener()
            except Exception:
                # A hint that nobody could take must not end the writer thread, and all writing with it.
                log.exception("a listener to changes of %s failed", self.path)

    async def write(self, work: Callable[[Transaction], T], *, promised: bool = True, quick: bool = False) -> T:
        """Run work under the write lock and commit; errors roll back all of it, and nothing else.

        What is not `promised` to anybody outside (a claim, a lease, a heartbeat) need not survive a power cut, since
        whoever holds it does not either: it is committed without a sync, and is synced with the next promise.

        `quick` work may be done on the calling thread: see `_write_here`.
        """
        self._check_open()
        job = _Job(work, promised)
        if self._inline:
            self._commit([job])
        elif quick and self._write_here(job):
            await asyncio.sleep(0)  # Others on this loop get their turn, as they would have while a thread did it.
        else:
            return await job.send(self._writes)
        return job.result()

    async def read(self, work: Callable[[Transaction], T], *, quick: bool = False) -> T:
        """Run work on one consistent snapshot; on the calling thread if it is `quick` and the reader is free."""
        self._check_open()
        job = _Job(work)
        if self._inline:
            self._look(job)
        elif quick and self._reading.acquire(blocking=False):
            try:
                self._look(job)
            finally:
                self._reading.release()
        else:
            return await job.send(self._reads)
        return job.result()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable(f"{self.path} has been closed by this program")

    def _write_here(self, job: _Job[Any]) -> bool:
        """Commit on the calling thread, if nobody else writes, the lock is free at once, and the disk is fast.

        To wake the writer thread and be woken by it takes as long as a commit on a fast disk. But only one of the
        callers of a loop's turn is served like this: the others meet in the thread, and share a commit.
        """
        loop = asyncio.get_running_loop()
        if loop in self._served or (job.promised and self._sync_s > SLOW_S):
            return False
        if not self._writing.acquire(blocking=False):
            return False
        try:
            if not self._writes.empty():
                return False
            self._set_sync(job.promised)
            if not begin_at_once(self._writer):
                return False
            self._commit_alone(job)
        except sqlite3.Error:
            return False  # The thread will find the same trouble, and tell of it.
        finally:
            self._writing.release()
        self._served.add(loop)
        loop.call_soon(self._served.discard, loop)
        return True

    def _write_loop(self) -> None:
        version, looked_at = self._data_version(), time.monotonic()
        stopping = False
        while not stopping:
            batch: list[_Job[Any]] = []
            try:
                job = self._writes.get(timeout=WATCH_S)
                while job is not None and len(batch) < GROUP_LIMIT:
                    batch.append(job)
                    job = self._writes.get_nowait()
                stopping = job is None
                if job is not None:
                    batch.append(job)
            except Empty:
                pass
            if batch:
                with self._writing:
                    self._commit(batch)
                _settle(batch)
            if time.monotonic() - looked_at >= (BUSY_WATCH_S if batch else WATCH_S):
                looked_at = time.monotonic()
                with self._writing:
                    seen, version = version, self._data_version()
                if seen != version:
                    self._announce()

    def _data_version(self) -> int:
        """Changes when another connection than the writer's has committed."""
        try:
            return int(self._writer.execute("PRAGMA data_version").fetchone()[0])
        except sqlite3.Error:
            return -1

    def _commit(self, batch: list[_Job[Any]]) -> None:
        """All of the batch in one commit; work that fails is undone alone."""
        events: list[Event] = []
        changed = False
        try:
            self._set_sync(any(job.promised for job in batch))
            begin(self._writer)
            if len(batch) == 1:
                self._commit_alone(batch[0])
                return
            for job in batch:
                transaction = self._attempt(job)
                if transaction is not None:
                    events += transaction.events
                    changed = changed or transaction.changed
            self._end(events)
        except BaseException as error:
            self._undo(batch, error)
            return
        if changed:
            self._announce()

    def _commit_alone(self, job: _Job[Any]) -> None:
        """The same of one job, in a transaction that has begun."""
        transaction = Transaction(self._writer, self.clock.now())
        try:
            job.answer = job.work(transaction)
            self._end(transaction.events)
        except BaseException as error:
            self._undo([job], error)
            return
        if transaction.changed:
            self._announce()

    def _end(self, events: list[Event]) -> None:
        execute = self._writer.execute
        if events:
            execute(_APPEND, (len(events), _encode_events(events).decode("utf-8", "replace"), self.clock.now()))
        if not self._synced:
            execute("COMMIT")
            return
        began = time.perf_counter()
        execute("COMMIT")
        self._sync_s += (time.perf_counter() - began - self._sync_s) / 16

    def _set_sync(self, promised: bool) -> None:
        if self._durable and promised != self._synced:
            self._writer.execute(f"PRAGMA synchronous = {'FULL' if promised else 'NORMAL'}")
            self._synced = promised

    def _attempt(self, job: _Job[Any]) -> Transaction | None:
        transaction = Transaction(self._writer, self.clock.now())
        self._writer.execute("SAVEPOINT work")
        try:
            job.answer = job.work(transaction)
        except BaseException as error:
            if not self._writer.in_transaction:
                raise  # the disk is full or failing: SQLite has rolled back the whole of it
            self._writer.execute("ROLLBACK TO work")
            job.error = self._explained(error)
            return None
        finally:
            if self._writer.in_transaction:
                self._writer.execute("RELEASE work")
        return transaction

    def _undo(self, batch: list[_Job[Any]], error: BaseException) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")
        for job in batch:
            job.error = job.error or self._explained(error)

    def _explained(self, error: BaseException) -> BaseException:
        if isinstance(error, sqlite3.Error):
            explained: MainspringError = explain(error, self.path)
            explained.__cause__ = error
            return explained
        return error

    def _read_loop(self) -> None:
        while (job := self._reads.get()) is not None:
            with self._reading:
                self._look(job)
            _settle([job])

    def _look(self, job: _Job[Any]) -> None:
        try:
            self._reader.execute("BEGIN")
            try:
                job.answer = job.work(Transaction(self._reader, self.clock.now()))
            finally:
                self._reader.execute("ROLLBACK")
        except BaseException as error:
            job.error = self._explained(error)

    async def close(self) -> None:
        """Finish queued work, then let go of the file."""
        if self._closed:
            return
        self._closed = True
        self._writes.put(None)
        self._reads.put(None)
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        with self._reading, self._writing:
            self._reader.close()
            self._writer.close()


def _settle(batch: list[_Job[Any]]) -> None:
    """Hand the answers to the loops that wait for them, waking each once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[_Job[Any]]] = {}
    for job in batch:
        by_loop.setdefault(job.loop, []).append(job)
    for loop, jobs in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle_here, jobs)
        except RuntimeError:
            continue  # that loop has ended, and nobody waits there any more


def _settle_here(jobs: list[_Job[Any]]) -> None:
    for job in jobs:
        job.settle()
