"""Server-sent events, resumed where they broke off."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import NamedTuple

from mainspring.client.connection import Connection, Request
from mainspring.errors import ServerUnavailable


class Message(NamedTuple):
    """One event of a stream."""

    kind: str
    data: str
    number: str | None
    """What to resume after."""


async def follow(connection: Connection, request: Request, end: str | None = None) -> AsyncGenerator[Message, None]:
    """The events of a stream, each once and in order, over broken connections and servers that are restarted; for ever,
    or until one of the kind `end` has come."""
    last: str | None = None
    failures = 0
    while True:
        resumed = request if last is None else request._replace(headers={**request.headers, "Last-Event-ID": last})
        try:
            async with connection.stream(resumed) as answer:
                async for message in _parse(answer.aiter_lines()):
                    failures = 0
                    last = message.number or last
                    yield message
                    if message.kind == end:
                        return
        except ServerUnavailable:
            failures += 1
            if not await connection.pause(failures):
                raise
        else:
            # The server said goodbye: it stops, and another may be there at once.
            failures += 1
            if not await connection.pause(failures):
                raise ServerUnavailable(f"the server at {connection.url} ends the stream each time: try again later")


async def _parse(lines: AsyncIterator[str]) -> AsyncGenerator[Message, None]:
    kind, data, number = "", "", None
    async for text in lines:
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "event":
                kind = value
            case "data":
                data = value
            case "id":
                number = value
            case "" if not text:
                if data:
                    yield Message(kind, data, number)
                kind, data, number = "", "", None
