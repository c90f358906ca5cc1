"""RabbitMQ under the broker's suite, with classic and with quorum queues."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from operator import methodcaller
from pathlib import Path

import pytest

from broker_servers import find_server
from mainspring.adapter import AdapterContext
from mainspring.broker import Subscription
from mainspring.brokers.rabbitmq import RabbitMqBroker, _RabbitMqSubscription
from mainspring.conformance import BrokerConformance
from mainspring.conformance.broker import Elapse
from mainspring.core.instants import Duration
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock

pytestmark = pytest.mark.brokers


async def open_broker(options: str) -> AsyncIterator[RabbitMqBroker]:
    """A broker whose queues are its own, and deleted in the end."""
    url = f"{find_server('RABBITMQ')}?prefix={secrets.token_hex(4)}.&timeout=10s{options}"
    broker = RabbitMqBroker(url, AdapterContext())
    yield broker
    publisher = await broker._publishers.get()
    for name in broker._layout.names():
        await publisher.call(methodcaller("queue_delete", name))
    await broker.close()


class RabbitMqConformance(BrokerConformance):
    """What both kinds of queues share."""

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
        """RabbitMQ judges by the connection."""
        assert isinstance(subscription, _RabbitMqSubscription)
        await subscription.close()


class TestClassicQueues(RabbitMqConformance):
    @pytest.fixture
    async def broker(self) -> AsyncIterator[RabbitMqBroker]:
        async for broker in open_broker(""):
            yield broker


class TestQuorumQueues(RabbitMqConformance):
    @pytest.fixture
    async def broker(self) -> AsyncIterator[RabbitMqBroker]:
        async for broker in open_broker("&queues=quorum"):
            yield broker
