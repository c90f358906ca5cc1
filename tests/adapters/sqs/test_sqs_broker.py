"""SQS under the broker's suite: on ElasticMQ with standard and FIFO queues, and on moto.

Two servers, so that one server's habits are not taken for the protocol."""

from __future__ import annotations

import secrets
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from broker_servers import find_server

from mainspring.adapter import AdapterContext
from mainspring.broker import Subscription
from mainspring.brokers.sqs import SqsBroker, backoff_s
from mainspring.conformance import BrokerConformance
from mainspring.conformance.broker import Elapse
from mainspring.core.instants import Duration
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock

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


@pytest.fixture(scope="module")
def moto() -> Iterator[str]:
    """The URL of a moto server."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    program = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(program, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 30
    while True:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        assert time.monotonic() < deadline
        time.sleep(0.05)
    yield f"sqs://key:secret@us-east-1?endpoint=http://127.0.0.1:{port}"
    server.kill()
    server.wait()


class TestMoto(SqsConformance):
    quiet_s = 0.6

    @pytest.fixture
    async def broker(self, moto: str) -> AsyncIterator[SqsBroker]:
        async for broker in open_broker(moto):
            yield broker


def test_the_backoff_doubles_from_30_s_to_900_s() -> None:
    assert [backoff_s(receives) for receives in (1, 2, 3, 4, 5, 6, 7, 50)] == [0, 30, 60, 120, 240, 480, 900, 900]
