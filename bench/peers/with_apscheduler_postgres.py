"""APScheduler 3 on PostgreSQL: `python -m bench.peers with_apscheduler_postgres MEASURE PARAMS`.

Its settings: as in `with_apscheduler`, with its SQLAlchemy job store on psycopg. Its store cannot be shared by
processes, so one works; and it does not notice what another process adds, so latency and lateness are measured within
the process that works.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import uvloop
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler

from bench.harness.intake import Intake, async_measures
from bench.harness.script import Answer, Measure, Params, wait_async
from bench.harness.slate import Slate

STAY_S = 5.0

slate = Slate.given()


async def noop(number: int) -> None:
    """Nothing."""
    slate.mark(number)


def _start(*, paused: bool) -> AsyncIOScheduler:
    url = os.environ["BENCH_POSTGRES"].replace("postgresql:", "postgresql+psycopg:")
    scheduler = AsyncIOScheduler(
        jobstores={"default": SQLAlchemyJobStore(url)}, job_defaults={"misfire_grace_time": None}, timezone=UTC
    )
    scheduler.start(paused=paused)
    return scheduler


@asynccontextmanager
async def _open(*, paused: bool = True) -> AsyncIterator[Intake]:
    scheduler = _start(paused=paused)

    async def one(number: int) -> None:
        scheduler.add_job("bench.peers.with_apscheduler_postgres:noop", args=(number,))

    yield Intake(one)
    if not paused:
        await asyncio.sleep(STAY_S)
    scheduler.shutdown(wait=False)


def work(_: Params) -> Answer:
    """The one process that works."""

    async def run() -> None:
        slate.begin()
        _start(paused=False)
        await asyncio.Event().wait()

    uvloop.run(run())
    return {}


def lateness(params: Params) -> Answer:
    """Interval jobs that are due on one instant, which is given; each marks its place."""

    async def run() -> None:
        scheduler = _start(paused=True)
        anchor = datetime.fromtimestamp(params["due_at"], UTC)
        for number in range(params["jobs"]):
            scheduler.add_job(
                "bench.peers.with_apscheduler_postgres:noop", "interval", args=(number,), hours=1, start_date=anchor
            )
        if time.time() > params["due_at"] - 1:
            raise SystemExit("void: adding the jobs took too long")
        scheduler.resume()
        ends_at = params["due_at"] + params["patience_s"]
        await wait_async(lambda: slate.ran() >= params["jobs"], ends_at - time.time())

    uvloop.run(run())
    return {}


_SENDING = async_measures(lambda: _open(paused=False), uvloop.run)
MEASURES: dict[str, Measure] = {
    "prepare": lambda _: {},
    "work": work,
    "lateness": lateness,
    **async_measures(_open, uvloop.run),
    "send": _SENDING["send"],
}
