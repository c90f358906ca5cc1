"""The upload API: `POST /videos {"video": "v1", "url": "s3://raw/v1"}` answers 201 with the ids of four runs.

`python -m examples.netflix.upload PORT` serves it on this machine.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import msgspec
import uvicorn

from examples.netflix.app import create_encodings

Receive = Callable[[], Awaitable[Any]]
Send = Callable[[dict[str, Any]], Awaitable[None]]
_state: dict[str, Any] = {}


class Upload(msgspec.Struct):
    """The body of a request."""

    video: str
    url: str


async def api(scope: dict[str, Any], receive: Receive, send: Send) -> None:
    """The ASGI application."""
    if scope["type"] == "lifespan":
        await _live(receive, send)
        return
    body = b""
    while (message := await receive()).get("more_body", False):
        body += message["body"]
    body += message.get("body", b"")
    status, answer = await _answer(scope["method"], scope["path"], body)
    headers = [(b"content-type", b"application/json")]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": msgspec.json.encode(answer)})


async def _live(receive: Receive, send: Send) -> None:
    """The connection pool lives as long as the server."""
    await receive()
    async with asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=4) as pool:
        _state["pool"] = pool
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})


async def _answer(method: str, path: str, body: bytes) -> tuple[int, dict[str, Any]]:
    if (method, path) != ("POST", "/videos"):
        return 404, {"error": "there is only POST /videos"}
    try:
        upload = msgspec.json.decode(body, type=Upload)
    except msgspec.MsgspecError as error:
        return 422, {"error": str(error)}
    await _state["pool"].execute(
        "INSERT INTO netflix.videos VALUES ($1, $2) ON CONFLICT DO NOTHING", upload.video, upload.url
    )
    return 201, {"video": upload.video, "runs": [run.id for run in await create_encodings(upload.video, upload.url)]}


if __name__ == "__main__":
    uvicorn.run(api, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
