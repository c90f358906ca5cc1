"""RabbitMQ, Kafka and ElasticMQ of a test's own: paused, killed, emptied and poisoned. Everything here blocks."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, ClassVar

from aiokafka import AIOKafkaConsumer

from certificates import make_certificates
from mainspring.adapter import AdapterContext
from mainspring.broker import Broker, Notice
from mainspring.brokers.kafka import KafkaBroker
from mainspring.brokers.rabbitmq import RabbitMqBroker
from mainspring.brokers.sqs import SqsBroker
from mainspring.testing.servers.process import free_port

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "services"
PLACE = ("default", "default", "default")


class BrokerServer(ABC):
    """A server of `scripts/services` in a folder of its own; with TLS and a user, if it knows them."""

    name: ClassVar[str]
    pid_files: ClassVar[str]
    options: ClassVar[str] = ""
    """Of the URL that the cluster uses."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = os.environ | {"MAINSPRING_SERVICES": str(folder)} | dict(self.settings())

    def settings(self) -> Mapping[str, str]:
        """What `scripts/services` is told of a new server."""
        return {}

    def start(self) -> None:
        """Returns when it answers."""
        self._services("start")

    def stop(self) -> None:
        """Returns when it is gone."""
        self.kill()
        self._services("stop")

    def _services(self, what: str) -> None:
        ended = subprocess.run(
            [SCRIPT, what, self.name], env=self._environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr

    @property
    def url(self) -> str:
        """Where it is."""
        lines = (self.folder / "urls").read_text().splitlines()
        return dict(line.split("=", 1) for line in lines)[f"MAINSPRING_TEST_{self.name.upper()}"] + self.options

    @property
    def port(self) -> int:
        """Of the first node."""
        found = re.search(r"127\.0\.0\.1:(\d+)", self.url)
        assert found is not None
        return int(found[1])

    def pids(self) -> list[int]:
        """Of its nodes, in order."""
        return [int(file.read_text().split()[0]) for file in sorted(self.folder.glob(self.pid_files))]

    def pause(self) -> None:
        """It keeps its connections and answers nothing."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Go on where it was paused."""
        self._signal(signal.SIGCONT)

    def kill(self, *nodes: int) -> None:
        """All nodes, or these, at once."""
        self._signal(signal.SIGKILL, *nodes)

    def _signal(self, number: signal.Signals, *nodes: int) -> None:
        pids = self.pids()
        assert pids, f"no {self.name} runs in {self.folder}"
        for pid in [pids[node] for node in nodes] or pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue

    def forge(self, count: int) -> None:
        """Publish notices of runs that do not exist."""

        async def publish() -> None:
            broker = self._open()
            await broker.publish([Notice(f"forged-{number}", number, *PLACE, 5, 0) for number in range(count)])
            await broker.close()

        asyncio.run(publish())

    def poison(self, body: bytes) -> None:
        """Put a message that is none of ours where workers receive."""
        asyncio.run(self._poison(body))

    def empty(self) -> None:
        """Delete the queues or topics."""
        asyncio.run(self._empty())

    @abstractmethod
    def _open(self) -> Broker: ...

    @abstractmethod
    def _poison(self, body: bytes) -> Coroutine[Any, Any, None]: ...

    @abstractmethod
    def _empty(self) -> Coroutine[Any, Any, None]: ...

    def dead_letters(self) -> set[bytes]:
        """The messages that were put aside because they cannot be read."""
        return asyncio.run(self._dead_letters())

    @abstractmethod
    def _dead_letters(self) -> Coroutine[Any, Any, set[bytes]]: ...


class RabbitMqServer(BrokerServer):
    name, pid_files = "rabbitmq", "rabbitmq/pid"

    def settings(self) -> Mapping[str, str]:
        self.authority, own = make_certificates(self.folder, "localhost", "127.0.0.1")
        self._tls_port = free_port()
        lines = {
            "listeners.ssl.1": f"127.0.0.1:{self._tls_port}",
            "ssl_options.certfile": own,
            "ssl_options.keyfile": own,
            "ssl_options.cacertfile": self.authority,
        }
        return {"MAINSPRING_RABBITMQ_EXTRA": "\n".join(f"{name} = {value}" for name, value in lines.items())}

    @property
    def url(self) -> str:
        return f"amqps://mainspring:mainspring@127.0.0.1:{self._tls_port}?ssl_ca_certs={self.authority}"

    def _open(self) -> RabbitMqBroker:
        return RabbitMqBroker(f"{self.url}&timeout=5s", AdapterContext())

    async def _poison(self, body: bytes) -> None:
        broker = self._open()
        publisher = await broker._publishers.get()
        await publisher.publish([("jobs.default.default.default", body, 5)])
        await broker.close()

    async def _empty(self) -> None:
        broker = self._open()
        publisher = await broker._publishers.get()
        await publisher.call(lambda channel: channel.queue_delete("jobs.default.default.default"))
        await broker.close()

    async def _dead_letters(self) -> set[bytes]:
        broker, found = self._open(), set()
        publisher = await broker._publishers.get()
        while (got := await publisher.call(lambda channel: channel.basic_get("jobs.dlq"))).body:
            found.add(bytes(got.body))
        await broker.close()  # They go back: none was acknowledged.
        return found


class KafkaServer(BrokerServer):
    """Three nodes. A record is on all of them, and on two before it is acknowledged."""

    name, pid_files = "kafka", "kafka/*/kafka.pid"

    def settings(self) -> Mapping[str, str]:
        self.authority, own = make_certificates(self.folder, "localhost", "127.0.0.1")
        return {"MAINSPRING_KAFKA_NODES": "3", "MAINSPRING_KAFKA_PEM": str(own)}

    @property
    def url(self) -> str:
        found = [
            re.search(r"SASL_SSL://(127\.0\.0\.1:\d+)", file.read_text())
            for file in sorted(self.folder.glob("kafka/*/server.properties"))
        ]
        hosts = ",".join(each[1] for each in found if each is not None)
        return f"kafkas://mainspring:mainspring@{hosts}?sasl=SCRAM-SHA-512&ssl_ca_certs={self.authority}&replication=3"

    def _open(self) -> KafkaBroker:
        return KafkaBroker(f"{self.url}&timeout=10s", AdapterContext())

    async def _poison(self, body: bytes) -> None:
        broker = self._open()
        publisher = await broker._publishers.get()
        topic = "jobs.default.default.default.normal"
        await publisher.publish([(topic, b"", body, [])], {topic: 12})
        await broker.close()

    async def _empty(self) -> None:
        broker = self._open()
        _, admin = await (await broker._publishers.get()).ready()
        await admin.delete_topics([topic for topic in await admin.list_topics() if topic.startswith("jobs.default")])
        await broker.close()

    async def _dead_letters(self) -> set[bytes]:
        broker, found = self._open(), set()
        left = sum((await broker.lag(["jobs.dlq"])).values())
        consumer = AIOKafkaConsumer("jobs.dlq", auto_offset_reset="earliest", **broker._link.options())
        await consumer.start()
        while left > 0:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                found |= {record.value or b"" for record in records}
                left -= len(records)
        await consumer.stop()
        await broker.close()
        return found


class SqsServer(BrokerServer):
    name, pid_files, options = "sqs", "sqs/sqs.pid", "&pulse=300ms&visibility=4s"
    queue = "jobs__default__default__default"

    def _open(self) -> SqsBroker:
        return SqsBroker(f"{self.url}&timeout=5s", AdapterContext())

    async def _poison(self, body: bytes) -> None:
        broker = self._open()
        client = await broker._clients.get()
        await client.find(self.queue, {})
        await client.on_queue(self.queue, "send_message", MessageBody=body.decode())
        await broker.close()

    async def _empty(self) -> None:
        broker = self._open()
        client = await broker._clients.get()
        await client.find(self.queue, {})
        await client.on_queue(self.queue, "delete_queue")
        await broker.close()

    async def _dead_letters(self) -> set[bytes]:
        broker, found = self._open(), set()
        client = await broker._clients.get()
        await client.find("jobs-dlq", {})
        for _ in range(3):  # SQS answers with some of the messages.
            answer = await client.on_queue(
                "jobs-dlq", "receive_message", MaxNumberOfMessages=10, VisibilityTimeout=0, WaitTimeSeconds=0
            )
            found |= {message["Body"].encode() for message in answer.get("Messages", ())}
        await broker.close()
        return found
