"""The ceiling: a Litestar handler that does nothing, served as Mainspring's API is."""

from __future__ import annotations

import sys

import uvicorn
from litestar import Litestar, post


@post("/v1/runs", status_code=201)
async def nothing() -> dict[str, str]:
    """Nothing."""
    return {"run_id": "01m7h8fzxd6sm2xpnz52xd9bqn"}


if __name__ == "__main__":
    app = Litestar([nothing], openapi_config=None, logging_config=None)
    uvicorn.run(app, port=int(sys.argv[1]), http="httptools", loop="uvloop", access_log=False, log_level="error")
