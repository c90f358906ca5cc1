"""SQS under the broker's suite: on ElasticMQ with standard and FIFO queues, and on moto.

Two servers, so that one server's habits are not taken for the protocol."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from broker_servers import find_server
from certificates import make_certificates
from mainspring.adapter import AdapterContext
from mainspring.broker import Subscription
from mainspring.brokers.sqs import SqsBroker, backoff_s
from mainspring.conformance import BrokerConformance
from mainspring.conformance.broker import Elapse
from mainspring.core.instants import Duration
from mainspring.errors import BrokerUnavailable
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock
from mainspring.testing.servers.process import free_port

pytestmark = pytest.mark.brokers


async def open_broker(url: str, options: str = "") -> AsyncIterator[SqsBroker]:
    """A broker whose queues are its own, and deleted in the end."""
    broker = SqsBroker(f"{url}&prefix={secrets.token_hex(4)}-&timeout=10s{options}", AdapterContext())
    yield broker
    client = await broker._clients.get()
    for name in list(client._urls):
        await client.on_queue(name, "delete_queue")
    await broker.close()


class SqsConformance(BrokerConformance):
    """What all servers and kinds of queues share."""

    quiet_s = 0.3
    tells_when_sent = True

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(str(tmp_path / "test.db"), clock)
        yield store
        await store.close()

    @pytest.fixture
    def elapse(self, clock: ManualClock) -> Elapse:
        async def pass_on(duration: Duration) -> None:
            clock.advance(duration)

        return pass_on

    async def kill(self, subscription: Subscription) -> None:
        """Its messages are visible again after their timeout: here, at once."""
        await subscription.close()


class TestElasticMq(SqsConformance):
    @pytest.fixture
    async def broker(self) -> AsyncIterator[SqsBroker]:
        async for broker in open_broker(find_server("SQS")):
            yield broker


class TestElasticMqFifo(SqsConformance):
    @pytest.fixture
    async def broker(self) -> AsyncIterator[SqsBroker]:
        async for broker in open_broker(find_server("SQS"), "&fifo=yes"):
            yield broker


@contextmanager
def moto_server(*options: str) -> Iterator[int]:
    """The port of a moto server."""
    port = free_port()
    program = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port), *options]
    server = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex(("127.0.0.1", port)) == 0:
                    break
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield port
    finally:
        server.kill()
        server.wait()


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """The URL of a moto server."""
    with moto_server() as port:
        yield f"sqs://key:secret@us-east-1?endpoint=http://127.0.0.1:{port}"


async def test_a_server_with_tls_is_used_if_its_certificate_is_trusted(tmp_path: Path) -> None:
    authority, own = make_certificates(tmp_path, "localhost", "127.0.0.1")
    with moto_server("--ssl", "--ssl-cert", str(own), "--ssl-key", str(own)) as port:
        url = f"sqs://key:secret@us-east-1?timeout=20s&endpoint=https://127.0.0.1:{port}"
        for options in (f"&ssl_ca_certs={authority}", "&ssl_cert_reqs=none"):
            trusting = SqsBroker(url + options, AdapterContext())
            await trusting.ping()
            await trusting.close()
        wary = SqsBroker(url, AdapterContext())
        with pytest.raises(BrokerUnavailable, match=r"(?i)certificate"):
            await wary.ping()
        await wary.close()


class TestMoto(SqsConformance):
    quiet_s = 0.6

    @pytest.fixture
    async def broker(self, moto: str) -> AsyncIterator[SqsBroker]:
        async for broker in open_broker(moto):
            yield broker


def test_the_backoff_doubles_from_30_s_to_900_s() -> None:
    assert [backoff_s(receives) for receives in (1, 2, 3, 4, 5, 6, 7, 50)] == [0, 30, 60, 120, 240, 480, 900, 900]
