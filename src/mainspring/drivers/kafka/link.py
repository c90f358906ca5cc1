"""Kafka, as a URL names it: some brokers of the cluster, which name the others.

    kafka://user:password@host1:9092,host2            kafkas:// with TLS

With a user, the client authenticates by SASL; `sasl` names the mechanism.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Mapping, Sequence
from functools import lru_cache
from random import randrange
from typing import Any, Final, TypeVar

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError, for_code
from aiokafka.partitioner import murmur2
from aiokafka.protocol.admin import ApiVersionRequest

from mainspring.core.answers import ServerFacts
from mainspring.drivers.server_url import TLS_OPTIONS, ServerLink, make_tls, read_server_url
from mainspring.errors import BackendUnavailable

T = TypeVar("T")

CONNECT_S: Final = 5.0
CLOSE_S: Final = 2.0
REQUEST_TIMEOUT_MS: Final = 15_000
"""Longer than a rebalance, during which a request to join is not answered."""
BATCH_BYTES: Final = 262_144
"""Size of a batch of one partition. The library sends one batch of a partition after the other, each a round trip; a
server takes 1 MiB unless it is configured otherwise."""
METADATA_AGE_MS: Final = 10_000
"""How soon a client learns of topics and partitions that were made elsewhere."""
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OPTIONS: Final = ("timeout", "prefix", "sasl", "partitions", "replication", *TLS_OPTIONS)
_FETCH: Final = 1
_RELEASES: Final = ((18, "4.1"), (17, "3.9"), (16, "3.7"), (15, "3.5"), (13, "3.1"), (12, "2.7"), (11, "2.3"))
"""The first release of Kafka with a version of the Fetch request. Kafka does not state its release."""
_EXISTS: Final = 36
_NOT_ALLOWED: Final = (29, 31)

# It logs an error for every request that it repeats; what fails for good is raised as well.
logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


class KafkaLink(ServerLink):
    """Makes clients."""

    errors = (KafkaError, OSError)

    def __init__(
        self, url: str, field: str, options: Collection[str], unavailable: type[BackendUnavailable], timeout: str
    ) -> None:
        super().__init__(read_server_url(url, field, port=9092, options=options), unavailable, timeout)
        self._replication = self.url.number("replication", 0, least=0, most=100)
        tls, login = self.url.scheme == "kafkas", self.url.username is not None
        self._options: dict[str, Any] = {
            "bootstrap_servers": [f"{host}:{port}" for host, port in self.url.hosts],
            "security_protocol": ("SASL_" if login else "") + ("SSL" if tls else "PLAINTEXT"),
            "ssl_context": make_tls(self.url.options) if tls else None,
            "request_timeout_ms": REQUEST_TIMEOUT_MS,
            "metadata_max_age_ms": METADATA_AGE_MS,
        }
        if login:
            self._options |= {
                "sasl_mechanism": self.url.choice("sasl", MECHANISMS, "PLAIN"),
                "sasl_plain_username": self.url.username,
                "sasl_plain_password": self.url.password or "",
            }

    def options(self) -> dict[str, Any]:
        """What every client of the library is constructed with."""
        return dict(self._options)

    async def create_topics(self, admin: AIOKafkaAdminClient, topics: Mapping[str, int]) -> None:
        """Make topics that do not exist, with these numbers of partitions, on up to three brokers unless the URL says
        `replication`."""
        replication = self._replication or min(3, len((await admin.describe_cluster())["brokers"]))
        wanted = [NewTopic(name, partitions, replication) for name, partitions in topics.items()]
        answer: Any = await admin.create_topics(wanted)
        for name, code, *_ in answer.topic_errors:
            if code in _NOT_ALLOWED:
                remedy = f"create it with {topics[name]} partitions, or allow this user to create topics"
                raise self.unavailable(f"the topic {name} does not exist and may not be created: {remedy}")
            if code not in (0, _EXISTS):
                raise self.unavailable(f"the topic {name} cannot be created: {for_code(code).__name__}")


def out_of_sync(topics: Sequence[Mapping[str, Any]]) -> str:
    """How many partitions have replicas that are not in sync, as metadata describes them; empty if none has."""
    partitions = [partition for topic in topics for partition in topic["partitions"]]
    behind = sum(len(partition["isr"]) < len(partition["replicas"]) for partition in partitions)
    return f"{behind} of {len(partitions)} partitions have replicas that are not in sync" if behind else ""


Record = tuple[str, bytes | None, bytes, list[tuple[str, bytes]]]
"""Topic, key, value and headers. A record without a key may go to any partition."""


class KafkaPublisher:
    """The producer of one event loop, made when it is needed and anew after it failed. Idempotent, `acks=all`."""

    def __init__(self, link: KafkaLink) -> None:
        self._link = link
        self._producer: AIOKafkaProducer | None = None
        self._admin: AIOKafkaAdminClient | None = None
        self._created: set[str] = set()
        self._opening = asyncio.Lock()

    async def publish(self, records: Sequence[Record], topics: Mapping[str, int]) -> None:
        """Returns when all in-sync replicas have the records. `topics` are the numbers of partitions of their topics,
        which are created if they do not exist."""
        await self.create(topics)
        producer = self._producer
        if producer is None:
            raise self._link.unavailable("the connection was lost")
        try:
            async with self._link.explained():
                await bounded(_send(producer, records), self._link.timeout_s + 0.0001 * len(records))
        except BackendUnavailable:
            self._created.clear()
            await self.close()  # A producer that failed may never send again; what it holds is published again.
            raise

    async def create(self, topics: Mapping[str, int]) -> None:
        """Make topics, unless this program did before."""
        _, admin = await self.ready()
        new = {name: partitions for name, partitions in topics.items() if name not in self._created}
        if new:
            async with self._link.explained():
                await bounded(self._link.create_topics(admin, new), CONNECT_S)
            self._created.update(new)

    async def ready(self) -> tuple[AIOKafkaProducer, AIOKafkaAdminClient]:
        """The clients, connected."""
        async with self._opening:
            if self._producer is not None and self._admin is not None:
                return self._producer, self._admin
            producer = AIOKafkaProducer(
                acks="all", enable_idempotence=True, max_batch_size=BATCH_BYTES, **self._link.options()
            )
            options = self._link.options()
            admin = AIOKafkaAdminClient(**options)
            try:
                async with self._link.explained():
                    await bounded(admin.start(), CONNECT_S)
                    await bounded(producer.start(), CONNECT_S)
            except BaseException:
                await _stop(producer.stop)
                await _stop(admin.close)
                raise
            self._producer, self._admin = producer, admin
            return producer, admin

    async def describe(self) -> ServerFacts:
        """The release, as far as the versions of requests show it, and the size of the cluster."""
        _, admin = await self.ready()
        async with self._link.explained():
            cluster = await bounded(admin.describe_cluster(), CONNECT_S)
            nodes = cluster["brokers"]
            topics: Any = await bounded(admin.describe_topics(), CONNECT_S)
            answer: Any = await bounded(admin._client.send(nodes[0]["node_id"], ApiVersionRequest()), CONNECT_S)
        fetch = max((most for key, _, most in answer.api_versions if key == _FETCH), default=0)
        release = next((f"{name} or newer" for least, name in _RELEASES if fetch >= least), "older than 2.3")
        brokers = "1 broker" if len(nodes) == 1 else f"{len(nodes)} brokers"
        return ServerFacts(f"Kafka {release} ({brokers}, cluster {cluster['cluster_id']})", behind=out_of_sync(topics))

    async def close(self) -> None:
        """Let go of the clients."""
        producer, admin = self._producer, self._admin
        self._producer = self._admin = None
        if producer is not None:
            await _stop(producer.stop)
        if admin is not None:
            await _stop(admin.close)


async def _send(producer: AIOKafkaProducer, records: Sequence[Record]) -> None:
    """Send records in batches of their partitions: record by record, the library makes a future for each, and takes
    half as many in the same time. Records of one key keep their order; those without a key go to all partitions in
    turn, because the hash of a key costs as much CPU time as the rest of a record."""
    batches: dict[tuple[str, int], list[Record]] = {}
    partitions = {topic: sorted(await producer.partitions_for(topic)) for topic in {record[0] for record in records}}
    turn = randrange(1 << 16)  # Publications of single records must not all go to the first partition.
    for number, record in enumerate(records, turn):
        topic, key, *_ = record
        known = partitions[topic]
        chosen = known[(number if key is None else _hash(key)) % len(known)]
        batches.setdefault((topic, chosen), []).append(record)
    sent: list[Any] = []
    for (topic, partition), some in batches.items():
        batch = producer.create_batch()
        for _, key, value, headers in some:
            if batch.append(timestamp=None, key=key, value=value, headers=headers) is None:  # It is full.
                sent.append(await producer.send_batch(batch, topic, partition=partition))
                batch = producer.create_batch()
                batch.append(timestamp=None, key=key, value=value, headers=headers)
        batch.close()  # Else another caller's records may join, and fail with these.
        sent.append(await producer.send_batch(batch, topic, partition=partition))
    await asyncio.gather(*sent)


@lru_cache(maxsize=100_000)
def _hash(key: bytes) -> int:
    """What every client of Kafka chooses a partition by: the same key is in the same partition, whichever sent it."""
    hashed: int = murmur2(key)
    return hashed & 0x7FFFFFFF


async def bounded(work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """The result of a call of the library, or TimeoutError. The library keeps some cancellations to itself, so a call
    that takes too long is left behind rather than awaited."""
    task = asyncio.ensure_future(work)
    task.add_done_callback(_retrieve)
    await asyncio.wait({task}, timeout=timeout_s)
    if not task.done():
        task.cancel()
        raise TimeoutError(f"no answer within {timeout_s:g} s")
    return task.result()


def _retrieve(task: asyncio.Future[Any]) -> None:
    """An exception that no caller is left to see is no error of the program."""
    if not task.cancelled():
        task.exception()


_stopping: set[asyncio.Future[None]] = set()


async def _stop(stop: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Stop a client. One whose server does not answer goes on stopping in the background: it must close its sockets."""
    task = asyncio.ensure_future(stop())
    _stopping.add(task)
    task.add_done_callback(_stopping.discard)
    task.add_done_callback(_retrieve)
    await asyncio.wait({task}, timeout=CLOSE_S)
