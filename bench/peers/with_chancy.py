"""Chancy on PostgreSQL: `python -m bench.peers with_chancy MEASURE PARAMS`.

Its settings: psycopg, two processes, the asynchronous executor of 200 jobs at once (default: a process pool of as many
as there are cores), polling at once when jobs end and notifications, its default plugins, uvloop.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import uvloop
from chancy import Chancy, Job, Queue, Worker, job

from bench.harness.intake import Intake, async_measures
from bench.harness.script import Answer, Measure, Params
from bench.harness.slate import Slate

AT_ONCE = 200
TO_SEND = 1_000

slate = Slate.given()


@job(queue="default")
async def noop(*, number: int) -> None:
    """Nothing."""
    slate.mark(number)


def _chancy() -> Chancy:
    return Chancy(os.environ["BENCH_POSTGRES"])


def _job(number: int) -> Job:
    return noop.job.with_kwargs(number=number)


@asynccontextmanager
async def _open() -> AsyncIterator[Intake]:
    async with _chancy() as chancy:

        async def many(numbers: Sequence[int]) -> None:
            async for _ in chancy.push_many([_job(number) for number in numbers], batch_size=TO_SEND):
                pass

        yield Intake(lambda number: chancy.push(_job(number)), many)


def prepare(_: Params) -> Answer:
    """Its tables and its queue."""

    async def migrate() -> None:
        async with _chancy() as chancy:
            await chancy.migrate()
            executor = Chancy.Executor.Async
            queue = Queue("default", concurrency=AT_ONCE, executor=executor, polling_interval=1, eager_polling=True)
            await chancy.declare(queue, upsert=True)

    uvloop.run(migrate())
    return {}


def work(_: Params) -> Answer:
    """One worker process: what its command does."""

    async def run() -> None:
        async with _chancy() as chancy, Worker(chancy) as worker:
            await worker.wait_for_shutdown()

    uvloop.run(run())
    return {}


MEASURES: dict[str, Measure] = {"prepare": prepare, "work": work, **async_measures(_open, uvloop.run)}
