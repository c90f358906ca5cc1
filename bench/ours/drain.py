"""How fast no-op runs are executed and recorded, each exactly once."""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path
from typing import Any

from bench.harness.script import Answer, Params, check_all_ran, wait_async
from bench.ours.opening import measure, new_app, path_of, running
from mainspring import Mainspring, Task
from mainspring.core.states import SUCCEEDED

WARM = 200
BATCH = 10_000
PATIENCE_S = 60.0


def _noop(app: Mainspring, ran: list[None], style: str) -> Task[..., Any]:
    """A task that does nothing but count that it ran."""

    async def noop_async() -> None:
        ran.append(None)

    def noop_sync() -> None:
        ran.append(None)

    return app.task(noop_async) if style == "async" else app.task(noop_sync)


async def _submit(task: Task[..., Any], count: int) -> None:
    for start in range(0, count, BATCH):
        await task.submit_many([{} for _ in range(min(BATCH, count - start))])


async def _finish(app: Mainspring, ran: list[None], count: int) -> None:
    """Wait until all have run, and until the store has every one of them as succeeded."""
    await wait_async(lambda: len(ran) >= count, PATIENCE_S)
    store = await app.open()
    while (await store.count_runs(app.settings.namespace)).get(SUCCEEDED, 0) < count and len(ran) >= count:
        continue


async def _warm_up(app: Mainspring, task: Task[..., Any], ran: list[None]) -> None:
    """Imports and first-time costs belong to the start, which is measured elsewhere."""
    await _submit(task, WARM)
    async with running(app):
        await _finish(app, ran, WARM)


def _check(path: Path, ran: int, count: int) -> None:
    """Each executed once, and each recorded as succeeded once: counted in the file, past our own code."""
    connection = sqlite3.connect(path)
    (recorded,) = connection.execute("SELECT count(*) FROM history WHERE state = 'succeeded'").fetchone()
    (attempts,) = connection.execute("SELECT sum(attempt) FROM history").fetchone()
    connection.close()
    check_all_ran(ran, count)
    check_all_ran(recorded, count)
    check_all_ran(attempts, count)


@measure
async def drain(params: Params) -> Answer:
    """A backlog waits; a scheduler and worker start; until the last run is recorded as succeeded."""
    app, ran = new_app(params), list[None]()
    task = _noop(app, ran, params["style"])
    total = WARM + params["count"]
    async with app:
        await _warm_up(app, task, ran)
        await _submit(task, params["count"])
        began = time.perf_counter()
        async with running(app):
            await _finish(app, ran, total)
            seconds = time.perf_counter() - began
    _check(path_of(params), len(ran), total)
    return {"rates": [params["count"] / seconds]}


@measure
async def flow(params: Params) -> Answer:
    """Runs are submitted to a worker that is already there; from the first submission until the last is recorded."""
    app, ran = new_app(params), list[None]()
    task = _noop(app, ran, params.get("style", "async"))
    total = WARM + params["count"]
    async with app:
        await _warm_up(app, task, ran)
        async with running(app):
            began = time.perf_counter()
            await _submit(task, params["count"])
            await _finish(app, ran, total)
            seconds = time.perf_counter() - began
    _check(path_of(params), len(ran), total)
    return {"rates": [params["count"] / seconds]}
