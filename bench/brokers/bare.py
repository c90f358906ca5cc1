"""The client libraries alone: what they publish, receive and acknowledge with no more than a loop around them.

Each is as durable as the adapter: persistent messages and confirms, `acks=all`, messages deleted after they arrived.
"""

from __future__ import annotations

import asyncio
import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from bench.brokers.servers import BrokerServer

BODY = b"x" * 60
"""About what a notice takes."""
AT_ONCE = 500
SQS_AT_ONCE = 10
SQS_REQUESTS = 8
POLL_S = 20
PARTITIONS = 12


def _parts(count: int, size: int) -> Iterator[range]:
    return (range(first, min(first + size, count)) for first in range(0, count, size))


class BareClient(ABC):
    """One queue or topic of its own, published to and received from in this process."""

    def __init__(self, server: BrokerServer) -> None:
        self.server = server
        self.name = f"bench-{secrets.token_hex(4)}"

    @abstractmethod
    async def open(self) -> None:
        """Connect, and make the queue."""

    @abstractmethod
    async def publish(self, count: int) -> None:
        """Returns when the server has all of them."""

    @abstractmethod
    async def consume(self, on_arrival: Callable[[], None]) -> None:
        """Call `on_arrival` for each message, and acknowledge it; until cancelled."""

    @abstractmethod
    async def close(self) -> None:
        """Delete the queue."""


class BareRabbitMq(BareClient):
    """aio-pika."""

    async def open(self) -> None:
        import aio_pika

        self._connection = await aio_pika.connect(self.server.url)
        self._sending = await self._connection.channel(publisher_confirms=True)
        self._receiving = await self._connection.channel()
        await self._receiving.set_qos(prefetch_count=AT_ONCE)
        self._queue = await self._receiving.declare_queue(self.name, durable=True)
        self._message = aio_pika.Message(BODY, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)

    async def publish(self, count: int) -> None:
        send = self._sending.default_exchange.publish
        for some in _parts(count, AT_ONCE):
            await asyncio.gather(*(send(self._message, routing_key=self.name) for _ in some))

    async def consume(self, on_arrival: Callable[[], None]) -> None:
        async def take(message: Any) -> None:
            on_arrival()
            await message.ack()

        tag = await self._queue.consume(take)
        try:
            await asyncio.Event().wait()
        finally:
            await self._queue.cancel(tag)

    async def close(self) -> None:
        await self._queue.delete(if_unused=False, if_empty=False)
        await self._connection.close()


class BareKafka(BareClient):
    """aiokafka."""

    async def open(self) -> None:
        from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
        from aiokafka.admin import AIOKafkaAdminClient, NewTopic

        servers = self.server.for_peers()
        self._admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await self._admin.start()
        await self._admin.create_topics([NewTopic(self.name, PARTITIONS, 1)])
        self._producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
        self._consumer = AIOKafkaConsumer(
            self.name,
            bootstrap_servers=servers,
            group_id=self.name,
            enable_auto_commit=False,
            auto_offset_reset="earliest",
        )
        await self._producer.start()
        await self._consumer.start()

    async def publish(self, count: int) -> None:
        for some in _parts(count, AT_ONCE):
            sent = [await self._producer.send(self.name, BODY) for _ in some]
            await asyncio.gather(*sent)

    async def consume(self, on_arrival: Callable[[], None]) -> None:
        while True:
            found = await self._consumer.getmany(timeout_ms=1_000, max_records=AT_ONCE)
            for records in found.values():
                for _ in records:
                    on_arrival()
            if found:
                await self._consumer.commit()

    async def close(self) -> None:
        await self._consumer.stop()
        await self._producer.stop()
        await self._admin.delete_topics([self.name])
        await self._admin.close()


class BareSqs(BareClient):
    """aiobotocore, by batches of 10 and 8 requests at once."""

    async def open(self) -> None:
        from aiobotocore.config import AioConfig
        from aiobotocore.session import get_session

        self._context = get_session().create_client(
            "sqs",
            region_name="local",
            endpoint_url=self.server.endpoint,
            aws_access_key_id="key",
            aws_secret_access_key="secret",
            config=AioConfig(max_pool_connections=64),
        )
        self._client = await self._context.__aenter__()
        self._url = (await self._client.create_queue(QueueName=self.name))["QueueUrl"]

    async def publish(self, count: int) -> None:
        places = asyncio.Semaphore(SQS_REQUESTS)

        async def send(some: Sequence[int]) -> None:
            entries = [{"Id": str(number), "MessageBody": BODY.decode()} for number in some]
            async with places:
                await self._client.send_message_batch(QueueUrl=self._url, Entries=entries)

        await asyncio.gather(*(send(some) for some in _parts(count, SQS_AT_ONCE)))

    async def consume(self, on_arrival: Callable[[], None]) -> None:
        async def poll() -> None:
            while True:
                answer = await self._client.receive_message(
                    QueueUrl=self._url, MaxNumberOfMessages=SQS_AT_ONCE, WaitTimeSeconds=POLL_S
                )
                messages = answer.get("Messages", ())
                for _ in messages:
                    on_arrival()
                if messages:
                    entries = [
                        {"Id": str(number), "ReceiptHandle": message["ReceiptHandle"]}
                        for number, message in enumerate(messages)
                    ]
                    await self._client.delete_message_batch(QueueUrl=self._url, Entries=entries)

        await asyncio.gather(*(poll() for _ in range(SQS_REQUESTS)))

    async def close(self) -> None:
        await self._client.delete_queue(QueueUrl=self._url)
        await self._context.__aexit__(None, None, None)


BARE: dict[str, type[BareClient]] = {"rabbitmq": BareRabbitMq, "kafka": BareKafka, "sqs": BareSqs}
