"""The door of the API: a server on a port of its own, and its clients."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import httpx

from mainspring import Mainspring
from mainspring.api.auth.tokens import Keys, issue, load_keys
from mainspring.api.server import Server
from mainspring.core.instants import HOUR, Duration
from mainspring.store import Store

SECRET = "Zm9yIHRlc3RzIG9ubHk6IG5vdCBhIHNlY3JldCBhdCBhbGw="
PATIENCE_S = 20.0

T = TypeVar("T")


def make_app(folder: Path, store: str | None = None, **settings: Any) -> Mainspring:
    """An app with a task, on a database of its own unless another is named."""
    words = {"secret": SECRET, "host": "127.0.0.1", "port": 0, "durable": False, "submit_rate": 1_000_000, **settings}
    app = Mainspring(store or f"sqlite:///{folder}/api.db", name="films", **words)

    @app.task
    def encode(video: str, size: str = "HD") -> str:
        return f"{video} in {size}"

    return app


class Door:
    """One server, and its clients."""

    def __init__(self, app: Mainspring, server: Server) -> None:
        self.app = app
        self.server = server
        self.url = server.url
        self._clients: list[httpx.Client] = []

    @property
    def keys(self) -> Keys:
        """What its tokens are signed with."""
        keys = load_keys(self.app.settings)
        assert keys is not None
        return keys

    def token(
        self,
        *roles: str,
        subject: str = "ann",
        namespace: str = "default",
        lifetime: Duration = HOUR,
        grants: Mapping[str, Sequence[str]] | None = None,
    ) -> str:
        """A token with these roles."""
        words: dict[str, Any] = {"subject": subject, "lifetime": lifetime, "now": self.app.clock.now()}
        token, _ = issue(self.keys, self.app.settings, roles=grants or {namespace: roles}, **words)
        return token

    def client(self, *roles: str, **words: Any) -> httpx.Client:
        """A client with these roles; without any, a client without a token."""
        headers = {"Authorization": f"Bearer {self.token(*roles, **words)}"} if roles or words else {}
        client = httpx.Client(base_url=self.url, headers=headers, timeout=PATIENCE_S)
        self._clients.append(client)
        return client

    def ask(self, work: Callable[[Store], Coroutine[Any, Any, T]]) -> T:
        """Ask the store itself."""

        async def do() -> T:
            return await work(await self.app.open())

        return asyncio.run(do())

    def raw(self, data: bytes, *, wait_s: float = PATIENCE_S) -> bytes:
        """What comes back for bytes that no client library would send; until the server closes the connection."""
        with self.connect() as connection:
            connection.settimeout(wait_s)
            connection.sendall(data)
            return read_all(connection)

    def connect(self) -> socket.socket:
        """A bare connection."""
        host, _, port = self.url.removeprefix("http://").rpartition(":")
        return socket.create_connection((host, int(port)), timeout=PATIENCE_S)

    def close(self) -> None:
        """Close all clients."""
        for client in self._clients:
            client.close()


def read_all(connection: socket.socket) -> bytes:
    """All that comes until the other side closes, or is silent for too long."""
    answer = b""
    while True:
        try:
            chunk = connection.recv(65_536)
        except TimeoutError:
            return answer
        if not chunk:
            return answer
        answer += chunk


@contextmanager
def open_door(folder: Path, **settings: Any) -> Iterator[Door]:
    """A running server."""
    app = make_app(folder, **settings)
    server = Server(app)
    asyncio.run(server.start())
    door = Door(app, server)
    try:
        yield door
    finally:
        door.close()
        asyncio.run(server.stop())
        asyncio.run(app.close())


def until(happened: Callable[[], T | None]) -> T:
    """Wait for something to be true, but not for ever."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        if found := happened():
            return found
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.01)


def problem(answer: httpx.Response, status: int, kind: str) -> dict[str, Any]:
    """The problem document of an answer, which must be of this kind."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    document: dict[str, Any] = answer.json()
    assert document["type"] == f"urn:mainspring:problem:{kind}", document
    assert document["status"] == status
    assert document["request_id"] == answer.headers["x-request-id"]
    return document


def fields(document: dict[str, Any]) -> list[str]:
    """The fields that a problem names, each with a fault and a remedy."""
    assert all(each["fault"] and each["remedy"] for each in document["errors"]), document
    return sorted(each["field"] for each in document["errors"])
