"""Servers that answer as a test says, and names that resolve as a test says."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest


class Server:
    """Answers as a test says, and remembers what it was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.answer: Callable[[str], bytes] = lambda _: reply(200, b"ok")
        self.port = 0
        self.tls: ssl.SSLContext | None = None
        self._open: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def listening(self, host: str) -> AsyncIterator[None]:
        """Until the end, and until all connections have ended."""
        server = await asyncio.start_server(self.serve, host, ssl=self.tls)
        self.port = server.sockets[0].getsockname()[1]
        yield
        server.close()
        await asyncio.gather(*self._open)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            await self.converse(reader, writer)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = head.strip().split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append((first, headers, body))
        writer.write(self.answer(first.split()[1]))
        await writer.drain()


class Dripping(Server):
    """Never comes to an end."""

    async def converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 X\r\n\r\n")
        while True:
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(0.01)


def reply(status: int, body: bytes = b"", **headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", "Connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


class Fickle:
    """Names that resolve to one address after another, as those of an attacker do."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **names: list[str]) -> None:
        self.asked: list[str] = []
        loop = asyncio.get_running_loop()
        real = loop.getaddrinfo

        async def resolve(host: Any, port: Any, **options: Any) -> Any:
            name = str(host).removesuffix(".test")
            if name in names:
                self.asked.append(host)
                host = names[name].pop(0) if len(names[name]) > 1 else names[name][0]
            return await real(host, port, **options)

        monkeypatch.setattr(loop, "getaddrinfo", resolve)
