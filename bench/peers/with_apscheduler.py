"""APScheduler 3, in memory or on SQLite: `python -m bench.peers.with_apscheduler MEASURE PARAMS`.

Its settings: AsyncIOScheduler with coroutine jobs on uvloop, which drained a little faster than BackgroundScheduler
with threads (latency and lateness were not compared); UTC; no misfire grace, since that would drop work that waits for
longer than a second; on SQLite write-ahead logging and `synchronous = FULL`, set as SQLAlchemy documents it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import uvloop
from apscheduler.jobstores.base import BaseJobStore
from apscheduler.jobstores.memory import MemoryJobStore
from apscheduler.jobstores.sqlalchemy import SQLAlchemyJobStore
from apscheduler.schedulers.asyncio import AsyncIOScheduler
from apscheduler.schedulers.background import BackgroundScheduler
from sqlalchemy import create_engine, event

from bench.harness.script import (
    Answer,
    Measure,
    Params,
    check_all_ran,
    first_boundary,
    lateness_ms,
    pace,
    rate_of,
    serve,
    stay_until_told,
    wait_async,
)

PATIENCE_S = 60.0
YIELD_EVERY = 100
EDGE_S = 0.5

ran: list[None] = []
samples_ms: list[float] = []
counted: list[float] = [0.0, 0.0]
"""Firings due from the one instant to just before the other."""


async def noop() -> None:
    """A job in a database is stored by its name, so it has to be at the top of a module."""
    ran.append(None)


def noop_in_thread() -> None:
    """The same as a plain function."""
    ran.append(None)


async def probe(sent_at: float) -> None:
    """Notes how long it took to get here."""
    samples_ms.append((time.monotonic() - sent_at) * 1000)


async def tick(period_s: float) -> None:
    """Notes how late it is, if it is one of the firings that count."""
    now = time.time()
    late = lateness_ms(now, period_s)
    if counted[0] < now - late / 1000 + EDGE_S < counted[1]:
        samples_ms.append(late)


def _store(params: Params) -> BaseJobStore:
    if params["store"] == "memory":
        return MemoryJobStore()
    engine = create_engine(f"sqlite:///{Path(params['folder']) / 'apscheduler.db'}")

    @event.listens_for(engine, "connect")
    def set_pragmas(connection: Any, _: object) -> None:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {params.get('synchronous', 'FULL')}")

    return SQLAlchemyJobStore(engine=engine)


def _start(params: Params, *, paused: bool) -> AsyncIOScheduler:
    scheduler = AsyncIOScheduler(
        jobstores={"default": _store(params)}, job_defaults={"misfire_grace_time": None}, timezone=UTC
    )
    scheduler.start(paused=paused)
    return scheduler


def _measure(work: Callable[[Params], Awaitable[Answer]]) -> Measure:
    def run(params: Params) -> Answer:
        async def begin() -> Answer:
            return await work(params)

        return uvloop.run(begin())

    return run


@_measure
async def submit(params: Params) -> Answer:
    """One after another, while nothing runs."""
    scheduler = _start(params, paused=True)
    rate = rate_of(lambda: scheduler.add_job(noop), params["seconds"])
    scheduler.shutdown(wait=False)
    return {"rates": [rate]}


@_measure
async def drain(params: Params) -> Answer:
    """A backlog waits in a paused scheduler; it resumes; until the last has run."""
    scheduler, count = _start(params, paused=True), params["count"]
    for _ in range(count):
        scheduler.add_job(noop)
    began = time.perf_counter()
    scheduler.resume()
    await wait_async(lambda: len(ran) >= count, PATIENCE_S)
    seconds = time.perf_counter() - began
    scheduler.shutdown(wait=False)
    check_all_ran(len(ran), count)
    return {"rates": [count / seconds]}


@_measure
async def flow(params: Params) -> Answer:
    """Submitted to a running scheduler; from the first submission until the last has run."""
    scheduler, count = _start(params, paused=False), params["count"]
    began = time.perf_counter()
    for number in range(count):
        scheduler.add_job(noop)
        if number % YIELD_EVERY == 0:
            await asyncio.sleep(0)
    await wait_async(lambda: len(ran) >= count, PATIENCE_S)
    seconds = time.perf_counter() - began
    scheduler.shutdown(wait=False)
    check_all_ran(len(ran), count)
    return {"rates": [count / seconds]}


def flow_in_threads(params: Params) -> Answer:
    """The same of plain functions in its usual scheduler, a thread that has ten others execute."""
    scheduler, count = BackgroundScheduler(job_defaults={"misfire_grace_time": None}, timezone=UTC), params["count"]
    scheduler.start()
    began = time.perf_counter()
    for _ in range(count):
        scheduler.add_job(noop_in_thread)
    ends = began + PATIENCE_S
    while len(ran) < count and time.perf_counter() < ends:
        time.sleep(0.001)
    seconds = time.perf_counter() - began
    scheduler.shutdown(wait=False)
    check_all_ran(len(ran), count)
    return {"rates": [count / seconds]}


@_measure
async def latency(params: Params) -> Answer:
    """From the call to the first line of the function."""
    scheduler, expected = _start(params, paused=False), int(params["per_second"] * params["seconds"])
    scheduler.add_job(probe, args=(0.0,))
    await wait_async(lambda: bool(samples_ms), PATIENCE_S)
    samples_ms.clear()
    for pause in pace(params["per_second"], params["seconds"]):
        await asyncio.sleep(pause)
        scheduler.add_job(probe, args=(time.monotonic(),))
    await wait_async(lambda: len(samples_ms) >= expected, PATIENCE_S)
    scheduler.shutdown(wait=False)
    return {"samples_ms": samples_ms, "expected": expected}


@_measure
async def lateness(params: Params) -> Answer:
    """Interval jobs on the same boundaries. What came due while they were being added is caught up before it counts."""
    period, boundaries, jobs = params["period_s"], params["boundaries"], params["jobs"]
    scheduler, began = _start(params, paused=True), time.time()
    anchor = datetime.fromtimestamp(began // period * period, UTC)
    for _ in range(jobs):
        scheduler.add_job(tick, "interval", args=(period,), seconds=period, start_date=anchor)
    first = first_boundary(period, time.time() - began + 1)
    ends = first + boundaries * period
    counted[:] = first, ends
    scheduler.resume()
    await asyncio.sleep(ends - period - time.time())
    await wait_async(lambda: len(samples_ms) >= jobs * boundaries or time.time() > ends, PATIENCE_S)
    scheduler.shutdown(wait=False)
    return {"samples_ms": samples_ms, "expected": jobs * boundaries}


@_measure
async def idle(params: Params) -> Answer:
    """Many jobs that are due tomorrow."""
    scheduler = _start(params | {"synchronous": "OFF"}, paused=True)
    tomorrow = datetime.now(UTC) + timedelta(days=1)
    for _ in range(params["jobs"]):
        scheduler.add_job(noop, "date", run_date=tomorrow)
    scheduler.resume()
    await asyncio.to_thread(stay_until_told)
    scheduler.shutdown(wait=False)
    return {}


if __name__ == "__main__":
    logging.disable(logging.CRITICAL)
    measures = {"submit": submit, "drain": drain, "flow": flow, "latency": latency, "lateness": lateness, "idle": idle}
    serve(measures | {"flow_in_threads": flow_in_threads})
