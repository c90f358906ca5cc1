"""Events in a second that the Kafka sink delivers, with the order of each key read back."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import NamedTuple

import msgspec
from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient

from bench.brokers.servers import BrokerServer
from bench.harness.running import Failed
from mainspring.adapter import AdapterContext
from mainspring.core.model import Event, EventBatch
from mainspring.sinks.kafka import EventRecord, KafkaSink

TRANSACTIONS = 1_000
"""That the forwarder sends together."""
JOBS = 500
LIMIT_S = 120


class Delivered(NamedTuple):
    """Events in a second, and in a second of this process's CPU time."""

    rate: float
    by_cpu: float


async def deliver(server: BrokerServer, count: int) -> Delivered:
    """Each transaction has two events, of 500 jobs in turn. Failed if a job's events are not in order."""
    prefix = f"bench{secrets.token_hex(3)}-"
    sink = KafkaSink(server.own(prefix), AdapterContext())
    await sink.ping()
    events = [
        Event(
            "run.succeeded",
            1_790_000_000_000_000 + number,
            run_id=secrets.token_hex(13),
            job_id=f"job-{number % JOBS}",
            job="nightly",
        )
        for number in range(count)
    ]
    batches = [EventBatch(1 + number, events[number : number + 2]) for number in range(0, count, 2)]
    began, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(batches), TRANSACTIONS):
        await sink.deliver(batches[start : start + TRANSACTIONS])
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    await sink.close()
    await _check(server.for_peers(), f"{prefix}job-events", count)
    return Delivered(count / took_s, count / cpu_s)


async def _check(servers: str, topic: str, count: int) -> None:
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    last: dict[bytes | None, int] = {}
    read = 0
    async with asyncio.timeout(LIMIT_S):
        while read < count:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                for record in records:
                    position = msgspec.json.decode(record.value or b"", type=EventRecord).id
                    if position <= last.get(record.key, 0):
                        raise Failed(f"{record.key!r}: {position} came after {last[record.key]}")
                    last[record.key] = position
                    read += 1
    await consumer.stop()
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.delete_topics([topic])
    await admin.close()
