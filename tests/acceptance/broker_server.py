"""RabbitMQ, Kafka and ElasticMQ of a test's own: paused, killed, emptied and poisoned. Everything here blocks."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import threading
from abc import ABC, abstractmethod
from collections.abc import Coroutine, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random
from typing import Any, ClassVar

from aiokafka import AIOKafkaConsumer
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from certificates import make_certificates
from mainspring.adapter import AdapterContext
from mainspring.broker import Broker, Notice
from mainspring.brokers.kafka import KafkaBroker
from mainspring.brokers.rabbitmq import RabbitMqBroker
from mainspring.brokers.sqs import SqsBroker
from mainspring.testing.servers.process import free_port
from mainspring.testing.servers.proxy import Proxy

SCRIPT = Path(__file__).parent.parent.parent / "scripts" / "services"
RABBITMQCTL = "/usr/lib/rabbitmq/bin/rabbitmqctl"
PLACE = ("default", "default", "default")


class BrokerServer(ABC):
    """A server of `scripts/services` in a folder of its own; with TLS and a user, if it knows them. Clients reach its
    nodes through proxies."""

    name: ClassVar[str]
    pid_files: ClassVar[str]
    nodes: ClassVar[int] = 1

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.proxies = [Proxy(0, Random(7)) for _ in range(self.nodes)]
        for proxy in self.proxies:
            proxy.start()
        self._environment = os.environ | {"MAINSPRING_SERVICES": str(folder)} | dict(self.settings())

    def settings(self) -> Mapping[str, str]:
        """What `scripts/services` needs to know of a new server."""
        return {}

    def start(self) -> None:
        """Returns when it answers."""
        self._services("start")
        for proxy, port in zip(self.proxies, self.ports(), strict=True):
            proxy.point_to(port)

    def stop(self) -> None:
        """Returns when it is gone."""
        self.kill()
        self._services("stop")
        for proxy in self.proxies:
            proxy.close()

    def delay(self, seconds: float) -> None:
        """How long bytes wait at most on their way to and from each node."""
        for proxy in self.proxies:
            proxy.delay_s = seconds

    def _services(self, what: str) -> None:
        ended = subprocess.run(
            [SCRIPT, what, self.name], env=self._environment, capture_output=True, text=True, timeout=120, check=False
        )
        assert ended.returncode == 0, ended.stderr

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients find it: at the proxies."""

    @abstractmethod
    def ports(self) -> list[int]:
        """Where its nodes listen."""

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
    def fill(self, *, full: bool) -> None:
        """Whether it refuses new messages for want of room."""

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
        return f"amqps://mainspring:mainspring@127.0.0.1:{self.proxies[0].port}?ssl_ca_certs={self.authority}"

    def ports(self) -> list[int]:
        return [self._tls_port]

    def fill(self, *, full: bool) -> None:
        """A server that is short of memory takes no messages, and still delivers those that it has."""
        share = "0" if full else "0.4"
        home = self.folder / "rabbitmq"
        own = {"HOME": str(home), "ERL_EPMD_PORT": (home / "epmd").read_text().strip(), "LANG": "C.UTF-8"}
        command = [RABBITMQCTL, "--node", "mainspring@localhost", "set_vm_memory_high_watermark", share]
        ended = subprocess.run(command, env=os.environ | own, capture_output=True, text=True, timeout=180, check=False)
        assert ended.returncode == 0, ended.stderr

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

    name, pid_files, nodes = "kafka", "kafka/*/kafka.pid", 3

    def settings(self) -> Mapping[str, str]:
        self.authority, own = make_certificates(self.folder, "localhost", "127.0.0.1")
        return {
            "MAINSPRING_KAFKA_NODES": str(self.nodes),
            "MAINSPRING_KAFKA_PEM": str(own),
            "MAINSPRING_KAFKA_PROXIES": " ".join(str(proxy.port) for proxy in self.proxies),
        }

    def ports(self) -> list[int]:
        files = sorted(self.folder.glob("kafka/*/server.properties"))
        found = [re.search(r"^listeners=.*SASL_SSL://127\.0\.0\.1:(\d+)", file.read_text(), re.M) for file in files]
        return [int(each[1]) for each in found if each is not None]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{proxy.port}" for proxy in self.proxies)
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

    def fill(self, *, full: bool) -> None:
        """Topics that take no record, as those whose quota is used up; what they have is still delivered."""
        asyncio.run(self._limit_records({"max.message.bytes": "1"} if full else {}))

    async def _limit_records(self, limits: Mapping[str, str]) -> None:
        broker = self._open()
        _, admin = await (await broker._publishers.get()).ready()
        topics = [topic for topic in await admin.list_topics() if topic.startswith("jobs.default")]
        await admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, dict(limits)) for topic in topics])
        await broker.close()

    async def _dead_letters(self) -> set[bytes]:
        broker, found = self._open(), set()
        left = sum((await broker.lag(["jobs.dlq"])).values())
        consumer = AIOKafkaConsumer("jobs.dlq", auto_offset_reset="earliest", **broker.link.options())
        await consumer.start()
        while left > 0:
            for records in (await consumer.getmany(timeout_ms=1_000)).values():
                found |= {record.value or b"" for record in records}
                left -= len(records)
        await consumer.stop()
        await broker.close()
        return found


class _OverLimit(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        body = b'{"__type": "com.amazonaws.sqs#OverLimit", "message": "the queue is full"}'
        self.send_response(403)
        self.send_header("Content-Type", "application/x-amz-json-1.0")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: requests come several times a second."""


class SqsServer(BrokerServer):
    name, pid_files = "sqs", "sqs/sqs.pid"
    queue = "jobs__default__default__default"

    @property
    def url(self) -> str:
        address = f"http://127.0.0.1:{self.proxies[0].port}"
        return f"sqs://key:secret@local?endpoint={address}&pulse=300ms&visibility=4s"

    def ports(self) -> list[int]:
        found = re.search(r"bind-port = (\d+)", (self.folder / "sqs" / "elasticmq.conf").read_text())
        assert found is not None
        return [int(found[1])]

    def fill(self, *, full: bool) -> None:
        """Every request is refused, as AWS does beyond the limits of a queue."""
        if full:
            self._refusing = ThreadingHTTPServer(("127.0.0.1", 0), _OverLimit)
            threading.Thread(target=self._refusing.serve_forever, daemon=True).start()
            self._lead_to(self._refusing.server_port)
        else:
            self._lead_to(self.ports()[0])
            self._refusing.shutdown()
            self._refusing.server_close()

    def _lead_to(self, port: int) -> None:
        self.proxies[0].point_to(port)
        self.proxies[0].cut()

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
