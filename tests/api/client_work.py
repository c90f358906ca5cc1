"""What stands between a client and a server, and fails on purpose."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from typing import NamedTuple


class Seen(NamedTuple):
    """A request that came by."""

    method: str
    path: str
    headers: dict[str, str]


Deed = Callable[["Flaky", socket.socket, bytes], None]
"""What is done with one request."""


def pass_on(proxy: Flaky, client: socket.socket, request: bytes) -> None:
    """Both ways, until the server closes."""
    with proxy.reach(request) as server:
        while chunk := server.recv(65_536):
            client.sendall(chunk)


def lose_reply(proxy: Flaky, client: socket.socket, request: bytes) -> None:
    """The server does it, and the reply is lost."""
    with proxy.reach(request) as server:
        while server.recv(65_536):
            pass


def date_by(seconds: int) -> Deed:
    """Pass on, but let the server's clock be fast by this much."""

    def pump(proxy: Flaky, client: socket.socket, request: bytes) -> None:
        data = b""
        with proxy.reach(request) as server:
            while chunk := server.recv(65_536):
                data += chunk
        date = format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)
        client.sendall(re.sub(rb"(?im)^date: [^\r]*", f"date: {date}".encode(), data, count=1))

    return pump


def hang_up(proxy: Flaky, client: socket.socket, request: bytes) -> None:
    """The server never hears of it."""


def refuse(kind: str, status: int, retry_after: int | None = None) -> Deed:
    """Answer with a problem."""

    def answer(proxy: Flaky, client: socket.socket, request: bytes) -> None:
        words = {"type": f"urn:mainspring:problem:{kind}", "title": "", "status": status, "detail": kind}
        body = json.dumps({**words, "request_id": "r"}).encode()
        asked = "" if retry_after is None else f"Retry-After: {retry_after}\r\n"
        head = (
            f"HTTP/1.1 {status} No\r\nContent-Type: application/problem+json\r\n{asked}Content-Length: {len(body)}\r\n"
        )
        client.sendall(f"{head}Connection: close\r\n\r\n".encode() + body)

    return answer


def cut_after(events: int) -> Deed:
    """Pass a stream on until this many events have come by, and break off."""

    def pump(proxy: Flaky, client: socket.socket, request: bytes) -> None:
        data = b""
        with proxy.reach(request) as server:
            while data.count(b"\ndata: ") <= events and (chunk := server.recv(65_536)):
                data += chunk
        # Into the middle of the event after them.
        client.sendall(b"\ndata: ".join(data.split(b"\ndata: ")[: events + 1]))

    return pump


class Flaky:
    """A proxy that treats each request as planned; once the plan is used up, it passes requests on."""

    def __init__(self, server_url: str) -> None:
        host, _, port = server_url.removeprefix("http://").rpartition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.seen: list[Seen] = []
        self._deeds: list[Deed] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def will(self, *deeds: Deed) -> None:
        """What to do with the next requests."""
        self.seen.clear()
        self._deeds[:] = deeds

    def reach(self, request: bytes) -> socket.socket:
        """The server, which has got the request."""
        server = socket.create_connection(self._server, timeout=30)
        head, _, body = request.partition(b"\r\n\r\n")
        server.sendall(head + b"\r\nConnection: close\r\n\r\n" + body)
        return server

    def close(self) -> None:
        """Listen no more."""
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, suppress(OSError):
            client.settimeout(30)
            request = _read_request(client)
            if request:
                deed = self._deeds.pop(0) if self._deeds else pass_on
                self.seen.append(_parse(request))
                deed(self, client, request)


def _read_request(client: socket.socket) -> bytes:
    """One request without its `Connection` header, whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        chunk = client.recv(65_536)
        if not chunk:
            return b""
        data += chunk
    head, _, body = data.partition(b"\r\n\r\n")
    length = int(_parse(data).headers.get("content-length", "0"))
    while len(body) < length:
        body += client.recv(65_536)
    lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def _parse(request: bytes) -> Seen:
    first, *lines = request.partition(b"\r\n\r\n")[0].decode().split("\r\n")
    method, path, _ = first.split(" ")
    pairs = (line.partition(": ") for line in lines)
    return Seen(method, path, {name.lower(): value for name, _, value in pairs})
