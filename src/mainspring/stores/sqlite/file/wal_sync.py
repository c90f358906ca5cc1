"""The write-ahead log, synced apart from the commits that wrote to it.

SQLite's own way (`synchronous = FULL`) syncs inside the commit, under the write lock. Here a commit only writes, and
its author syncs the log afterwards, before anything is promised. Meanwhile others may already write, and see what
was written: a power cut takes the end of the log, so never something without all that was done because of it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
import time
from queue import SimpleQueue
from typing import Any

from mainspring.errors import StoreFailed
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.file.unsynced import failure_of, is_marked, mark
from mainspring.stores.sqlite.file.work_item import WorkItem, settle

log = logging.getLogger("mainspring")

POSSIBLE = hasattr(os, "fdatasync")
"""Where it is not, SQLite does it."""


class WalSync:
    """The log of one open database. Its own thread may `serve` those whose loops have other things to do."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._file = -1
        self._asked: SimpleQueue[WorkItem[Any] | None] = SimpleQueue()
        self._syncing = threading.Lock()
        self.failure: StoreFailed | None = None
        """Why nothing may be promised any more. It stays: see `unsynced`."""
        self.took_s = 0.0
        """How long a sync takes, lately."""

    def sync(self) -> None:
        """Whatever has been committed so far survives a power cut from now on. From any thread; one at a time, since
        of two that sync at once the kernel reports a failure to only one."""
        began = time.perf_counter()
        with self._syncing:
            try:
                if self._file < 0:
                    # It exists while any process has the database open; and no process locks it, so it may be closed.
                    self._file = os.open(f"{self._path}-wal", os.O_RDONLY)
                if not self.has_failed():
                    os.fdatasync(self._file)
            except OSError as error:
                mark(self._path)
                self._fail(str(error))
        if self.has_failed():
            assert self.failure is not None
            raise self.failure
        self.took_s += (time.perf_counter() - began - self.took_s) / 16

    def has_failed(self) -> bool:
        """Whether a sync has failed, in this process or another."""
        if self.failure is None and is_marked(self._path):
            self._fail("a sync by another process failed")
        return self.failure is not None

    def _fail(self, why: str) -> None:
        if self.failure is None:
            self.failure = failure_of(self._path, why)
            log.critical("%s", self.failure)

    def ask(self) -> asyncio.Future[None]:
        """As `sync`, on the thread that runs `serve`."""
        return WorkItem(nothing).send(self._asked)

    def serve(self) -> None:
        """Sync once for all callers that have asked meanwhile, until closed."""
        item = self._asked.get()
        while item is not None:
            batch = [item]
            while not self._asked.empty() and (item := self._asked.get()) is not None:
                batch.append(item)
            self.sync_for(batch)
            settle(batch)
            if item is not None:
                item = self._asked.get()

    def sync_for(self, batch: list[WorkItem[Any]]) -> None:
        """Sync, or report the failure to all of these."""
        try:
            self.sync()
        except StoreFailed as error:
            for item in batch:
                item.error = error

    def stop(self) -> None:
        """End `serve`, after what was asked before."""
        self._asked.put(None)

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def nothing(_: Transaction) -> None:
    """Work that does nothing itself, and takes part in a commit."""
