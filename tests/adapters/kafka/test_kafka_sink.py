"""Events on a real Kafka: topics, keys, headers, order, and the same ids when they are sent again."""

from __future__ import annotations

import json
import secrets
from collections.abc import AsyncIterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer

from broker_servers import find_server
from mainspring.adapter import AdapterContext
from mainspring.core.model import Event, EventBatch
from mainspring.errors import InvalidInput
from mainspring.sinks.kafka import KafkaSink

pytestmark = pytest.mark.brokers


@pytest.fixture
def prefix() -> str:
    return f"{secrets.token_hex(4)}-"


@pytest.fixture
async def sink(prefix: str) -> AsyncIterator[KafkaSink]:
    async for sink in sink_of(prefix):
        yield sink


async def sink_of(prefix: str) -> AsyncIterator[KafkaSink]:
    """A sink whose topics are its own, and deleted in the end."""
    sink = KafkaSink(f"{find_server('KAFKA')}?prefix={prefix}&job_events=job-events:4", AdapterContext())
    yield sink
    _, admin = await (await sink._publishers.get()).ready()
    await admin.delete_topics(list(sink._partitions))
    await sink.close()


async def read(topic: str, count: int) -> list[Any]:
    servers = find_server("KAFKA").removeprefix("kafka://")
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=servers, auto_offset_reset="earliest")
    await consumer.start()
    try:
        records: list[Any] = []
        while len(records) < count:
            found = await consumer.getmany(timeout_ms=5_000)
            assert found
            records += [record for some in found.values() for record in some]
        return records
    finally:
        await consumer.stop()


async def test_events_go_to_their_topics_with_their_keys(sink: KafkaSink, prefix: str) -> None:
    run = Event("run.succeeded", 1_000_000, run_id="r1", job_id="j1", job="report", duration=2_500_000)
    lone = Event("run.failed", 2_000_000, run_id="r2", reason="it broke")
    started = Event("worker.started", 3_000_000, worker="w1")
    freed = Event("dependency.ready", 4_000_000, run_id="r3", job_id="j3", job="load")
    after = Event("dependency.ready", 5_000_000, run_id="r4")
    await sink.deliver([EventBatch(7, [run, lone]), EventBatch(9, [started, freed, after])])
    by_key = {record.key: record for record in await read(f"{prefix}job-events", 2)}
    value = json.loads(by_key[b"j1"].value)
    assert value == {
        "id": 7,
        "kind": "run.succeeded",
        "at": "1970-01-01T00:00:01Z",
        "namespace": "default",
        "run_id": "r1",
        "job_id": "j1",
        "job": "report",
        "duration_s": 2.5,
    }
    assert dict(by_key[b"j1"].headers)["ce_id"] == b"7"
    assert dict(by_key[b"j1"].headers)["ce_type"] == b"mainspring.run.succeeded"
    assert json.loads(by_key[b"r2"].value)["reason"] == "it broke"
    (worker,) = await read(f"{prefix}worker-events", 1)
    assert worker.key == b"w1"
    ready = await read(f"{prefix}dependency-events", 2)
    assert {record.key: json.loads(record.value)["kind"] for record in ready} == {
        b"j3": "dependency.ready",
        b"r4": "dependency.ready",
    }


async def test_events_of_one_key_keep_their_order_and_their_ids_when_sent_again(sink: KafkaSink, prefix: str) -> None:
    events = [Event(f"run.step{number}", number, job_id=f"j{number % 3}") for number in range(300)]
    batch = EventBatch(1, events)
    await sink.deliver([batch])
    await sink.deliver([batch])
    seen: dict[bytes, list[int]] = {}
    for record in await read(f"{prefix}job-events", 600):
        seen.setdefault(record.key, []).append(json.loads(record.value)["id"])
    for ids in seen.values():
        assert ids[:100] == sorted(ids[:100]) == ids[100:]


def test_a_topic_that_cannot_be_is_refused() -> None:
    with pytest.raises(InvalidInput, match="job_events"):
        KafkaSink("kafka://host?job_events=x:many", AdapterContext())
