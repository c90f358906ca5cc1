"""The broker on Kafka: a topic for each namespace, queue, region and band of priorities.

The key of a record is the run's order key, so runs of one key are in one partition and keep their order there; a run
without one goes to any partition. Workers are members of one consumer group, which assigns the partitions. A worker's
offset in a partition is committed up to the first record that it has not acknowledged. Kafka can neither take a record
back nor put one before another: the dispatcher publishes again what a worker gives up, and each band of priorities is a
topic of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, ConsumerRecord, TopicPartition
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from aiokafka.errors import KafkaError

from mainspring.adapter import AdapterContext
from mainspring.broker import Capabilities, Delivery, Depth, Notice, Subscription
from mainspring.brokers.inbox import Inbox
from mainspring.brokers.layout import COMMITS, LAYOUT_OPTIONS, Destination, Layout, Naming, decode, encode
from mainspring.core.answers import ServerFacts
from mainspring.core.instants import MILLISECOND
from mainspring.core.model import Worker
from mainspring.core.runs.priority import PRIORITIES
from mainspring.drivers.ending import end
from mainspring.drivers.kafka.link import CLOSE_S, CONNECT_S, OPTIONS, KafkaLink, KafkaPublisher, bounded
from mainspring.drivers.per_loop import PerLoop
from mainspring.drivers.pulse import Pulse
from mainspring.errors import BrokerUnavailable

NAMING: Final = Naming("jobs.{namespace}.{queue}.{region}", ".", 249, "_", "A-Za-z0-9._-")
BANDS: Final = "high:1-3,normal:4-7,low:8-10"
GROUP: Final = "job-workers"
DEAD_LETTERS: Final = "jobs.dlq"
TIMEOUT: Final = "1s"
"""How long an answer may take, unless the URL says otherwise: a leader of a partition is elected within that."""
PARTITIONS: Final = 12
"""Partitions of a topic that this program creates; at most this many workers share a topic."""
RECORDS: Final = 100
"""The most that one poll takes, unless the URL says otherwise."""
SESSION_MS: Final = 6_000
"""A worker that is silent for this long leaves the group: the least that Kafka allows by default."""
POLL_MS: Final = 300
COMMIT_S: Final = 0.02
"""Acknowledgements within this time are committed together."""
RECONNECT_S: Final = 0.5
LEAVE_S: Final = 5.0
"""A subscription that is closed commits its offsets and leaves the group within this time."""
GIVE_UP_S: Final = 30.0
"""A consumer that gets no answer for this long begins anew. Sooner would cost a rebalance for every short outage."""


class _Receipt(NamedTuple):
    partition: TopicPartition
    offset: int


class KafkaBroker:
    """See `broker.Broker`."""

    def __init__(self, url: str, context: AdapterContext) -> None:
        options = (*OPTIONS, *LAYOUT_OPTIONS, "group", "records", "dead_letters", "commit")
        self.link = KafkaLink(url, "broker", options, BrokerUnavailable, TIMEOUT)
        self._layout = Layout(self.link.url, NAMING, BANDS)
        self._publishers = PerLoop(partial(KafkaPublisher, self.link), KafkaPublisher.close)
        self._partitions = self.link.url.number("partitions", PARTITIONS)
        prefix, words = self.link.url.options.get("prefix", ""), self.link.url.options
        self.group = prefix + words.get("group", GROUP)
        self._dead_letters = prefix + words.get("dead_letters", DEAD_LETTERS)
        self.records = self.link.url.number("records", RECORDS, most=10_000)
        self.count = context.count
        after_work = self.link.url.choice("commit", COMMITS, COMMITS[0]) == "after_work"
        self.capabilities = Capabilities(
            releases=False, priorities=False, key_order=True, deduplicates=False, acks_after_work=after_work
        )

    async def publish(self, notices: Sequence[Notice]) -> None:
        if not notices:
            return
        publisher = await self._publishers.get()
        records = [
            (self._layout.destination(each).name, each.order_key.encode() or None, encode(each), _NO_HEADERS)
            for each in notices
        ]
        await publisher.publish(records, dict.fromkeys((record[0] for record in records), self._partitions))

    async def subscribe(self, worker: Worker, on_arrival: Callable[[], None]) -> Subscription:
        topics = self._layout.of_worker(worker)
        publisher = await self._publishers.get()
        await publisher.create({topic.name: self._partitions for topic in topics})
        subscription = _KafkaSubscription(self, topics, on_arrival)
        await subscription.start()
        return subscription

    async def bury(self, record: Any) -> None:
        """Put what cannot be read where a person finds it."""
        publisher = await self._publishers.get()
        origin = [("topic", record.topic.encode()), ("offset", str(record.offset).encode())]
        await publisher.publish(
            [(self._dead_letters, record.key, record.value or b"", origin)], {self._dead_letters: 1}
        )

    async def depth(self) -> Sequence[Depth]:
        """The lag of the group in each partition: records that are not committed."""
        names = self._layout.names()
        lags = await self.lag(list(names))
        return [
            Depth(names[each.topic].place, lag, f"{each.topic}/{each.partition}") for each, lag in sorted(lags.items())
        ]

    async def lag(self, topics: Sequence[str]) -> dict[TopicPartition, int]:
        """The lag of each partition of these topics; topics that do not exist are left out."""
        publisher = await self._publishers.get()
        _, admin = await publisher.ready()
        async with self.link.explained(), asyncio.timeout(CONNECT_S):
            topics = sorted(set(topics) & set(await admin.list_topics()))
        if not topics:
            return {}
        consumer = AIOKafkaConsumer(*topics, **self.link.options())  # Without a group: it commits nothing.
        try:
            async with self.link.explained(), asyncio.timeout(CONNECT_S):
                await consumer.start()
                partitions = [
                    TopicPartition(topic, number)
                    for topic in topics
                    for number in consumer.partitions_for_topic(topic) or ()
                ]
                ends = await consumer.end_offsets(partitions)
                begins = await consumer.beginning_offsets(partitions)
                committed = await admin.list_consumer_group_offsets(self.group, partitions=partitions)
        finally:
            await consumer.stop()
        done = {each: max(begins[each], committed[each].offset if each in committed else 0) for each in partitions}
        return {each: ends[each] - done[each] for each in partitions}

    async def ping(self) -> None:
        publisher = await self._publishers.get()
        try:
            _, admin = await publisher.ready()
            async with self.link.explained():
                await bounded(admin.describe_cluster(), self.link.timeout_s)
        except BrokerUnavailable:
            await publisher.close()
            raise

    async def describe(self) -> ServerFacts:
        """See `adapter.Describes`."""
        publisher = await self._publishers.get()
        return await publisher.describe()

    async def close(self) -> None:
        await self._publishers.close()


_NO_HEADERS: Final[list[tuple[str, bytes]]] = []


class _KafkaSubscription(ConsumerRebalanceListener):
    """A member of the group. Partitions are paused while the worker has no room."""

    def __init__(self, broker: KafkaBroker, topics: Sequence[Destination], on_arrival: Callable[[], None]) -> None:
        self._broker = broker
        self._link = broker.link
        self._bands = {topic.name: topic.band for topic in topics}
        self._on_arrival = on_arrival
        self._inbox = Inbox(on_arrival)
        self._consumer: AIOKafkaConsumer | None = None
        self._pulse: Pulse | None = None
        self._trouble = "not connected yet"
        self._room: dict[str, int] = {}
        """How many records the inbox may hold for a topic to be polled: those of topics that the worker asks for."""
        self._asked = asyncio.Event()
        self._open: dict[TopicPartition, dict[int, None]] = {}
        """Offsets that were delivered and are not acknowledged, of each partition, in order."""
        self._next: dict[TopicPartition, int] = {}
        """The offset after the last that was delivered."""
        self._dirty: set[TopicPartition] = set()
        """Partitions with acknowledgements that are not committed."""
        self._acked = asyncio.Event()
        self._connected = asyncio.Event()
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect. BrokerUnavailable if that fails at first; later it is tried again and again. The group may still be
        rebalancing when this returns."""
        consumer = await self._connect()
        self._running = asyncio.get_running_loop().create_task(self._run(consumer))
        await self._connected.wait()

    async def receive(self, limit: int, priorities: Sequence[int] = PRIORITIES) -> list[Delivery]:
        trouble = self._trouble or (self._pulse.trouble if self._pulse is not None else "")
        if trouble:
            raise self._link.unavailable(trouble)
        taken = self._inbox.take(limit, priorities)
        # What is left in the inbox is of other priorities, and must not keep these from arriving.
        room = min(limit, self._broker.records)
        room = min(room + len(self._inbox), max(room, self._broker.records))
        self._room |= {topic: room for topic, band in self._bands.items() if band.holds(priorities)}
        if len(self._inbox) < room:
            self._asked.set()
        return taken

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """Offsets are committed a moment later, together with others."""
        for delivery in deliveries:
            receipt = delivery.receipt
            assert isinstance(receipt, _Receipt)
            self._finish(receipt.partition, receipt.offset)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        await self.ack(deliveries)

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Records stay with the member that has their partition."""

    async def close(self) -> None:
        if self._running is not None:
            await end([self._running], LEAVE_S)

    def _finish(self, partition: TopicPartition, offset: int) -> None:
        unfinished = self._open.get(partition)
        if unfinished is not None and offset in unfinished:  # Else the partition has moved to another worker.
            del unfinished[offset]
            self._dirty.add(partition)
            self._acked.set()

    async def _connect(self) -> AIOKafkaConsumer:
        consumer = AIOKafkaConsumer(
            group_id=self._broker.group,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS,
            heartbeat_interval_ms=SESSION_MS // 6,
            partition_assignment_strategy=(RoundRobinPartitionAssignor,),
            **self._link.options(),
        )
        try:
            async with self._link.explained():
                await bounded(consumer.start(), CONNECT_S)
        except BaseException:
            await consumer.stop()
            raise
        consumer.subscribe(list(self._bands), listener=self)
        return consumer

    async def _run(self, consumer: AIOKafkaConsumer | None) -> None:
        while True:
            try:
                consumer = consumer or await self._connect()
                async with self._link.explained():
                    await self._consume(consumer)
            except BrokerUnavailable as error:
                self._trouble = str(error)
            finally:
                await self._leave(consumer)
            consumer = None
            self._on_arrival()  # The worker learns of the trouble at once.
            await asyncio.sleep(RECONNECT_S)

    async def _leave(self, consumer: AIOKafkaConsumer | None) -> None:
        self._trouble = self._trouble or "the connection was lost"
        self._pulse = self._consumer = None
        self._forget(list(self._next))
        if consumer is not None:
            with suppress(Exception):
                await bounded(consumer.stop(), CLOSE_S)

    async def _consume(self, consumer: AIOKafkaConsumer) -> None:
        pulse = Pulse(partial(_ask, consumer), self._link.timeout_s, GIVE_UP_S)
        self._consumer, self._pulse, self._trouble = consumer, pulse, ""
        self._connected.set()
        tasks = [asyncio.ensure_future(each) for each in (pulse.run(), self._poll(consumer), self._commit_acks())]
        try:
            done, _ = await asyncio.wait(tasks, return_when="FIRST_COMPLETED")
            for each in done:
                each.result()
        finally:
            await end(tasks)
            await self._commit()

    async def _poll(self, consumer: AIOKafkaConsumer) -> None:
        while True:
            asked = self._asked_topics()
            if asked:
                consumer.pause(*(each for each in consumer.assignment() if each.topic not in asked))
                consumer.resume(*(each for each in consumer.paused() if each.topic in asked))
                room = max(self._room[topic] for topic in asked) - len(self._inbox)
                found = await consumer.getmany(timeout_ms=POLL_MS, max_records=room)
                for partition, records in found.items():
                    for record in records:
                        await self._put(partition, record)
                continue
            consumer.pause(*consumer.assignment())
            await consumer.getmany(timeout_ms=0)  # Kafka excludes a member that does not poll.
            self._asked.clear()
            if self._asked_topics():
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(POLL_MS / 1_000):
                    await self._asked.wait()

    def _asked_topics(self) -> set[str]:
        return {topic for topic, room in self._room.items() if room > len(self._inbox)}

    async def _put(self, partition: TopicPartition, record: ConsumerRecord[bytes, bytes]) -> None:
        if partition not in self._open:
            return  # It was revoked while the records were on their way.
        self._open[partition][record.offset] = None
        self._next[partition] = record.offset + 1
        try:
            run_id, token, priority = decode(record.value or b"")
        except ValueError:
            self._broker.count("deliveries", "unreadable")
            await self._broker.bury(record)
            self._finish(partition, record.offset)
            return
        receipt, sent_at = _Receipt(partition, record.offset), record.timestamp * MILLISECOND
        self._inbox.put(Delivery(run_id, token, receipt, sent_at=sent_at), priority, self._bands[record.topic].first)

    async def _commit_acks(self) -> None:
        while True:
            await self._acked.wait()
            await asyncio.sleep(COMMIT_S)
            self._acked.clear()
            await self._commit()

    async def _commit(self) -> None:
        """Up to the first record of each partition that is not acknowledged."""
        dirty, self._dirty = self._dirty, set()
        offsets = {each: next(iter(self._open[each]), self._next[each]) for each in dirty if each in self._open}
        if offsets and self._consumer is not None:
            try:
                await bounded(self._consumer.commit(offsets), self._link.timeout_s)
            except (KafkaError, TimeoutError):
                self._dirty |= offsets.keys()  # With the next; or they are delivered again, and claim nothing.

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        """What waits of these goes to the worker that gets them."""
        gone = set(partitions)
        self._inbox.drop(lambda delivery: isinstance(delivery.receipt, _Receipt) and delivery.receipt.partition in gone)
        for each in partitions:
            self._open.pop(each, None)
            self._next.pop(each, None)
            self._dirty.discard(each)

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Called by the library before partitions go to other workers."""
        await self._commit()
        self._forget(list(revoked))

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Called by the library when this worker has these partitions."""
        for each in assigned:
            self._open[each] = {}
            self._next[each] = 0


async def _ask(consumer: AIOKafkaConsumer) -> None:
    """Ask any broker of the cluster about the topics of a consumer. Its public methods ask about all topics: that took
    8 ms of CPU time beside 119 topics, three times a second."""
    if not await consumer._client.force_metadata_update():
        raise KafkaError("no broker of the cluster answers")
