"""The ceiling: an ASGI application that answers without doing anything, served as Mainspring's API is."""

from __future__ import annotations

import sys
from typing import Any

import uvicorn

BODY = b'{"run_id":"01m7h8fzxd6sm2xpnz52xd9bqn"}'
HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(BODY))]


async def application(scope: Any, receive: Any, send: Any) -> None:
    """Read the body, and answer."""
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 201, "headers": HEADERS})
    await send({"type": "http.response.body", "body": BODY})


if __name__ == "__main__":
    words = {"http": "httptools", "loop": "uvloop", "lifespan": "off", "access_log": False, "log_level": "error"}
    uvicorn.run(application, port=int(sys.argv[1]), **words)
