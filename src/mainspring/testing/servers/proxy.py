"""A wire that fails: a proxy before the database that cuts, delays and swallows.

The worst is done to commits: the request arrives, and its answer never does. The caller cannot know what happened.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import Callable, Collection, Coroutine
from concurrent.futures import Future
from contextlib import suppress
from random import Random
from typing import Any, Final, Literal, TypeVar

T = TypeVar("T")

Cut = Literal["answer", "at once", "half"]
CUTS: Final[tuple[Cut, ...]] = ("answer", "at once", "half")
"""What is lost of a commit: the answer, once it is there; whatever comes after the request; or half of the request."""
_SYNC: Final = b"S\x00\x00\x00\x04"
_READY: Final = b"Z\x00\x00\x00\x05"
"""The server is done; one more byte says whether a transaction is open."""
_CHUNK: Final = 65_536
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER: closing sends a reset."""


class Proxy:
    """Runs on its own thread, so that a test may take its time. Its methods are for other threads."""

    def __init__(self, port: int, random: Random) -> None:
        self._target = port
        self.port = 0
        self._random = random
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._links: set[_Link] = set()
        self._serving: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self.commit_loss = 0.0
        """How likely a commit is cut."""
        self.marked: tuple[bytes, Cut] | None = None
        """The transaction in which this is said is cut so when it commits; once."""
        self.delay_s = 0.0
        """How long bytes wait at most, either way."""
        self.passing = asyncio.Event()
        """Whether anything passes. Of the proxy's own loop."""

    def start(self) -> None:
        """Listen on a port that stays the same."""
        self._thread.start()
        self._there(self._listen()).result(10)

    async def _listen(self) -> None:
        self.passing.set()
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Cut everything and end."""
        self._there(self._end()).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        if self._server is not None:
            self._server.close()
        self._cut()
        for serving in self._serving:
            serving.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    def cut(self) -> None:
        """All connections, with a reset."""
        self._loop.call_soon_threadsafe(self._cut)

    def _cut(self) -> None:
        for link in tuple(self._links):
            link.cut()

    def block(self) -> None:
        """Nothing passes any more, and neither side is notified."""
        self._loop.call_soon_threadsafe(self.passing.clear)

    def unblock(self, *, forget: bool) -> None:
        """New bytes pass again. `forget`: not those of connections that were there before; they stay dumb for good, as
        behind a router that was replaced."""

        def let_pass() -> None:
            if forget:
                for link in self._links:
                    link.dumb = True
            self.passing.set()

        self._loop.call_soon_threadsafe(let_pass)

    def own_ports(self) -> Collection[int]:
        """Its own port of each connection to the server, by which the server knows it; without those that stay dumb."""

        async def look() -> list[int]:
            return [link.own_port for link in self._links if not link.dumb]

        return self._there(look()).result(10)

    def _there(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def point_to(self, port: int) -> None:
        """Where new connections lead from now on."""
        self._target = port

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            there = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        link = _Link(self, (reader, writer), there)
        self._links.add(link)
        try:
            await link.serve()
        finally:
            self._links.discard(link)

    def draw_cut(self, *, marked: bool) -> Cut | None:
        """What becomes of a commit that passes now; None: it passes."""
        if marked and self.marked is not None:
            (_, cut), self.marked = self.marked, None
            return cut
        if self._random.random() >= self.commit_loss:
            return None
        return self._random.choice(CUTS)

    async def hold_up(self) -> None:
        """Bytes wait as long as they have to."""
        if self.delay_s:
            await asyncio.sleep(self._random.uniform(0.0, self.delay_s))
        await self.passing.wait()


Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Link:
    """One connection through the proxy."""

    def __init__(self, proxy: Proxy, client: Ends, server: Ends) -> None:
        self._proxy = proxy
        self._client = client
        self._server = server
        self.own_port: int = server[1].get_extra_info("sockname")[1]
        self._idle = False
        self._doomed = False
        self._marked = False
        self.dumb = False

    async def serve(self) -> None:
        """Until either side ends, or it is cut."""
        pumps = [
            asyncio.ensure_future(self._pump(self._client[0], self._ask)),
            asyncio.ensure_future(self._pump(self._server[0], self._answer)),
        ]
        try:
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for pump in pumps:
                pump.cancel()
            self.cut(politely=not self._doomed)

    async def _pump(self, reader: asyncio.StreamReader, pass_on: Callable[[bytes], Coroutine[Any, Any, bool]]) -> None:
        with suppress(OSError):
            while data := await reader.read(_CHUNK):
                if self.dumb:
                    continue
                await self._proxy.hold_up()
                if not self.dumb and not await pass_on(data):
                    return

    async def _ask(self, data: bytes) -> bool:
        self._marked = self._marked or (self._proxy.marked is not None and self._proxy.marked[0] in data)
        cut = self._proxy.draw_cut(marked=self._marked) if self._commits(data) else None
        if cut == "half":
            self._server[1].write(data[: len(data) // 2])
        else:
            self._server[1].write(data)
        await self._server[1].drain()
        self._doomed = cut is not None
        return cut in (None, "answer")

    def _commits(self, data: bytes) -> bool:
        """Whether this ends a transaction: by COMMIT, or as a statement that is one by itself."""
        alone = data.endswith(_SYNC) or (data.startswith(b"Q") and not data.startswith(b"BEGIN", 5))
        return b"COMMIT\x00" in data or (self._idle and alone)

    async def _answer(self, data: bytes) -> bool:
        if data[-6:-1] == _READY:
            self._idle = data.endswith(b"I")
        if self._doomed:
            return False
        self._client[1].write(data)
        await self._client[1].drain()
        return True

    def cut(self, *, politely: bool = False) -> None:
        """End both sides; with a reset unless politely."""
        for _, writer in (self._client, self._server):
            if not politely:
                sock: socket.socket | None = writer.get_extra_info("socket")
                with suppress(OSError):
                    if sock is not None:
                        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                writer.transport.abort()
            else:
                writer.close()
