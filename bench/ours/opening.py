"""An app on a file of its own, and its scheduler and worker in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from bench.harness.script import Answer, Measure, Params
from mainspring import Mainspring
from mainspring.process.eventloop import new_loop
from mainspring.wiring import build_runtime

CONCURRENCY = 100
STOP_S = 10.0


def measure(work: Callable[[Params], Awaitable[Answer]]) -> Measure:
    """A coroutine function as a measure, on the loop that `mainspring up` would use."""

    def run(params: Params) -> Answer:
        async def begin() -> Answer:
            return await work(params)

        with asyncio.Runner(loop_factory=new_loop) as runner:
            return runner.run(begin())

    return run


def path_of(params: Params) -> Path:
    """The database of this measure."""
    return Path(params["folder"]) / "bench.db"


def new_app(params: Params) -> Mainspring:
    """An app with the defaults that users get, but for the concurrency."""
    url = f"sqlite:///{path_of(params)}"
    return Mainspring(url, concurrency=CONCURRENCY, durable=params.get("durable", True))


@asynccontextmanager
async def running(app: Mainspring) -> AsyncIterator[None]:
    """The app's scheduler and worker, as `mainspring up` runs them."""
    runtime = build_runtime(app, app.settings, schedule=True, work=True)
    await runtime.start()
    try:
        yield
    finally:
        await runtime.stop(STOP_S)
