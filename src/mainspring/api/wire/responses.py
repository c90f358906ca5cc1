"""Responses on the wire: headers that every response has, bodies, and streams that end when their reader leaves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any

from mainspring.api.endpoint import Response
from mainspring.api.wire.decoding import Receive

Send = Callable[[Mapping[str, Any]], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
"""Sent with every response that does not set the header itself."""
_WITHOUT_BODY = (204, 304)
_SECURED = frozenset(name for name, _ in SECURITY_HEADERS)


async def send_response(response: Response, request_id: str, receive: Receive, send: Send) -> None:
    """Send a whole response, and release what it holds."""
    try:
        if response.stream is not None:
            await _send_stream(response, response.stream, request_id, receive, send)
        else:
            await _send_body(response, request_id, send)
    finally:
        response.release()


async def _send_body(response: Response, request_id: str, send: Send) -> None:
    body = response.encode()
    headers = _headers(response, request_id)
    if response.status not in _WITHOUT_BODY:
        headers.append((b"content-type", response.media_type.encode()))
        headers.append((b"content-length", b"%d" % len(body)))
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _headers(response: Response, request_id: str) -> Headers:
    headers = [(name.lower().encode(), value.encode()) for name, value in response.headers.items()]
    own = {name for name, _ in headers}
    if own.isdisjoint(_SECURED):
        headers += SECURITY_HEADERS
    else:
        headers += [pair for pair in SECURITY_HEADERS if pair[0] not in own]
    headers.append((b"x-request-id", request_id.encode()))
    return headers


async def _send_stream(
    response: Response, stream: AsyncIterator[bytes], request_id: str, receive: Receive, send: Send
) -> None:
    """Send chunks until the stream ends or the client disconnects, whichever is first."""
    headers = [*_headers(response, request_id), (b"content-type", response.media_type.encode())]
    await send({"type": "http.response.start", "status": response.status, "headers": headers})
    sending = asyncio.ensure_future(_send_chunks(stream, send))
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if sending.done():
            sending.result()
    finally:
        sending.cancel()
        leaving.cancel()
        # The stream has ended only once its own clean-up has run, which may wait.
        await asyncio.gather(sending, leaving, return_exceptions=True)


async def _send_chunks(stream: AsyncIterator[bytes], send: Send) -> None:
    try:
        async for chunk in stream:
            await send({"type": "http.response.body", "body": chunk, "more_body": True})
    finally:
        # A generator that was never started, or was left in the middle, still has to run its `finally` blocks now.
        if (close := getattr(stream, "aclose", None)) is not None:
            await close()
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
