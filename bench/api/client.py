"""A client that costs little: keep-alive connections on one loop, requests made beforehand, answers looked at no closer
than needed. What it takes of the processor is taken from both servers that are compared."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import cast

Request = Callable[[], bytes]


def post(host: str, path: str, body: bytes, token: str | None = None, method: str = "POST") -> bytes:
    """A request as it is sent."""
    lines = [
        f"{method} {path} HTTP/1.1",
        f"Host: {host}",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
    ]
    if token is not None:
        lines.append(f"Authorization: Bearer {token}")
    return "\r\n".join([*lines, "", ""]).encode() + body


@dataclass
class Outcome:
    """What came of it."""

    latencies_ms: list[float] = field(default_factory=list)
    statuses: dict[int, int] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def rate(self) -> float:
        """Answers per second."""
        return len(self.latencies_ms) / self.seconds


class Connection(asyncio.Protocol):
    """One keep-alive connection: one request at a time."""

    def __init__(self) -> None:
        self._buffer = b""
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ready."""
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Pass a whole answer to its request."""
        self._buffer += data
        head, separator, rest = self._buffer.partition(b"\r\n\r\n")
        if not separator:
            return
        length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
        if len(rest) >= length and self._answer is not None:
            self._buffer = b""
            self._answer.set_result((int(head[9:12]), rest))

    def connection_lost(self, exc: Exception | None) -> None:
        """No answer will come."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server closed the connection"))

    async def ask(self, request: bytes) -> tuple[int, bytes]:
        """The status and the body."""
        self._answer = asyncio.get_running_loop().create_future()
        self.transport.write(request)
        return await self._answer


async def connect(host: str, port: int) -> Connection:
    """A new connection."""
    _, connection = await asyncio.get_running_loop().create_connection(Connection, host, port)
    return connection


async def storm(host: str, port: int, request: Request, *, clients: int, seconds: float) -> Outcome:
    """Each client asks again as soon as it is answered."""
    outcome = Outcome()
    connections = [await connect(host, port) for _ in range(clients)]
    began = time.perf_counter()
    until = began + seconds

    async def one(connection: Connection) -> None:
        while (sent := time.perf_counter()) < until:
            status, _ = await connection.ask(request())
            outcome.latencies_ms.append((time.perf_counter() - sent) * 1000)
            outcome.statuses[status] = outcome.statuses.get(status, 0) + 1

    await asyncio.gather(*map(one, connections))
    outcome.seconds = time.perf_counter() - began
    _close(connections)
    return outcome


async def stream(host: str, port: int, request: Request, *, per_second: float, seconds: float) -> Outcome:
    """A fixed rate of requests, whether answers come or not: latency counts from when a request was due to be sent."""
    outcome = Outcome()
    idle = [await connect(host, port) for _ in range(32)]
    everybody = list(idle)
    began = time.perf_counter()

    async def one(due: float) -> None:
        connection = idle.pop() if idle else await connect(host, port)
        status, _ = await connection.ask(request())
        outcome.latencies_ms.append((time.perf_counter() - due) * 1000)
        outcome.statuses[status] = outcome.statuses.get(status, 0) + 1
        idle.append(connection)

    tasks = []
    for number in range(int(per_second * seconds)):
        due = began + number / per_second
        await asyncio.sleep(max(due - time.perf_counter(), 0))
        tasks.append(asyncio.create_task(one(due)))
    await asyncio.gather(*tasks)
    outcome.seconds = time.perf_counter() - began
    _close([*everybody, *idle])
    return outcome


def _close(connections: list[Connection]) -> None:
    for connection in connections:
        connection.transport.close()
