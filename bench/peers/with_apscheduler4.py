"""APScheduler 4, a pre-release, on PostgreSQL: `python -m bench.peers with_apscheduler4 MEASURE PARAMS`.

Its settings: its SQLAlchemy data store on asyncpg with an event broker by notifications, two processes of a hundred
jobs at once, a task without a limit of its own, no results kept, uvloop. With the newest
anyio (4.16) it is not woken for the rest of a backlog once its places were taken, so it has 4.9.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop
from apscheduler import AsyncScheduler
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.eventbrokers.asyncpg import AsyncpgEventBroker
from sqlalchemy.ext.asyncio import create_async_engine

from bench.harness.intake import Intake, async_measures
from bench.harness.script import Answer, Measure, Params
from bench.harness.slate import Slate

AT_ONCE = 100

slate = Slate.given()


async def noop(number: int) -> None:
    """Nothing."""
    slate.mark(number)


@asynccontextmanager
async def _scheduler() -> AsyncIterator[AsyncScheduler]:
    engine = create_async_engine(os.environ["BENCH_POSTGRES"].replace("postgresql:", "postgresql+asyncpg:"))
    broker = AsyncpgEventBroker.from_async_sqla_engine(engine)
    async with AsyncScheduler(SQLAlchemyDataStore(engine), broker, max_concurrent_jobs=AT_ONCE) as scheduler:
        await scheduler.configure_task("noop", func=noop, max_running_jobs=None)
        yield scheduler


@asynccontextmanager
async def _open() -> AsyncIterator[Intake]:
    async with _scheduler() as scheduler:
        yield Intake(lambda number: scheduler.add_job("noop", args=(number,)))


def prepare(_: Params) -> Answer:
    """Its tables."""

    async def start() -> None:
        async with _scheduler():
            pass

    uvloop.run(start())
    return {}


def work(_: Params) -> Answer:
    """One worker process."""

    async def run() -> None:
        async with _scheduler() as scheduler:
            await scheduler.run_until_stopped()

    uvloop.run(run())
    return {}


MEASURES: dict[str, Measure] = {"prepare": prepare, "work": work, **async_measures(_open, uvloop.run)}
