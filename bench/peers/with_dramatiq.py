"""Dramatiq on Redis or RabbitMQ: `python -m bench.peers with_dramatiq MEASURE PARAMS`.

Its settings: two processes of eight threads (its default), no Prometheus server, no result store unless BENCH_RESULTS
names a PostgreSQL for one, hiredis. On RabbitMQ messages are persistent, published without confirms as by default, and
100 are fetched ahead (default 16). It comes without a result store on PostgreSQL, so `PostgresResults` is here: the
least that one can be, a row committed for each result by a connection of each thread.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import local
from typing import Any

import dramatiq
import psycopg2
from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.brokers.redis import RedisBroker
from dramatiq.message import Message
from dramatiq.middleware import AgeLimit, Callbacks, Pipelines, Retries, ShutdownNotifications, TimeLimit
from dramatiq.results import ResultBackend, Results

from bench.harness.intake import BlockingIntake, blocking_measures
from bench.harness.script import Answer, Measure, Params
from bench.harness.slate import Slate

THREADS = 8
PREFETCH = 100

rabbitmq, results = os.environ.get("BENCH_BROKER", ""), os.environ.get("BENCH_RESULTS", "")


class PostgresResults(ResultBackend):
    """A table of results."""

    def __init__(self) -> None:
        super().__init__()
        self._own = local()

    def execute(self, statement: str, *values: object) -> None:
        """By the connection of this thread."""
        if not hasattr(self._own, "cursor"):
            connection = psycopg2.connect(results)
            connection.autocommit = True
            self._own.cursor = connection.cursor()
        self._own.cursor.execute(statement, values)

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        self.execute("INSERT INTO results VALUES (%s, %s)", message_key, self.encoder.encode(result))

    def build_message_key(self, message: Message[Any]) -> str:
        """As short as it can be."""
        return message.message_id


middleware = [AgeLimit(), TimeLimit(), ShutdownNotifications(), Callbacks(), Pipelines(), Retries()]
if results:
    middleware.append(Results(backend=PostgresResults(), store_results=True))
dramatiq.set_broker(
    RabbitmqBroker(url=rabbitmq, middleware=middleware)
    if rabbitmq
    else RedisBroker(url=os.environ["BENCH_REDIS"], middleware=middleware)
)
slate = Slate.given()


@dramatiq.actor(queue_name=os.environ.get("BENCH_QUEUE", "default"))
def noop(number: int) -> None:
    """Nothing."""
    slate.mark(number)


@contextmanager
def _open() -> Iterator[BlockingIntake]:
    yield BlockingIntake(noop.send)


def work(_: Params) -> Answer:
    """Its own command, which starts two processes."""
    module = "bench.peers.with_dramatiq"
    command = ["-m", "dramatiq", module, "--processes", "2", "--threads", str(THREADS), "--skip-logging"]
    if rabbitmq:
        os.environ["dramatiq_queue_prefetch"] = str(PREFETCH)  # noqa: SIM112 - that is its name.
    os.execv(sys.executable, [sys.executable, *command])


def prepare(_: Params) -> Answer:
    """The table of the results, if there are any."""
    if results:
        PostgresResults().execute("CREATE TABLE results (message_id text PRIMARY KEY, result bytea NOT NULL)")
    return {}


MEASURES: dict[str, Measure] = {"prepare": prepare, "work": work, **blocking_measures(_open)}
