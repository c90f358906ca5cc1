"""Celery on Redis, RabbitMQ or SQS: `python -m bench.peers with_celery MEASURE PARAMS`.

Its settings: a prefork pool of two (its default kind; threads and the solo pool give up what it is chosen for), 64
messages fetched ahead per process as its documentation advises for short tasks, results ignored unless BENCH_RESULTS
names a PostgreSQL for them, no gossip, mingle, heartbeats, rate limits or events, hiredis. On RabbitMQ messages are
persistent and published without confirms, as by default. On SQS it polls for 20 s, and polls again at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from celery import Celery

from bench.harness.intake import BlockingIntake, blocking_measures
from bench.harness.script import Answer, Measure, Params
from bench.harness.slate import Slate

PREFETCH = 64

POLL_S = 20

broker = os.environ.get("BENCH_BROKER") or os.environ["BENCH_REDIS"]
results = os.environ.get("BENCH_RESULTS", "")
app = Celery("bench", broker=broker, backend=f"db+postgresql+psycopg2:{results.partition(':')[2]}" if results else None)
app.conf.update(
    task_ignore_result=not results,
    task_default_queue=os.environ.get("BENCH_QUEUE", "celery"),
    worker_prefetch_multiplier=PREFETCH,
    worker_disable_rate_limits=True,
    broker_connection_retry_on_startup=True,
)
if broker.startswith("sqs:"):
    app.conf.broker_transport_options = {
        "region": "elasticmq",
        "is_secure": False,
        "wait_time_seconds": POLL_S,
        "polling_interval": 0,
    }
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


def prepare(_: Params) -> Answer:
    """The tables of the results, if there are any."""
    if results:
        app.backend.ResultSession().close()
    return {}


MEASURES: dict[str, Measure] = {"prepare": prepare, "work": work, **blocking_measures(_open)}
