"""Events on Kafka, for other programs: `sink=kafka://host`.

| topic | partitions | key | events |
|---|---|---|---|
| `job-events` | 20 | the job's id; else the run's | of jobs, firings and runs |
| `worker-events` | 10 | the worker's id | of workers, brokers and leases |
| `dependency-events` | 10 | the id of the job that became ready; else the run's | `dependency.ready` |

Values are JSON: see `EventRecord`. Headers are those of CloudEvents. Events of one key are in one partition, in order.
An event may come more than once: its `id` is always the same, and grows from event to event.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec

from mainspring.adapter import AdapterContext
from mainspring.core.answers import ServerFacts
from mainspring.core.instants import format_instant
from mainspring.core.model import Event, EventBatch
from mainspring.drivers.kafka.link import OPTIONS, KafkaLink, KafkaPublisher, Record
from mainspring.drivers.per_loop import PerLoop
from mainspring.errors import SinkUnavailable

TIMEOUT: Final = "10s"
TOPICS: Final = {
    "job_events": "job-events:20",
    "worker_events": "worker-events:10",
    "dependency_events": "dependency-events:10",
}
SOURCE: Final = "mainspring"
_encode = msgspec.json.Encoder().encode


class EventRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """The value of a record. Fields that an event does not have are left out."""

    id: int
    """The position of the event: unique, and greater than that of every earlier event."""
    kind: str
    """What happened: `run.succeeded`, `job.created`, `worker.started` …"""
    at: str
    """When, in RFC 3339 with microseconds, UTC."""
    namespace: str
    run_id: str | None = None
    job_id: str | None = None
    job: str | None = None
    """The name of the job."""
    task: str | None = None
    worker: str | None = None
    fire_at: str | None = None
    """The due instant of the firing."""
    attempt: int | None = None
    reason: str | None = None
    duration_s: float | None = None
    count: int | None = None


def record_of(position: int, event: Event) -> EventRecord:
    """An event as it is written to Kafka."""
    return EventRecord(
        id=position,
        kind=event.kind,
        at=format_instant(event.at),
        namespace=event.namespace,
        run_id=event.run_id,
        job_id=event.job_id,
        job=event.job,
        task=event.task,
        worker=event.worker,
        fire_at=None if event.fire_at is None else format_instant(event.fire_at),
        attempt=event.attempt,
        reason=event.reason or None,
        duration_s=None if event.duration is None else event.duration / 1_000_000,
        count=event.count,
    )


class KafkaSink:
    """See `sink.Sink`."""

    def __init__(self, url: str, context: AdapterContext) -> None:
        self._link = KafkaLink(url, "sink", (*OPTIONS, *TOPICS), SinkUnavailable, TIMEOUT)
        self._publishers = PerLoop(partial(KafkaPublisher, self._link), KafkaPublisher.close)
        self._topics: dict[str, str] = {}
        self._partitions: dict[str, int] = {}
        prefix = self._link.url.options.get("prefix", "")
        for option, default in TOPICS.items():
            written = self._link.url.options.get(option, default)
            name, _, count = written.partition(":")
            if not name or (count and not (count.isdecimal() and int(count))):
                raise self._link.url.refuse(f"has {option}={written!r}", f"write a name and a number: {default}")
            self._topics[option] = prefix + name
            self._partitions[prefix + name] = int(count or default.partition(":")[2])

    async def deliver(self, batches: Sequence[EventBatch]) -> None:
        records = [
            self._record(batch.position + number, event)
            for batch in batches
            for number, event in enumerate(batch.events)
        ]
        if records:
            publisher = await self._publishers.get()
            await publisher.publish(records, self._partitions)

    def _record(self, position: int, event: Event) -> Record:
        if event.kind.startswith("dependency."):
            topic, key = "dependency_events", event.job_id or event.run_id
        elif event.run_id is None and event.job_id is None:
            topic, key = "worker_events", event.worker
        else:
            topic, key = "job_events", event.job_id or event.run_id
        record = record_of(position, event)
        headers = [
            ("ce_specversion", b"1.0"),
            ("ce_id", str(position).encode()),
            ("ce_source", f"{SOURCE}/{event.namespace}".encode()),
            ("ce_type", f"mainspring.{event.kind}".encode()),
            ("ce_time", record.at.encode()),
            ("content-type", b"application/json"),
        ]
        return self._topics[topic], (key or event.namespace).encode(), _encode(record), headers

    async def ping(self) -> None:
        publisher = await self._publishers.get()
        await publisher.create(self._partitions)

    async def describe(self) -> ServerFacts:
        """See `adapter.Describes`."""
        publisher = await self._publishers.get()
        return await publisher.describe()

    async def close(self) -> None:
        await self._publishers.close()
