"""Taskiq on Redis or Kafka: `python -m bench.peers with_taskiq MEASURE PARAMS`.

Its settings: the stream broker, which acknowledges (its list broker loses what a dead worker held, and was not
faster), two processes of a hundred tasks (its default) that fetch as many ahead, arguments not parsed again, uvloop,
hiredis. On Kafka a topic of 12 partitions, `acks=all`, and offsets committed every 5 s as by default. Results are
ignored unless BENCH_RESULTS names a PostgreSQL for them; asyncpg writes them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import uvloop
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from kafka.admin import NewTopic
from taskiq import AsyncBroker
from taskiq_aio_kafka import AioKafkaBroker
from taskiq_pg.asyncpg import AsyncpgResultBackend
from taskiq_redis import RedisStreamBroker

from bench.harness.intake import Intake, async_measures
from bench.harness.script import Answer, Measure, Params
from bench.harness.slate import Slate

AT_ONCE = 100

PARTITIONS = 12


def _on_kafka(servers: str) -> AsyncBroker:
    queue = os.environ["BENCH_QUEUE"]
    made = AioKafkaBroker(servers, kafka_topic=NewTopic(name=queue, num_partitions=PARTITIONS, replication_factor=1))
    made.configure_producer(acks="all")
    assignors = (RoundRobinPartitionAssignor,)  # By default it names kafka-python's, which aiokafka cannot use.
    made.configure_consumer(group_id=queue, auto_offset_reset="earliest", partition_assignment_strategy=assignors)
    return made


kafka, results = os.environ.get("BENCH_BROKER", ""), os.environ.get("BENCH_RESULTS", "")
broker = _on_kafka(kafka) if kafka else RedisStreamBroker(os.environ["BENCH_REDIS"], consumer_id="0")
if results:
    broker = broker.with_result_backend(AsyncpgResultBackend(dsn=results))
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


def prepare(_: Params) -> Answer:
    """The topic and the table of the results, if there are any."""

    async def open_and_close() -> Answer:
        async with _open():
            return {}

    return uvloop.run(open_and_close())


MEASURES: dict[str, Measure] = {"prepare": prepare, "work": work, **async_measures(_open, uvloop.run)}
