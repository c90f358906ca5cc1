"""Huey on Redis: `python -m bench.peers with_huey_redis MEASURE PARAMS`.

Its settings: two worker processes, a blocking read of the queue (its default), no result store, no periodic tasks,
hiredis.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from huey import RedisHuey

from bench.harness.intake import BlockingIntake, blocking_measures
from bench.harness.script import Answer, Measure, Params
from bench.harness.slate import Slate

huey = RedisHuey("bench", url=os.environ["BENCH_REDIS"], results=False)
slate = Slate.given()


@huey.task(name="noop")
def noop(number: int) -> None:
    """Nothing."""
    slate.mark(number)


@contextmanager
def _open() -> Iterator[BlockingIntake]:
    yield BlockingIntake(noop)


def work(_: Params) -> Answer:
    """Its own command, which starts two processes."""
    settings = ["--workers", "2", "--worker-type", "process", "--quiet", "--no-periodic"]
    command = ["-m", "huey.bin.huey_consumer", "bench.peers.with_huey_redis.huey", *settings]
    os.execv(sys.executable, [sys.executable, *command])


MEASURES: dict[str, Measure] = {"prepare": lambda _: {}, "work": work, **blocking_measures(_open)}
