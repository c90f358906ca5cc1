"""Hints between processes: a process publishes its changes by NOTIFY; a thread of each process listens.

Nothing depends on a hint. While this process does not listen, because the connection is lost or a pooler leaves no way
to, listeners are called every half second instead.

The server wakes every connection that listens, to whatever channel, for every notification: with 60 of them one NOTIFY
takes 3 ms of its processor time. So a process listens only while it has to: see `Listener.add` and
`Listener.keep_address`.
"""

from __future__ import annotations

import asyncio
import logging
import random
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import asyncpg

from mainspring.errors import StoreError
from mainspring.process.background import is_cancelled
from mainspring.process.eventloop import new_loop
from mainspring.process.urls import show_url
from mainspring.stores.postgres.server.connection import CONNECT_TIMEOUT_S, Connection, close_quietly, is_pooled
from mainspring.stores.postgres.server.errors import DRIVER_ERRORS
from mainspring.stores.postgres.server.pool import ConnectionPool

log = logging.getLogger("mainspring")

CHANNEL = "mainspring"
GAP_S = 0.004
"""Changes are published one by one, unless they come closer together than this; then those of this interval
together."""
LENIENCE_S = 0.012
"""A notification may come too early by this much, if earlier ones came late."""
POLL_S = 0.5
PING_S = 3.0
"""How often the connection is checked: one that was cut silently would never report it."""
LONGEST_PAUSE_S = 5.0
SILENT_S = 60.0
"""A thread that has neither checked its connection nor polled for this long has stalled."""
SHORTEST_S = 0.01


class Listener:
    """Calls listeners of this process soon after a change by any process. `url` is where LISTEN works, if anywhere."""

    def __init__(self, url: str | None) -> None:
        self._url = url
        self._name = secrets.token_hex(8)
        self._listeners: list[Callable[[], None]] = []
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._stopping = False
        self._remote = 0
        """How many listeners need changes by other processes."""
        self._keeps_address = False
        self._changed: asyncio.Event | None = None
        self._connection: Connection | None = None
        self._using: asyncio.Lock | None = None
        self._asked_at = 0.0
        """When the connection last answered."""
        self._publishing = False
        self._paid_until = 0.0
        self._seen_at = 0.0
        """When the thread last showed that it lives."""
        self.hears = False
        """Whether changes by other processes arrive as they happen."""
        self.address: str | None = None
        """The channel that notifies this process alone; each connection has another one."""
        self.on_hand: Callable[[str], None] = lambda _: None
        self.on_address: Callable[[], None] = lambda: None
        """Called, on the listener's thread, when there is a new address."""

    def add(self, listener: Callable[[], None], *, remote: bool = True) -> Callable[[], None]:
        """See the store port."""
        with self._lock:
            self._listeners.append(listener)
            self._remote += remote
        self._attend()

        def remove() -> None:
            with self._lock:
                self._listeners.remove(listener)
                self._remote -= remote
            self._attend()

        return remove

    def keep_address(self, wanted: bool) -> None:
        """Set whether other processes must be able to reach this process, even if no listener needs it."""
        self._keeps_address = wanted
        self._attend()

    @property
    def _is_needed(self) -> bool:
        return self._remote > 0 or self._keeps_address

    def _attend(self) -> None:
        """Start or stop listening, as needed. Callable from any thread."""
        with self._lock:
            self._seen_at = time.monotonic()
            if self._thread is None and self._is_needed and not self._stopping:
                self._thread = threading.Thread(target=self._serve, name="mainspring-postgres-listener", daemon=True)
                self._thread.start()
            if self._loop is not None and self._changed is not None:
                with suppress(RuntimeError):  # The thread has ended already.
                    self._loop.call_soon_threadsafe(self._changed.set)

    async def ask(self, query: str, *args: object) -> list[Any]:
        """The result of a query through the listening connection, from any loop: the query also shows that the
        connection is alive. ConnectionError if there is none."""
        loop = self._loop
        if loop is None or self.address is None:
            raise ConnectionError("nothing is listened to")
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._ask(query, *args), loop))

    async def _ask(self, query: str, *args: object) -> list[Any]:
        connection, using = self._connection, self._using
        if connection is None or using is None:
            raise ConnectionError("nothing is listened to")
        async with using:
            rows: list[Any] = await connection.fetch(query, *args)
        self._asked_at = time.monotonic()
        return rows

    def troubles(self) -> dict[str, str]:
        """What is wrong with the thread, if anything."""
        thread, silent_s = self._thread, time.monotonic() - self._seen_at
        if thread is None or self._stopping:
            return {}
        if not thread.is_alive():
            return {"postgres listener": "has ended"}
        if not self._is_needed:
            return {}
        return {"postgres listener": f"has stood still for {silent_s:.0f} s"} if silent_s >= SILENT_S else {}

    def call(self) -> None:
        """Call the listeners of this process."""
        for listener in tuple(self._listeners):
            try:
                listener()
            except Exception:
                # A hint that could not be delivered must not undo its commit.
                log.exception("a listener to changes of the store failed")

    def may_tell(self) -> bool:
        """Whether a transaction may notify `CHANNEL` by itself, with a message that this process receives, too. Not
        while many changes share the next notification."""
        now = time.monotonic()
        if self._publishing or now < self._paid_until - LENIENCE_S or (self._listeners and not self.hears):
            return False
        self._paid_until = max(self._paid_until, now) + GAP_S
        return True

    def publish(self, pool: ConnectionPool) -> None:
        """Notify other processes: at once, unless the last notification is very recent."""
        if not self._publishing:
            self._publishing = True
            task = pool.loop.create_task(self._tell(pool))
            pool.await_at_end(task)
            task.add_done_callback(self._notified)

    def _notified(self, task: asyncio.Task[None]) -> None:
        if task.cancelled():
            self._publishing = False  # Its loop ended before it had begun.

    async def _tell(self, pool: ConnectionPool) -> None:
        wait = self._paid_until - LENIENCE_S - time.monotonic()
        if wait > 0:
            await asyncio.sleep(wait)
        self._paid_until = max(self._paid_until, time.monotonic()) + GAP_S
        self._publishing = False  # The next notification covers what changes from here on.
        try:
            connection = await pool.take("NOTIFY")
        except (StoreError, *DRIVER_ERRORS):
            return  # Only a hint is lost. The loops will meet the same error and report it.
        try:
            await connection.execute(f"NOTIFY {CHANNEL}, '{self._name}'")
        except DRIVER_ERRORS:
            pool.discard(connection)
        except BaseException:
            pool.discard(connection)
            raise
        else:
            pool.give_back(connection)

    async def close(self) -> None:
        """Stop listening."""
        with self._lock:
            self._stopping = True
            thread, loop, stop = self._thread, self._loop, self._stop
        if thread is not None:
            if loop is not None and stop is not None:
                with suppress(RuntimeError):  # The thread has ended already.
                    loop.call_soon_threadsafe(stop.set)
            await asyncio.to_thread(thread.join)

    def _serve(self) -> None:
        """Restarts listening, whatever ended it: otherwise this process would never receive changes again."""
        while not self._stopping:
            try:
                with asyncio.Runner(loop_factory=new_loop) as runner:
                    runner.run(self._listen())
            except BaseException as error:
                log.error("the thread that hears of changes failed, and begins anew", exc_info=error)
                time.sleep(POLL_S)

    async def _listen(self) -> None:
        with self._lock:
            self._loop, self._stop, self._changed = asyncio.get_running_loop(), asyncio.Event(), asyncio.Event()
            if self._stopping:
                return
        stop, changed, failures = self._stop, self._changed, 0
        while not stop.is_set():
            changed.clear()
            if not self._is_needed:
                await _any((stop, changed))
                continue
            if self._url is not None:
                try:
                    failures = 0 if await self._hear(self._url, stop) else failures + 1
                except asyncio.CancelledError:
                    if is_cancelled():
                        raise
                    failures += 1
                except DRIVER_ERRORS as error:
                    if failures == 0:
                        log.warning("cannot hear of changes (%s): looking every %g s meanwhile", error, POLL_S)
                    failures += 1
            self.hears = False
            if self._is_needed:
                await self._poll(stop, min(POLL_S * 2.0 ** min(failures, 8), LONGEST_PAUSE_S))

    async def _hear(self, url: str, stop: asyncio.Event) -> bool:
        """Listen until the connection is lost; returns whether listening worked at all."""
        connection = await asyncpg.connect(
            url, timeout=CONNECT_TIMEOUT_S, command_timeout=PING_S, statement_cache_size=0,
            server_settings={"application_name": "mainspring listener"},
        )  # fmt: skip
        try:
            if await is_pooled(connection):
                log.warning(
                    "%s is a pooler, where nothing can be heard: `listen` needs the server itself", show_url(url)
                )
                self._url = None
                return False
            await connection.add_listener(CHANNEL, self._heard)
            self._connection, self._using, self._asked_at = connection, asyncio.Lock(), time.monotonic()
            await self._make_address(connection)
            self.hears = True
            self.on_address()
            self.call()  # Notifications from before are lost.
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            assert self._changed is not None, "_listen has made it"
            while not lost.is_set() and not stop.is_set() and self._is_needed:
                self._changed.clear()
                self._seen_at = time.monotonic()
                if self._seen_at - self._asked_at >= PING_S:
                    await self._ask("SELECT 1")
                await _any((stop, lost, self._changed), max(self._asked_at + PING_S - time.monotonic(), SHORTEST_S))
            if lost.is_set() and not stop.is_set():
                log.warning("the connection that hears of changes is lost: looking every %g s meanwhile", POLL_S)
            return True
        finally:
            self.hears, self.address, self._connection = False, None, None
            await close_quietly(connection)

    async def _make_address(self, connection: Connection) -> None:
        """The lock ends with the connection, so that other processes see at once that this address is dead."""
        address = secrets.token_hex(8)
        await connection.add_listener(f"{CHANNEL}_{address}", self._handed)
        await connection.execute(f"SELECT pg_advisory_lock(mainspring.ear_lock('{address}'))")
        self.address = address

    def _handed(self, connection: Connection, pid: int, channel: str, payload: object) -> None:
        self.on_hand(str(payload))

    def _heard(self, connection: Connection, pid: int, channel: str, payload: object) -> None:
        if payload != self._name:
            self.call()

    async def _poll(self, stop: asyncio.Event, seconds: float) -> None:
        until = time.monotonic() + seconds * random.uniform(0.5, 1.0)
        while True:
            self._seen_at = time.monotonic()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(stop.wait(), POLL_S)
                return
            self.call()
            if time.monotonic() >= until:
                return


async def _any(events: Sequence[asyncio.Event], seconds: float | None = None) -> None:
    """Wait for one of some events, at most this long."""
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
