"""One writer thread, two reader threads (one for history, which may take its time), one file. Work that arrives while a
commit is under way shares the next commit; quick work without contention is done by the calling thread. What is
promised is synced after its commit: see `wal_sync`."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

from mainspring.clock import Clock
from mainspring.core.model import Claim
from mainspring.errors import MainspringError, StoreUnavailable
from mainspring.stores.sqlite.file.connection import (
    begin,
    begin_at_once,
    check_ours,
    closed_on_error,
    connect,
    explain,
    mapped_errors,
    prepare,
)
from mainspring.stores.sqlite.file.fairness import Fairness
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.file.unsynced import abandon, let_go, mend
from mainspring.stores.sqlite.file.wake import Wake
from mainspring.stores.sqlite.file.wal_sync import POSSIBLE, WalSync, nothing
from mainspring.stores.sqlite.file.watch import Watch
from mainspring.stores.sqlite.file.work_item import WorkItem, settle
from mainspring.stores.sqlite.submissions.inbox import LIMIT, is_waiting, take_in

T = TypeVar("T")

log = logging.getLogger("mainspring")

GROUP_LIMIT = 256
SLOW_S = 0.002
"""Where a synced commit takes longer than this, no caller's loop is made to wait for one."""

MOMENT_S = 0.001
"""Most commits take less than this, and to ask the writer thread takes more."""

LOOK_BACK_S, STEPS = 5.0, 20_000
"""How long one read of history may take, and after how many steps of SQLite's virtual machine this is checked."""

BULK_PER_S = 1_000
"""A bulk submission gets one more second for each of these runs: every disk writes them faster."""

MEMORY = ":memory:"

LeftClaim = tuple[Callable[[Transaction], list[Claim]], Callable[[Sequence[Claim], float], None]]
"""How to make a claim for a waiting worker, and how to hand it the result."""


class _TooEarlyError(Exception):
    """Work would have missed runs that are still in the inbox."""


class Database:
    """The file. `write` and `read` run work in a transaction each; writes are durable when they return."""

    schedule_s = 5.0
    """How long a submission may take; see the setting `schedule_timeout`."""

    def __init__(self, path: str, clock: Clock, *, durable: bool = True) -> None:
        self.path = path
        self.clock = clock
        self._listeners: list[Callable[[], None]] = []
        self._writes: SimpleQueue[WorkItem[Any] | None] = SimpleQueue()
        self._reads: SimpleQueue[WorkItem[Any] | None] = SimpleQueue()
        self._looks_back: SimpleQueue[WorkItem[Any] | None] = SimpleQueue()
        self._wake = Wake(path) if path != MEMORY else None
        self._wal_sync = WalSync(path) if durable and POSSIBLE and path != MEMORY else None
        self._closed = self._gone = False
        self._may_close = True
        """Whether the last process to close the file may make a checkpoint: see `unsynced`."""
        self._writing, self._reading = threading.Lock(), threading.Lock()
        self._fairness = Fairness()
        self.standing: LeftClaim | None = None
        self._accepted = 0
        """How many rows this process has put into the inbox since it last took them in, or a few more."""
        self._threads: list[threading.Thread] = []
        if self._wal_sync is not None:
            with mapped_errors(path):
                mend(path)
        self._writer = connect(path)
        try:
            prepare(self._writer, path, synced=durable and not POSSIBLE, now=clock.now())
            self._serve()
        except BaseException:
            self._writer.close()
            raise

    def _serve(self) -> None:
        self._reader = self._open_reader()
        with closed_on_error(self._reader):
            self._historian = self._open_reader()
        self._start(self._write_loop, "writer")
        self._start(self._read_loop, "reader")
        self._start(self._look_back_loop, "historian")
        if self._wal_sync is not None:
            self._start(self._wal_sync.serve, "syncer")

    def _open_reader(self) -> sqlite3.Connection:
        reader = connect(self.path)
        with closed_on_error(reader), mapped_errors(self.path):
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
        if self._wake is not None:
            self._wake.listen(self._call_listeners)
        return lambda: self._listeners.remove(listener)

    def _announce(self) -> None:
        """Something has changed by a commit of this process."""
        if self._wake is not None:
            self._wake.publish()
        self._call_listeners()

    def _call_listeners(self) -> None:
        for listener in tuple(self._listeners):
            try:
                listener()
            except Exception:
                # A hint that could not be delivered must not end the writer thread, and all writing with it.
                log.exception("a listener to changes of %s failed", self.path)

    async def write(
        self, work: Callable[[Transaction], T], *, promised: bool = True, quick: bool = False, takes_in: bool = False
    ) -> T:
        """Run work under the write lock and commit; errors roll back all of it, and nothing else.

        What is not `promised` to a caller (a claim, a lease, a heartbeat) need not survive a power cut, since
        its holder does not either: it is synced with the next promise.

        `quick` work may be done on the calling thread: see `_write_here`. What `takes_in` sees to the inbox itself.
        """
        self._check_open()
        item = WorkItem(work, promised, takes_in)
        if quick and self._write_here(item):
            self._sync(promised and item.error is None)
            await asyncio.sleep(0)  # Other tasks of this loop get their turn, as beside a thread.
            return item.result()
        return await item.send(self._writes)

    async def in_time(self, call: Awaitable[T], size: int = 1) -> T:
        """The answer to a call that a program waits for, if it comes in time; bulk has more of it. Work that no thread
        has begun with by then is never done."""
        within_s = self.schedule_s + (size - 1) / BULK_PER_S
        try:
            async with asyncio.timeout(within_s):
                return await call
        except TimeoutError:
            why = f"{self.path} is locked by another process, or very busy. It may be tried again"
            raise StoreUnavailable(f"not done within {within_s:.3g} s, so given up: {why}") from None

    async def accept(self, query: str, row: Sequence[object]) -> None:
        """Put one row into the inbox: in its own commit on the calling thread if that can be done now, and otherwise
        in the writer thread, which shares a commit among the callers that meet there."""

        def put_in(transaction: Transaction) -> None:
            transaction.execute(query, row)
            transaction.changed = True
            self._accepted += 1

        if not await self._accept_here(query, row):
            is_full = self._accepted >= LIMIT
            await self.in_time(self.write(put_in, quick=is_full, takes_in=not is_full))

    async def _accept_here(self, query: str, row: Sequence[object]) -> bool:
        """False if that cannot be done now, and nothing was written."""
        self._check_open()
        loop = asyncio.get_running_loop()
        if self._accepted >= LIMIT or not self._enter_to_accept(loop):
            return False
        try:
            started = self._put_in(query, row)
        except sqlite3.Error:
            return False  # Other work will meet the same error and report it.
        finally:
            self._leave(loop)
        if not started:
            self._announce()
        await self._keep(loop)
        if started:
            self._call_listeners()  # Not before, since no other work has to hurry.
        return True

    def _put_in(self, query: str, row: Sequence[object]) -> bool:
        """Whether a worker that has left a claim here was given it at once."""
        standing, self.standing = self.standing, None
        if standing is not None and self._accept_and_claim(query, row, standing):
            return True
        self._writer.execute(query, row)
        self._accepted += 1
        return False

    def _accept_and_claim(self, query: str, row: Sequence[object], standing: LeftClaim) -> bool:
        """Accept a run and give it at once to the worker that has left a claim here. False, and nothing is written, if
        it cannot be given."""
        claim, take = standing
        if not begin_at_once(self._writer):
            return False
        sent_at, transaction = self.clock.monotonic(), Transaction(self._writer, self.clock.now())
        try:
            self._writer.execute(query, row)
            claims = claim(transaction)
            if claims:
                transaction.commit()
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")
        if claims:
            self._accepted = 0
            try:
                take(claims, sent_at)
            except Exception:
                log.exception("runs in %s were given to a worker that could not take them", self.path)
        return bool(claims)

    async def _keep(self, loop: asyncio.AbstractEventLoop) -> None:
        """Sync: in the thread for that if a worker here listens, since it may start meanwhile on this very loop
        what was submitted, and here otherwise."""
        if self._wal_sync is not None and self._listeners:
            await self._wal_sync.ask()
            return
        self._sync()
        if self._fairness.is_long(loop):
            await asyncio.sleep(0)

    def _sync(self, promised: bool = True) -> None:
        if promised and self._wal_sync is not None:
            self._wal_sync.sync()

    async def look_back(self, work: Callable[[Transaction], T]) -> T:
        """As `read`, for what may take its time: the loops' reads do not wait for it. StoreUnavailable if it takes too
        long: it would keep the log from being cut short."""
        return await self.read(work, queue=self._looks_back)

    async def read(
        self,
        work: Callable[[Transaction], T],
        *,
        quick: bool = False,
        queue: SimpleQueue[WorkItem[Any] | None] | None = None,
    ) -> T:
        """Run work on one consistent snapshot; on the calling thread if it is `quick` and the reader is free."""
        self._check_open()
        queue = self._reads if queue is None else queue

        def unless_early(transaction: Transaction) -> T:
            if is_waiting(transaction.connection):
                raise _TooEarlyError
            return work(transaction)

        try:
            return await self._see(WorkItem(unless_early), quick, queue)
        except _TooEarlyError:
            await self.write(nothing, promised=False, quick=True)
        return await self._see(WorkItem(work), quick, queue)  # What has come since then came after the question.

    async def _see(self, item: WorkItem[T], quick: bool, queue: SimpleQueue[WorkItem[Any] | None]) -> T:
        if not (quick and self._reading.acquire(blocking=False)):
            return await item.send(queue)
        try:
            self._look(item, self._reader)
        finally:
            self._reading.release()
        return item.result()

    def _check_sound(self) -> None:
        if self._wal_sync is not None and self._wal_sync.failure is not None:
            raise self._wal_sync.failure

    def _check_open(self) -> None:
        self._check_sound()
        if self._closed:
            raise StoreUnavailable(f"{self.path} has been closed by this program")

    def _let_go_if_failed(self, batch: list[WorkItem[Any]]) -> bool:
        """After a failed sync nothing is written or read any more; whether it is so."""
        if self._wal_sync is None or not self._wal_sync.has_failed():
            return False
        for item in batch:
            item.error = self._wal_sync.failure
        settle(batch)
        with self._writing, self._reading:
            if not self._gone:
                self._gone = True
                self._may_close = let_go(self._writer, self._reader, self.path)
                self._looks_back.put(None)
        return True

    def _write_here(self, item: WorkItem[Any]) -> bool:
        """Commit on the calling thread, if that can be done at once: see `_enter`."""
        loop = asyncio.get_running_loop()
        if not self._enter(loop, syncs=item.promised):
            return False
        try:
            if not begin_at_once(self._writer):
                return False
            self._commit_alone(item)
        except sqlite3.Error:
            return False  # The thread will meet the same error and report it.
        finally:
            self._leave(loop)
        return True

    def _enter(self, loop: asyncio.AbstractEventLoop, *, syncs: bool, patience_s: float = 0.0) -> bool:
        """Take the writer for the calling thread, if it is its turn, no other thread writes, and the disk is fast if
        this thread `syncs` as well."""
        if self._fairness.are_others_served(loop):
            return False
        if syncs and self._wal_sync is not None and self._wal_sync.took_s > SLOW_S:
            return False
        if not self._writing.acquire(timeout=patience_s):
            return False
        if self._writes.empty():
            return True
        self._writing.release()
        return False

    def _enter_to_accept(self, loop: asyncio.AbstractEventLoop) -> bool:
        """As `_enter`, for a submission. If a worker of this process listens, a thread syncs (see `_keep`), so the disk
        may be slow; if a claim was left here, the caller waits for the writer."""
        return self._enter(loop, syncs=not self._listeners, patience_s=MOMENT_S if self.standing is not None else 0.0)

    def _leave(self, loop: asyncio.AbstractEventLoop) -> None:
        self._writing.release()
        self._fairness.note(loop)

    def _write_loop(self) -> None:
        watch, stopping = Watch(self._writer), False
        while not stopping:
            batch, stopping = self._next_batch(watch.pause_s)
            try:
                self._write_batch(batch, watch)
            except BaseException as error:
                # This process could never write again if this thread ended.
                log.error("the thread that writes %s met something unexpected, and goes on", self.path, exc_info=error)
                with suppress(sqlite3.Error):
                    self._undo(batch, error)
                settle(batch)

    def _next_batch(self, pause_s: float) -> tuple[list[WorkItem[Any]], bool]:
        """What is to be written together, and whether that is the last of it. Work whose caller gave up waiting is left
        out."""
        batch: list[WorkItem[Any]] = []
        try:
            item = self._writes.get(timeout=pause_s)
            while item is not None and len(batch) < GROUP_LIMIT:
                batch.append(item)
                item = self._writes.get_nowait()
            if item is not None:
                batch.append(item)
        except Empty:
            return [item for item in batch if not item.future.cancelled()], False
        return [item for item in batch if not item.future.cancelled()], item is None

    def _write_batch(self, batch: list[WorkItem[Any]], watch: Watch) -> None:
        if self._let_go_if_failed(batch):
            return
        if batch:
            with self._writing:
                self._commit(batch)
            promised = [item for item in batch if item.promised and item.error is None]
            if promised and self._wal_sync is not None:
                self._wal_sync.sync_for(promised)
            settle(batch)
        if watch.is_due(busy=bool(batch)):
            with self._writing:
                changed = watch.look()
            if changed:
                self._call_listeners()

    def troubles(self) -> dict[str, str]:
        """Which threads of this database have ended although it is open."""
        dead = [thread.name for thread in self._threads if not thread.is_alive()]
        return {} if self._closed else dict.fromkeys(dead, "has ended")

    def _commit(self, batch: list[WorkItem[Any]]) -> None:
        """All of the batch in one commit; work that fails is undone alone."""
        try:
            begin(self._writer)
            if len(batch) == 1:
                self._commit_alone(batch[0])
                return
            whole = Transaction(self._writer, self.clock.now())
            if not all(item.takes_in for item in batch):
                self._take_in(whole)
            for item in batch:
                transaction = self._attempt(item)
                if transaction is not None:
                    whole.events += transaction.events
                    whole.changed = whole.changed or transaction.changed
            whole.commit()
        except BaseException as error:
            self._undo(batch, error)
            return
        if whole.changed:
            self._announce()

    def _commit_alone(self, item: WorkItem[Any]) -> None:
        """Run one item alone in a transaction that has begun, and commit it."""
        transaction = Transaction(self._writer, self.clock.now())
        try:
            if not item.takes_in:
                self._take_in(transaction)
            item.answer = item.work(transaction)
            transaction.commit()
        except BaseException as error:
            self._undo([item], error)
            return
        if transaction.changed:
            self._announce()

    def _take_in(self, transaction: Transaction) -> None:
        take_in(transaction)
        self._accepted = 0

    def _attempt(self, item: WorkItem[Any]) -> Transaction | None:
        transaction = Transaction(self._writer, self.clock.now())
        self._writer.execute("SAVEPOINT work")
        try:
            item.answer = item.work(transaction)
        except BaseException as error:
            if not self._writer.in_transaction:
                raise  # the disk is full or failing: SQLite has rolled back the whole of it
            self._writer.execute("ROLLBACK TO work")
            item.error = self._explained(error)
            return None
        finally:
            if self._writer.in_transaction:
                self._writer.execute("RELEASE work")
        return transaction

    def _undo(self, batch: list[WorkItem[Any]], error: BaseException) -> None:
        if self._writer.in_transaction:
            self._writer.execute("ROLLBACK")
        for item in batch:
            item.error = item.error or self._explained(error)

    def _explained(self, error: BaseException) -> BaseException:
        if isinstance(error, sqlite3.Error):
            explained: MainspringError = explain(error, self.path)
            explained.__cause__ = error
            return explained
        return error

    def _read_loop(self) -> None:
        while (item := self._reads.get()) is not None:
            with self._reading:
                self._look(item, self._reader)
            settle([item])

    def _look_back_loop(self) -> None:
        until = 0.0
        self._historian.set_progress_handler(lambda: time.monotonic() > until, STEPS)
        while (item := self._looks_back.get()) is not None:
            until = time.monotonic() + LOOK_BACK_S
            self._look(item, self._historian)
            settle([item])
        if self._may_close:
            self._historian.close()
        else:
            abandon(self._historian)

    def _look(self, item: WorkItem[Any], reader: sqlite3.Connection) -> None:
        try:
            self._check_sound()
            reader.execute("BEGIN")
            try:
                item.answer = item.work(Transaction(reader, self.clock.now()))
            finally:
                reader.execute("ROLLBACK")
        except BaseException as error:
            item.error = self._explained(error)

    async def close(self) -> None:
        """Finish queued work, then close the file."""
        if self._closed:
            return
        self._closed = True
        self._writes.put(None)
        self._reads.put(None)
        self._looks_back.put(None)
        if self._wake is not None:
            self._wake.close()
        if self._wal_sync is not None:
            self._wal_sync.stop()
        for thread in self._threads:
            await asyncio.to_thread(thread.join)
        with self._reading, self._writing:
            if not self._gone:
                self._reader.close()
                self._writer.close()
            if self._wal_sync is not None:
                self._wal_sync.close()
