"""Celery on Redis: `python -m bench.peers with_celery MEASURE PARAMS`.

Its settings: a prefork pool of two (its default kind; threads and the solo pool give up what it is chosen for), 64
messages fetched ahead per process as its documentation advises for short tasks, results ignored, no gossip, mingle,
heartbeats, rate limits or events, hiredis.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from celery import Celery

from bench.intake import BlockingIntake, blocking_measures
from bench.script import Answer, Measure, Params
from bench.slate import Slate

PREFETCH = 64

app = Celery("bench", broker=os.environ["BENCH_REDIS"])
app.conf.update(
    task_ignore_result=True,
    worker_prefetch_multiplier=PREFETCH,
    worker_disable_rate_limits=True,
    broker_connection_retry_on_startup=True,
)
slate = Slate.given()


@app.task(name="noop")
def noop(number: int) -> None:
    """Nothing."""
    slate.mark(number)


@contextmanager
def _open() -> Iterator[BlockingIntake]:
    yield BlockingIntake(noop.delay)


def work(_: Params) -> Answer:
    """Its own command, which starts two processes."""
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "ERROR"]
    command = ["-m", "celery", "--app", "bench.peers.with_celery", "worker", "--pool", "prefork", "--concurrency", "2"]
    os.execv(sys.executable, [sys.executable, *command, *quiet])


MEASURES: dict[str, Measure] = {"prepare": lambda _: {}, "work": work, **blocking_measures(_open)}
