"""Taskiq on Redis: `python -m bench.peers with_taskiq MEASURE PARAMS`.

Its settings: the stream broker, which acknowledges (its list broker loses what a dead worker held, and was not
faster), two processes of a hundred tasks (its default) that fetch as many ahead, arguments not parsed again, uvloop,
hiredis.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop
from taskiq_redis import RedisStreamBroker

from bench.intake import Intake, async_measures
from bench.script import Answer, Measure, Params
from bench.slate import Slate

AT_ONCE = 100

broker = RedisStreamBroker(os.environ["BENCH_REDIS"], consumer_id="0")
slate = Slate.given()


@broker.task(task_name="noop")
async def noop(number: int) -> None:
    """Nothing."""
    slate.mark(number)


@asynccontextmanager
async def _open() -> AsyncIterator[Intake]:
    await broker.startup()
    yield Intake(noop.kiq)
    await broker.shutdown()


def work(_: Params) -> Answer:
    """Its own command, which starts two processes."""
    settings = ["--workers", "2", "--max-async-tasks", str(AT_ONCE), "--max-prefetch", str(AT_ONCE), "--no-parse"]
    command = ["-m", "taskiq", "worker", "bench.peers.with_taskiq:broker", "--log-level", "ERROR", *settings]
    os.execv(sys.executable, [sys.executable, *command])


MEASURES: dict[str, Measure] = {"prepare": lambda _: {}, "work": work, **async_measures(_open, uvloop.run)}
