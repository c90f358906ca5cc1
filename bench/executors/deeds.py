"""Tasks that do nothing but leave a mark, for Mainspring. In a module, because a process has to find them."""

from __future__ import annotations

from bench.executors.marking import mark
from mainspring import Mainspring

app = Mainspring()


@app.task
async def noop_async(file: str | None = None) -> None:
    """On the loop."""
    mark(file)


@app.task
def noop_thread(file: str | None = None) -> None:
    """In a thread."""
    mark(file)


@app.task(isolation="process")
def noop_process(file: str | None = None) -> None:
    """In a process of the pool."""
    mark(file)


@app.task(isolation="limits")
def noop_limits(file: str | None = None) -> None:
    """In a fresh process."""
    mark(file)


@app.task(isolation="sandbox")
def noop_sandbox(file: str | None = None) -> None:
    """In a fresh process in a sandbox."""
    mark(file)
