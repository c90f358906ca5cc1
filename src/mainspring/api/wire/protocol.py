"""The HTTP protocol, with bounds that uvicorn's own lacks: size and duration of headers, and number of connections."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from mainspring.api.problems import MEDIA_TYPE, PREFIX

LARGEST_HEADERS = 65_536
HEADERS_S = 10.0
UNREAD_BODY_S = 10.0
"""How long the rest of a body may take after the response was sent. Closing immediately could lose the response: the
kernel resets a connection on which data still arrives."""
MOST_CONNECTIONS = 10_000


class BoundedProtocol(HttpToolsProtocol):
    """Closes a connection whose headers take too long or are too large."""

    def __init__(self, *args: Any, **words: Any) -> None:
        super().__init__(*args, **words)
        self._unread = 0
        """Bytes of headers received since the last request; -1 while a body arrives."""
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Count the connection, and start the timer of its headers."""
        super().connection_made(cast(asyncio.Transport, transport))
        if len(self.connections) > MOST_CONNECTIONS:
            self._refuse(503, "overloaded", "too many connections are open", b"retry-after: 1\r\n")
            return
        self._await_headers()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Count the bytes that arrive before the headers are complete."""
        if self._unread >= 0:
            if self._patience is None:
                self._await_headers()
            self._unread += len(data)
        super().data_received(data)
        # The headers may have ended within this packet: then this is 0 or -1 again.
        if self._unread > LARGEST_HEADERS and not self.transport.is_closing():
            self._refuse(431, "bad-request", "the headers are too large")

    def on_headers_complete(self) -> None:
        """The headers are complete. The application bounds how long the body may take."""
        self._unread = -1
        self._stop_waiting()
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next bytes belong to the next request."""
        self._unread = 0
        self._stop_waiting()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """After a response that did not wait for the body, bound how long the rest of the body may take."""
        super().on_response_complete()
        if self._unread < 0 and self.cycle.response_complete and not self.transport.is_closing():
            self._stop_waiting()
            self._patience = self.loop.call_later(UNREAD_BODY_S, self.transport.close)

    def send_400_response(self, msg: str) -> None:
        """Refuse input that is not HTTP with a problem document, like every other error."""
        self._refuse(400, "bad-request", "this is not HTTP as it is understood here")

    def _await_headers(self) -> None:
        self._patience = self.loop.call_later(HEADERS_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._patience is not None:
            self._patience.cancel()
            self._patience = None

    def _give_up(self) -> None:
        self._patience = None
        if self.transport.is_closing():
            return
        if self._unread > 0:
            self._refuse(408, "slow-body", "the headers did not arrive in time")
        elif self.cycle is None:
            self.transport.close()

    def _refuse(self, status: int, kind: str, detail: str, more: bytes = b"") -> None:
        body = msgspec.json.encode({"type": PREFIX + kind, "title": detail, "status": status, "detail": detail})
        self.transport.write(
            b"HTTP/1.1 %d Refused\r\ncontent-type: %b\r\ncontent-length: %d\r\nconnection: close\r\n%b\r\n%b"
            % (status, MEDIA_TYPE.encode(), len(body), more, body)
        )
        self.transport.close()
