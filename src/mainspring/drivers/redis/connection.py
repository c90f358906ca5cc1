"""One connection to Redis that all callers of an event loop share: their commands are sent at once, one behind the
other, and answered in order.

Why not the driver's own client: it lends a connection to each call, and takes several times as long for it. What the
driver knows besides (clusters, subscriptions, the current master) is still asked of it: see `client`.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, cast

import hiredis

Word = str | bytes | float
Address = Callable[[], Awaitable[tuple[str, int]]]
Hear = Callable[[bytes | None], None]
"""Given messages; and None, when it is sure that all from then on are heard."""

PING_S = 3.0
"""How often a connection that only listens is tried: one that was cut without a word would stay silent for ever."""


class ReplyError(Exception):
    """What Redis says went wrong; the connection is as good as before."""


class _Connection(asyncio.Protocol):
    """A connection: what was asked, and not answered yet."""

    def __init__(self) -> None:
        self.pending: deque[asyncio.Future[Any]] = deque()
        self.transport: asyncio.Transport | None = None
        self.lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._reader = hiredis.Reader()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._reader.feed(data)
        while (reply := self._reader.gets()) is not False:
            self._take(reply)

    def _take(self, reply: Any) -> None:
        answer = self.pending.popleft()
        if answer.done():
            return  # The caller has gone.
        if isinstance(reply, Exception):
            answer.set_exception(ReplyError(str(reply)))
        else:
            answer.set_result(reply)

    def connection_lost(self, exc: Exception | None) -> None:
        self.transport = None
        if not self.lost.done():
            self.lost.set_result(None)
        while self.pending:
            answer = self.pending.popleft()
            if not answer.done():
                answer.set_exception(ConnectionResetError(str(exc or "the connection was closed")))

    def ask(self, words: tuple[Word, ...]) -> asyncio.Future[Any]:
        if self.transport is None:
            raise ConnectionResetError("the connection was closed")
        answer = asyncio.get_running_loop().create_future()
        self.pending.append(answer)
        one_word = cast(tuple[Word], words)  # Its stub says so; it takes any number.
        self.transport.write(hiredis.pack_command(one_word))
        return answer


class _Subscriber(_Connection):
    """A connection that receives pushed messages."""

    def __init__(self, hear: Hear) -> None:
        super().__init__()
        self._hear = hear

    def _take(self, reply: Any) -> None:
        if isinstance(reply, list) and reply[0] == b"message":
            self._hear(reply[2])
        else:
            super()._take(reply)


class Wire:
    """Connects when it is first asked, and anew after the connection was lost. To be used on one event loop."""

    def __init__(
        self, address: Address, greetings: list[tuple[Word, ...]], tls: ssl.SSLContext | None, timeout_s: float
    ) -> None:
        self._address = address
        self._greetings = greetings
        self._tls = tls
        self._timeout_s = timeout_s
        self._connection: _Connection | None = None
        self._connecting = asyncio.Lock()

    async def call(self, *words: Word) -> Any:
        """The answer to one command. ReplyError, OSError or TimeoutError if there is none: after the last two, whether
        it was carried out is not known."""
        connection = self._connection
        try:
            async with asyncio.timeout(self._timeout_s):
                if connection is None or connection.transport is None:
                    connection = await self._connected()
                return await connection.ask(words)
        except TimeoutError:
            self._drop(connection)  # Answers would be those to others.
            raise TimeoutError(f"no answer within {self._timeout_s:g} s") from None
        except ReplyError as error:
            if str(error).startswith("READONLY"):
                self._drop(connection)  # It is no longer the master.
            raise

    async def listen(self, channels: Sequence[str], hear: Hear) -> None:
        """Subscribe on its own connection, and call `hear`, until cancelled or that is lost: ReplyError, OSError
        or TimeoutError says why."""
        async with asyncio.timeout(self._timeout_s):
            connection = await self._open(partial(_Subscriber, hear))
        try:
            async with asyncio.timeout(self._timeout_s):
                for channel in channels:
                    await connection.ask(("SUBSCRIBE", channel))
            hear(None)
            while connection.transport is not None:
                await asyncio.wait([connection.lost], timeout=PING_S)
                async with asyncio.timeout(PING_S):
                    await connection.ask(("PING",))
        finally:
            self._close(connection)

    async def aclose(self) -> None:
        """Let go."""
        self._drop(self._connection)
        await asyncio.sleep(0)  # Transports close in the next turn of their loop.

    async def _connected(self) -> _Connection:
        async with self._connecting:
            connection = self._connection
            if connection is not None and connection.transport is not None:
                return connection
            self._connection = connection = await self._open(_Connection)
            return connection

    async def _open(self, make: Callable[[], _Connection]) -> _Connection:
        host, port = await self._address()
        _, connection = await asyncio.get_running_loop().create_connection(make, host, port, ssl=self._tls)
        try:
            for words in self._greetings:
                await connection.ask(words)
        except BaseException:
            self._close(connection)
            raise
        return connection

    def _drop(self, connection: _Connection | None) -> None:
        if connection is not None and connection is self._connection:
            self._connection = None
        if connection is not None:
            self._close(connection)

    def _close(self, connection: _Connection) -> None:
        if connection.transport is not None:
            connection.transport.abort()
