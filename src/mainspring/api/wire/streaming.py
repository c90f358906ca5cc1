"""Server-sent events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping

import msgspec

SSE = "text/event-stream"
BEAT_S = 15.0
"""How often to send at least a comment: proxies close silent streams, and a failed write shows a closed one."""


def sse(kind: str, data: object, number: int | None = None) -> bytes:
    """One event. JSON has no line breaks, so its data is one line."""
    place = b"" if number is None else b"id: %d\n" % number
    return b"%bevent: %b\ndata: %b\n\n" % (place, kind.encode(), msgspec.json.encode(data))


def resumed_after(headers: Mapping[str, str]) -> int | None:
    """The number of the last event that a client has, if it says so."""
    text = headers.get("last-event-id", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None


async def beats(stream: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The stream with a comment wherever it is silent."""
    yield b"retry: 1000\n\n"
    pending: asyncio.Future[bytes] | None = None
    try:
        while True:
            pending = pending or asyncio.ensure_future(anext(stream))
            done, _ = await asyncio.wait({pending}, timeout=BEAT_S)
            if not done:
                yield b": still here\n\n"
                continue
            try:
                chunk = pending.result()
            except StopAsyncIteration:
                return
            finally:
                pending = None
            yield chunk
    finally:
        if pending is not None:
            pending.cancel()
