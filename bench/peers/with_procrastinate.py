"""Procrastinate on PostgreSQL: `python -m bench.peers with_procrastinate MEASURE PARAMS`.

Its settings: psycopg's asynchronous pool of ten, two processes of sixteen jobs at once (default: 1), notifications,
finished jobs kept (its default), uvloop.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import uvloop
from procrastinate import App, PsycopgConnector

from bench.harness.intake import Intake, async_measures
from bench.harness.script import Answer, Measure, Params
from bench.harness.slate import Slate

AT_ONCE = 16
POOL = 10

app = App(connector=PsycopgConnector(conninfo=os.environ["BENCH_POSTGRES"], min_size=1, max_size=POOL))
slate = Slate.given()


@app.task(name="noop")
async def noop(number: int) -> None:
    """Nothing."""
    slate.mark(number)


@asynccontextmanager
async def _open() -> AsyncIterator[Intake]:
    async def many(numbers: Sequence[int]) -> None:
        await noop.batch_defer_async(*({"number": number} for number in numbers))

    async with app.open_async():
        yield Intake(lambda number: noop.defer_async(number=number), many)


def prepare(_: Params) -> Answer:
    """Its tables."""

    async def apply() -> None:
        async with app.open_async():
            await app.schema_manager.apply_schema_async()

    uvloop.run(apply())
    return {}


def work(_: Params) -> Answer:
    """One worker process: what its command does."""

    async def run() -> None:
        async with app.open_async():
            await app.run_worker_async(concurrency=AT_ONCE, install_signal_handlers=False)

    uvloop.run(run())
    return {}


MEASURES: dict[str, Measure] = {"prepare": prepare, "work": work, **async_measures(_open, uvloop.run)}
