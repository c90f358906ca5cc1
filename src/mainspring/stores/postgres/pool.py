"""A bounded number of connections of one event loop, lent one at a time.

Why not the driver's own pool: waiting is measured and bounded apart from connecting, whoever keeps a connection too
long is named, and nothing is done to a connection between two uses.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable

import msgspec

from mainspring.errors import StoreUnavailable
from mainspring.stores.postgres.connection import Connection, close_quietly

log = logging.getLogger("mainspring")

WAIT_S = 5.0
"""Whoever gets no connection within this time is told so."""
HELD_TOO_LONG_S = 10.0


class Waiting(msgspec.Struct):
    """How long callers waited for a connection so far."""

    count: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0

    def add(self, seconds: float) -> None:
        """One more wait."""
        self.count += 1
        self.seconds += seconds
        self.longest_s = max(self.longest_s, seconds)


class Pool:
    """Connections are made when they are needed, and kept. To be used on the loop that it was made on."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], size: int, waiting: Waiting) -> None:
        self.loop = asyncio.get_running_loop()
        self._connect = connect
        self._size = size
        self._waiting = waiting
        self._idle: list[Connection] = []
        self._free = size
        self._queue: deque[asyncio.Future[None]] = deque()
        self._held: dict[Connection, tuple[float, object]] = {}
        self._watch: asyncio.TimerHandle | None = None
        self._partings: set[asyncio.Task[None]] = set()
        self._closed = False
        self._farewell: AsyncGenerator[None, None] | None = None

    async def take(self, taker: object) -> Connection:
        """A connection, the one used last if there is one; `taker` is named if it keeps it too long."""
        if self._closed:
            raise StoreUnavailable("the store has been closed by this program")
        if self._free == 0 or self._queue:
            await self._wait_turn()
        else:
            self._free -= 1
        try:
            if self._farewell is None:
                self._farewell = self._close_at_the_end()
                await anext(self._farewell)
            connection = self._pop_idle() or await self._connect()
        except BaseException:
            self._pass_on()
            raise
        self._held[connection] = (time.monotonic(), taker)
        if self._watch is None:
            self._watch = self.loop.call_later(HELD_TOO_LONG_S, self._look_after)
        return connection

    def give_back(self, connection: Connection) -> None:
        """Take back a connection on which no transaction is under way."""
        self._held.pop(connection, None)
        if self._closed:
            self.discard(connection)
            return
        if not connection.is_closed():
            self._idle.append(connection)
        self._pass_on()

    def discard(self, connection: Connection) -> None:
        """Take back a connection that is not to be used again. Its place is free once it is gone."""
        self._held.pop(connection, None)
        task = self.loop.create_task(close_quietly(connection))
        self.await_at_end(task)
        task.add_done_callback(lambda _: self._pass_on())

    def await_at_end(self, task: asyncio.Task[None]) -> None:
        """Let `close` wait for a task of this loop."""
        self._partings.add(task)
        task.add_done_callback(self._partings.discard)

    def drop_idle(self) -> None:
        """Close all that are not in use: the server went away, or is no longer the one to write to."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()

    async def close(self) -> None:
        """Let go of all connections; those in use follow when they come back."""
        if self._farewell is not None:
            await self._farewell.aclose()
        self._closed = True

    async def _close_at_the_end(self) -> AsyncGenerator[None, None]:
        """Whoever ends a loop properly ends its generators: so its connections are closed even if nobody closes the
        store, as in a program that calls `asyncio.run` several times."""
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        until = time.monotonic() + WAIT_S
        while self._partings and time.monotonic() < until:
            await asyncio.wait(tuple(self._partings), timeout=until - time.monotonic())
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        idle, self._idle = self._idle, []
        await asyncio.gather(*map(close_quietly, idle))

    def _pop_idle(self) -> Connection | None:
        while self._idle:
            connection = self._idle.pop()
            if not connection.is_closed():
                return connection
        return None

    def _pass_on(self) -> None:
        """A place is free: for whoever has waited longest."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def _wait_turn(self) -> None:
        turn: asyncio.Future[None] = self.loop.create_future()
        self._queue.append(turn)
        began = time.monotonic()
        timer = self.loop.call_later(WAIT_S, turn.cancel)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.cancelled() and time.monotonic() - began >= WAIT_S and not _is_cancelled():
                raise StoreUnavailable(self._describe_shortage()) from None
            if turn.done() and not turn.cancelled():
                self._pass_on()  # The turn came as its taker left.
            raise
        finally:
            timer.cancel()
            self._waiting.add(time.monotonic() - began)

    def _describe_shortage(self) -> str:
        holders = ", ".join(sorted({_place(taker) for _, taker in self._held.values()})) or "nobody"
        return (
            f"no database connection became free within {WAIT_S:g} s: all {self._size} of this event loop (setting "
            f"pool_size) are in use, by {holders}. Raise pool_size, or do less at once"
        )

    def _look_after(self) -> None:
        self._watch = self.loop.call_later(HELD_TOO_LONG_S, self._look_after) if self._held else None
        now = time.monotonic()
        for since, taker in self._held.values():
            if now - since >= HELD_TOO_LONG_S:
                log.warning("a database connection has been in use for %.0f s by %s", now - since, _place(taker))


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _place(taker: object) -> str:
    """Where the code is that took a connection."""
    code = getattr(taker, "__code__", None)
    if code is None:
        return str(taker)
    return f"{getattr(taker, '__qualname__', '?')} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"
