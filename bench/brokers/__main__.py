"""Publish and receive rates and latencies of a broker's adapter, beside those of the bare client in the same process.

    python -m bench.brokers amqp://… kafka://… 'sqs://…' redis://…      [--messages 5000] [--seconds 3]

Start the servers with `make services`; .services/urls names them. A rate is messages in a second. A latency is the time
from the call of publish to the call of on_arrival, at 100 messages a second.
"""

from __future__ import annotations

import argparse
import asyncio
import secrets
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from mainspring.adapter import AdapterContext, open_adapter
from mainspring.broker import Broker, Notice
from mainspring.conformance.store.samples import a_worker
from mainspring.core.model import Event, EventBatch

BATCH = 500
TRANSACTIONS = 1_000
"""That the forwarder sends together."""
PACE_S = 0.01


def notices(count: int) -> list[Notice]:
    """Notices of runs that do not exist: the store is no part of this."""
    return [Notice(secrets.token_hex(8), 0, "default", "default", "default", 5, 0) for _ in range(count)]


async def rates(broker: Broker, count: int) -> tuple[float, float]:
    """Messages in a second: published by 500, and received and acknowledged by 100."""
    wanted = notices(count)
    await broker.publish(wanted[:1])
    began = time.perf_counter()
    for start in range(0, count, BATCH):
        await broker.publish(wanted[start : start + BATCH])
    published = count / (time.perf_counter() - began)
    arrived = asyncio.Event()
    subscription = await broker.subscribe(a_worker(), arrived.set)
    received, first = 0, 0.0
    async with asyncio.timeout(120):
        while received < count:
            arrived.clear()
            some = await subscription.receive(100)
            if some:
                first = first or time.perf_counter()
                received += len(some)
                await subscription.ack(some)
            else:
                await asyncio.wait({asyncio.ensure_future(arrived.wait())}, timeout=0.05)
    rate = received / (time.perf_counter() - first)
    await subscription.close()
    return published, rate


async def latencies(broker: Broker, seconds: float) -> list[float]:
    """Milliseconds from publish to arrival, one message at a time."""
    arrived = asyncio.Event()
    subscription = await broker.subscribe(a_worker(), arrived.set)
    found: list[float] = []
    for _ in range(50):  # What was left, and the assignment of partitions.
        await subscription.ack(await subscription.receive(100))
        await asyncio.sleep(0.05)
    for notice in notices(round(seconds / PACE_S)):
        await subscription.receive(10)
        arrived.clear()
        began = time.perf_counter()
        await broker.publish([notice])
        async with asyncio.timeout(10):
            await arrived.wait()
        found.append((time.perf_counter() - began) * 1_000)
        await subscription.ack(await subscription.receive(10))
        await asyncio.sleep(max(0.0, PACE_S - found[-1] / 1_000))
    await subscription.close()
    return found


async def sink_rates(url: str, count: int) -> tuple[float, float]:
    """Events in a second that the Kafka sink delivers, and in a second of this process's CPU time. Each transaction has
    two events, of 500 jobs in turn. What arrived is read back: AssertionError if a job's events are not in order."""
    from aiokafka import AIOKafkaConsumer

    from mainspring.sinks.kafka import EventRecord, KafkaSink

    prefix = f"bench{secrets.token_hex(3)}-"
    sink = KafkaSink(f"{url}?prefix={prefix}", AdapterContext())
    await sink.ping()
    events = [
        Event(
            "run.succeeded", 1_790_000_000_000_000 + n, run_id=secrets.token_hex(13), job_id=f"job-{n % 500}", job="a"
        )
        for n in range(count)
    ]
    batches = [EventBatch(1 + n, events[n : n + 2]) for n in range(0, count, 2)]
    began, cpu = time.perf_counter(), time.process_time()
    for start in range(0, len(batches), TRANSACTIONS):
        await sink.deliver(batches[start : start + TRANSACTIONS])
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu
    consumer = AIOKafkaConsumer(
        f"{prefix}job-events", bootstrap_servers=url.removeprefix("kafka://"), auto_offset_reset="earliest"
    )
    await consumer.start()
    last: dict[bytes | None, int] = {}
    read = 0
    async with asyncio.timeout(120):
        while read < count:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                for record in records:
                    position = msgspec.json.decode(record.value or b"", type=EventRecord).id
                    assert position > last.get(record.key, 0), f"{record.key!r}: {position} after {last[record.key]}"
                    last[record.key] = position
                    read += 1
    await consumer.stop()
    _, admin = await (await sink._publishers.get()).ready()
    await admin.delete_topics(list(sink._partitions))
    await sink.close()
    return count / took_s, count / cpu_s


async def bare_amqp(url: str, seconds: float) -> list[float]:
    """The same by aio-pika alone."""
    import aio_pika

    connection = await aio_pika.connect_robust(url)
    channel = await connection.channel()
    queue = await channel.declare_queue(f"bench-{secrets.token_hex(4)}", durable=True)
    arrived = asyncio.Event()

    async def take(message: Any) -> None:
        await message.ack()
        arrived.set()

    await queue.consume(take)

    async def send() -> None:
        body = aio_pika.Message(b"x" * 40, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await channel.default_exchange.publish(body, routing_key=queue.name)

    found = await _timed(send, arrived, seconds)
    await queue.delete(if_unused=False, if_empty=False)
    await connection.close()
    return found


async def bare_kafka(url: str, seconds: float) -> list[float]:
    """The same by aiokafka alone."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    servers, topic = url.removeprefix("kafka://").partition("?")[0], f"bench-{secrets.token_hex(4)}"
    admin = AIOKafkaAdminClient(bootstrap_servers=servers)
    await admin.start()
    await admin.create_topics([NewTopic(topic, 3, 1)])
    producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, group_id=topic, enable_auto_commit=False)
    await producer.start()
    await consumer.start()
    arrived = asyncio.Event()

    async def take() -> None:
        async for _ in consumer:
            arrived.set()
            await consumer.commit()

    taking = asyncio.ensure_future(take())
    await asyncio.sleep(1)

    async def send() -> None:
        await producer.send_and_wait(topic, b"x" * 40)

    found = await _timed(send, arrived, seconds)
    taking.cancel()
    await consumer.stop()
    await producer.stop()
    await admin.delete_topics([topic])
    await admin.close()
    return found


async def _timed(send: Callable[[], Awaitable[None]], arrived: asyncio.Event, seconds: float) -> list[float]:
    found: list[float] = []
    for _ in range(round(seconds / PACE_S)):
        arrived.clear()
        began = time.perf_counter()
        await send()
        async with asyncio.timeout(10):
            await arrived.wait()
        found.append((time.perf_counter() - began) * 1_000)
        await asyncio.sleep(max(0.0, PACE_S - found[-1] / 1_000))
    return found


def show(name: str, found: list[float]) -> None:
    """Median and 99th percentile."""
    print(f"{name:28} p50 {statistics.median(found):6.1f} ms   p99 {statistics.quantiles(found, n=100)[98]:6.1f} ms")


async def measure(url: str, messages: int, seconds: float) -> None:
    """All figures of one broker."""
    scheme = url.partition("://")[0]
    mark = "&" if "?" in url else "?"
    broker: Broker = open_adapter(
        "broker", f"{url}{mark}prefix=bench{secrets.token_hex(3)}-&timeout=10s", AdapterContext()
    )
    published, received = await rates(broker, messages)
    print(f"{scheme:28} publish {published:8,.0f}/s   receive {received:8,.0f}/s")
    await broker.close()
    broker = open_adapter("broker", f"{url}{mark}prefix=bench{secrets.token_hex(3)}-&timeout=10s", AdapterContext())
    show(f"{scheme}, adapter", await latencies(broker, seconds))
    await broker.close()
    if scheme == "kafka":
        rate, by_cpu = await sink_rates(url, 4 * messages)
        print(f"{'kafka, sink':28} deliver {rate:8,.0f}/s   {by_cpu:8,.0f} in a second of CPU time")
    bare = {"amqp": bare_amqp, "kafka": bare_kafka}.get(scheme)
    if bare is not None:
        show(f"{scheme}, bare client", await bare(url, seconds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("urls", nargs="+")
    parser.add_argument("--messages", type=int, default=5_000)
    parser.add_argument("--seconds", type=float, default=3.0)
    given = parser.parse_args()
    for url in given.urls:
        asyncio.run(measure(url, given.messages, given.seconds))


main()
