"""A bounded number of connections of one event loop, lent one at a time.

Why not the driver's own pool: waiting is measured and bounded apart from connecting, the holder of a connection for too
long is named, and nothing is done to a connection between two uses, unless it lay idle for long.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import NamedTuple

import msgspec

from mainspring.errors import StoreUnavailable
from mainspring.process.background import where
from mainspring.stores.postgres.server.connection import Connection, close_quietly
from mainspring.stores.postgres.server.errors import DRIVER_ERRORS

log = logging.getLogger("mainspring")

PARTING_S = 5.0
RESTED_S = 30.0
"""A connection that was idle for this long is checked before use: a firewall may have cut it silently."""


class Bounds(NamedTuple):
    """How many connections a pool has, and how long each thing may take; see the settings `pool_*`."""

    size: int = 10
    min_idle: int = 2
    """How many connections stay open, however long they are idle."""
    wait_s: float = 5.0
    """A caller that gets no connection within this time gets an error."""
    exhausted_s: float = 5.0
    """Once no connection has become free for this long, callers are refused at once."""
    idle_s: float = 600.0
    lifetime_s: float = 1_800.0
    leak_s: float = 60.0
    """The holder of a connection for this long is named in the log."""
    validation_s: float = 3.0


class Waiting(msgspec.Struct):
    """How long callers waited for a connection so far."""

    count: int = 0
    seconds: float = 0.0
    longest_s: float = 0.0
    leaks: int = 0
    """How often a connection was found to be held for too long."""

    def add(self, seconds: float) -> None:
        """Record a wait."""
        self.count += 1
        self.seconds += seconds
        self.longest_s = max(self.longest_s, seconds)


class _Loan(msgspec.Struct):
    """A connection that is in use."""

    since: float
    taker: object
    task: asyncio.Task[object] | None
    reported: bool = False


class ConnectionPool:
    """Connections are opened when they are needed, and kept. Belongs to the event loop on which it is created."""

    def __init__(self, connect: Callable[[], Awaitable[Connection]], bounds: Bounds, waiting: Waiting) -> None:
        self.loop = asyncio.get_running_loop()
        self._connect = connect
        self._bounds = bounds
        self._waiting = waiting
        self._idle: list[tuple[Connection, float]] = []
        """In order of use, the latest last, each with the time of its return."""
        self._free = bounds.size
        self._queue: deque[asyncio.Future[bool]] = deque()
        self._passed_on_at = 0.0
        """When a slot last became free."""
        self._doubted_at = 0.0
        """What was idle then is checked before use."""
        self._held: dict[Connection, _Loan] = {}
        self._made_at: dict[Connection, float] = {}
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
            connection = await self._pop_idle() or await self._open()
        except BaseException:
            self._pass_on()
            raise
        self._held[connection] = _Loan(time.monotonic(), taker, asyncio.current_task())
        if self._watch is None:
            self._watch = self.loop.call_later(self._look_s(), self._look_after)
        return connection

    @property
    def size(self) -> int:
        """How many connections there may be."""
        return self._bounds.size

    @property
    def in_use(self) -> int:
        """How many slots are taken."""
        return self._bounds.size - self._free

    @property
    def idle(self) -> int:
        """How many connections are open and not in use."""
        return len(self._idle)

    @property
    def waiters(self) -> int:
        """How many callers wait."""
        return sum(not turn.done() for turn in self._queue)

    def give_back(self, connection: Connection) -> None:
        """Take back a connection on which no transaction is under way."""
        self._held.pop(connection, None)
        if self._closed:
            self.discard(connection)
            return
        now = time.monotonic()
        if now - self._made_at.get(connection, now) >= self._bounds.lifetime_s:
            self.discard(connection)
            return
        if not connection.is_closed():
            self._idle.append((connection, now))
        else:
            self._made_at.pop(connection, None)
        self._pass_on()

    def discard(self, connection: Connection) -> None:
        """Take back a connection that must not be used again. Its slot is free once the connection is closed."""
        self._held.pop(connection, None)
        self._made_at.pop(connection, None)
        task = self.loop.create_task(close_quietly(connection))
        self.await_at_end(task)
        task.add_done_callback(lambda _: self._pass_on())

    def await_at_end(self, task: asyncio.Task[None]) -> None:
        """Let `close` wait for a task of this loop."""
        self._partings.add(task)
        task.add_done_callback(self._partings.discard)

    def doubt_idle(self) -> None:
        """Check idle connections before use: another one gave no answer, and what cut it off may have cut these."""
        self._doubted_at = time.monotonic()

    def drop_idle(self) -> None:
        """Close all idle connections: the server is gone, or is no longer the primary."""
        idle, self._idle = self._idle, []
        for connection, _ in idle:
            self._made_at.pop(connection, None)
            connection.terminate()

    async def close(self) -> None:
        """Close all connections; those in use are closed when they are returned."""
        if self._farewell is not None:
            await self._farewell.aclose()
        self._closed = True

    async def _close_at_the_end(self) -> AsyncGenerator[None, None]:
        """A loop that ends properly closes its generators: so its connections are closed even if no caller closes the
        store, as in a program that calls `asyncio.run` several times."""
        try:
            yield
        finally:
            await self._close()

    async def _close(self) -> None:
        until = time.monotonic() + PARTING_S
        while self._partings and time.monotonic() < until:
            await asyncio.wait(tuple(self._partings), timeout=until - time.monotonic())
        self._closed = True
        if self._watch is not None:
            self._watch.cancel()
        idle, self._idle = self._idle, []
        self._made_at.clear()
        await asyncio.gather(*(close_quietly(connection) for connection, _ in idle))

    async def _open(self) -> Connection:
        connection = await self._connect()
        self._made_at[connection] = time.monotonic()
        return connection

    async def _pop_idle(self) -> Connection | None:
        while self._idle:
            connection, since = self._idle.pop()
            if await self._is_fit(connection, since):
                return connection
            self._made_at.pop(connection, None)
            connection.terminate()
        return None

    async def _is_fit(self, connection: Connection, since: float) -> bool:
        """Whether a connection can be used that is idle since then. If it gives no answer, those that are idle for
        longer are dropped with it: each would cost its caller another wait."""
        if connection.is_closed():
            return False
        if since > self._doubted_at and time.monotonic() - since < RESTED_S:
            return True
        try:
            await connection.fetchval("SELECT 1", timeout=self._bounds.validation_s)
        except DRIVER_ERRORS:
            self.drop_idle()
            return False
        except BaseException:
            connection.terminate()
            self.drop_idle()
            raise
        return True

    def _pass_on(self) -> None:
        """A slot is free: it goes to the caller that has waited longest."""
        self._passed_on_at = time.monotonic()
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(True)
                return
        self._free += 1

    async def _wait_turn(self) -> None:
        """Wait until a slot is free. The timer resolves the wait itself, so that no wait ends by a cancellation that no
        caller requested."""
        began = time.monotonic()
        if self._queue and began - self._passed_on_at >= self._bounds.exhausted_s:
            raise StoreUnavailable(self._describe_shortage(began - self._passed_on_at))
        if not self._queue:
            self._passed_on_at = max(self._passed_on_at, began)  # From now on a caller waits.
        turn: asyncio.Future[bool] = self.loop.create_future()
        self._queue.append(turn)
        timer = self.loop.call_later(self._bounds.wait_s, _end_wait, turn)
        try:
            came = await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.result():
                self._pass_on()  # The slot was granted as the caller left.
            raise
        finally:
            timer.cancel()
            self._waiting.add(time.monotonic() - began)
        if not came:
            raise StoreUnavailable(self._describe_shortage(self._bounds.wait_s))

    def _describe_shortage(self, seconds: float) -> str:
        holders = ", ".join(sorted({_place(loan.taker) for loan in self._held.values()})) or "new connections"
        return (
            f"no database connection became free within {seconds:.3g} s: all {self._bounds.size} of this event loop "
            f"(setting pool_size) are in use, by {holders}. Raise pool_size, or do less at once"
        )

    def _look_s(self) -> float:
        return min(self._bounds.leak_s, self._bounds.idle_s) / 2

    def _look_after(self) -> None:
        """Name the holders of connections for too long, and close what has not been used for long."""
        now = time.monotonic()
        for loan in self._held.values():
            if not loan.reported and now - loan.since >= self._bounds.leak_s:
                loan.reported = True
                self._waiting.leaks += 1
                waits = "" if loan.task is None else f", which waits in {where(loan.task)}"
                log.warning(
                    "a database connection has been in use for %.0f s by %s%s",
                    *(now - loan.since, _place(loan.taker), waits),
                )
        self._close_rested(now)
        again = bool(self._held) or len(self._idle) > self._bounds.min_idle
        self._watch = self.loop.call_later(self._look_s(), self._look_after) if again else None

    def _close_rested(self, now: float) -> None:
        while len(self._idle) > self._bounds.min_idle and now - self._idle[0][1] >= self._bounds.idle_s:
            connection, _ = self._idle.pop(0)
            self._made_at.pop(connection, None)
            self.await_at_end(self.loop.create_task(close_quietly(connection)))


def _end_wait(turn: asyncio.Future[bool]) -> None:
    if not turn.done():
        turn.set_result(False)


def _place(taker: object) -> str:
    """The code location that took a connection."""
    code = getattr(taker, "__code__", None)
    if code is None:
        return str(taker)
    return f"{getattr(taker, '__qualname__', '?')} ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})"
