"""Kafka under the broker's suite."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer
from aiokafka.client import AIOKafkaClient

from broker_servers import find_server
from mainspring import Mainspring
from mainspring.adapter import AdapterContext
from mainspring.broker import Notice, Subscription
from mainspring.brokers.kafka import KafkaBroker, _KafkaSubscription
from mainspring.clock import SystemClock
from mainspring.conformance import BrokerConformance
from mainspring.conformance.broker import Elapse
from mainspring.conformance.store.samples import TTL, a_run, a_worker, submit
from mainspring.core.instants import Duration
from mainspring.core.load.scaling import ScalingPolicy
from mainspring.drivers.kafka.link import out_of_sync
from mainspring.operations.operations import Operations
from mainspring.ops.scaling.autoscaler import Autoscaler, Scope
from mainspring.ops.scaling.fleet import Fleet
from mainspring.services.worker.broker_source import BrokerSource
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock

pytestmark = pytest.mark.brokers


async def test_offsets_may_be_committed_after_the_work(clock: ManualClock, tmp_path: Path) -> None:
    url = f"{find_server('KAFKA')}?prefix={secrets.token_hex(4)}.&timeout=10s&partitions=1&commit=after_work"
    broker, store = KafkaBroker(url, AdapterContext()), SqliteStore(str(tmp_path / "test.db"), clock)
    run, worker = a_run(clock), a_worker()
    await submit(store, run)
    await broker.publish((await store.due_runs(1))[0])
    source, arrived = BrokerSource(store, broker, SystemClock(), "w"), asyncio.Event()
    source.start(worker, arrived.set)
    async with asyncio.timeout(60):
        while not (claims := (await source._receive(worker, 1, TTL))[0] if source.delivers() else []):
            await asyncio.sleep(0.05)
        assert sum(each.waiting for each in await broker.depth()) == 1
        source.ended([(each.run_id, each.token) for each in claims])
        while any(each.waiting for each in await broker.depth()):
            await asyncio.sleep(0.05)
    await source.close()
    _, admin = await (await broker._publishers.get()).ready()
    await admin.delete_topics(list(broker._layout.names()))
    await broker.close()
    await store.close()


async def test_the_autoscaler_follows_the_lag(tmp_path: Path) -> None:
    url = f"{find_server('KAFKA')}?prefix={secrets.token_hex(4)}.&timeout=10s&partitions=2"
    policy = ScalingPolicy(maximum=9, depth_per_worker=4, utilisation_percent=None, up_percent=900, up_window=0)
    async with Mainspring(f"sqlite:///{tmp_path / 'a.db'}") as app:
        store, broker, fleet = await app.open(), KafkaBroker(url, AdapterContext()), Fleet("lag", "here", ["true"], {})
        scope, workers = Scope("default", ("default",), ("default",)), Operations(app).workers
        scaler = Autoscaler(
            *(app, workers, fleet, policy, scope), owner="test", interval_s=1.0, on_step=_ignore, on_trouble=_ignore
        )
        for _ in range(12):
            await app.submit("work", {})
        await broker.publish((await store.due_runs(12))[0])
        assert sum(each.waiting for each in await broker.depth()) == 12
        assert ((step := await scaler.step()).depth, step.after) == (12, 3)
        worker = a_worker(tasks=("work",))
        source = BrokerSource(store, broker, SystemClock(), "w")
        source.start(worker, lambda: None)
        async with asyncio.timeout(60):
            claimed = 0
            while claimed < 12:
                claimed += len(await source._receive(worker, 12, TTL)) if source.delivers() else 0
                await asyncio.sleep(0.05)
            while any(each.waiting for each in await broker.depth()):
                # Kafka delivers again what was not committed before a rebalance.
                await source._receive(worker, 12, TTL)
                await asyncio.sleep(0.05)
        assert (await scaler.step()).depth == 0
        async with asyncio.timeout(60):
            while fleet.children:
                fleet.reap()
                await asyncio.sleep(0.01)
        await source.close()
        _, admin = await (await broker._publishers.get()).ready()
        await admin.delete_topics(list(broker._layout.names()))
        await broker.close()


def _ignore(_: object) -> None:
    return None


async def test_a_worker_never_asks_about_all_topics_of_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a cluster with thousands of topics the answer would take all of the worker's time."""
    asked, about_all, real = 0, False, AIOKafkaClient._metadata_update

    async def count(client: Any, cluster: Any, topics: Any) -> Any:
        nonlocal asked, about_all
        asked, about_all = asked + 1, about_all or not topics
        return await real(client, cluster, topics)

    broker = KafkaBroker(f"{find_server('KAFKA')}?prefix={secrets.token_hex(4)}.&timeout=10s", AdapterContext())
    subscription = await broker.subscribe(a_worker(), lambda: None)
    monkeypatch.setattr(AIOKafkaClient, "_metadata_update", count)
    async with asyncio.timeout(60):
        while asked < 3:  # The library has no event for it.
            await asyncio.sleep(0.05)
    assert not about_all
    assert await subscription.receive(1) == []  # It raises if the server did not answer.
    await subscription.close()
    _, admin = await (await broker._publishers.get()).ready()
    await admin.delete_topics(list(broker._layout.names()))
    await broker.close()


async def test_runs_without_a_key_go_to_all_partitions_in_turn(clock: ManualClock) -> None:
    url = f"{find_server('KAFKA')}?prefix={secrets.token_hex(4)}.&timeout=10s&partitions=3"
    broker, run = KafkaBroker(url, AdapterContext()), a_run(clock)
    place = (run.namespace, run.queue, run.region, run.priority, run.due_at)
    await broker.publish([Notice(f"r{number}", 0, *place) for number in range(9)])
    await broker.publish([Notice(f"k{number}", 0, *place, "one key") for number in range(5)])
    assert sorted(each.waiting for each in await broker.depth()) == [3, 3, 8]
    _, admin = await (await broker._publishers.get()).ready()
    await admin.delete_topics(list(broker._layout.names()))
    await broker.close()


async def test_closing_ends_also_if_the_library_swallows_a_cancellation(monkeypatch: pytest.MonkeyPatch) -> None:
    broker = KafkaBroker(f"{find_server('KAFKA')}?prefix={secrets.token_hex(4)}.&timeout=10s", AdapterContext())
    getmany, swallowed = AIOKafkaConsumer.getmany, asyncio.Event()

    async def swallow(*args: Any, **options: Any) -> Any:
        try:
            return await getmany(*args, **options)
        except asyncio.CancelledError:
            if swallowed.is_set():
                raise
            swallowed.set()
            return {}

    monkeypatch.setattr(AIOKafkaConsumer, "getmany", swallow)
    subscription = await broker.subscribe(a_worker(), lambda: None)
    assert isinstance(subscription, _KafkaSubscription)
    await subscription.receive(1)
    async with asyncio.timeout(30):
        while subscription._consumer is None or not subscription._consumer.assignment():  # It polls from then on.
            await asyncio.sleep(0.05)
        await subscription.close()
    assert swallowed.is_set()
    _, admin = await (await broker._publishers.get()).ready()
    await admin.delete_topics(list(broker._layout.names()))
    await broker.close()


class TestKafka(BrokerConformance):
    quiet_s = 0.7
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

    @pytest.fixture
    async def broker(self) -> AsyncIterator[KafkaBroker]:
        """Its topics are its own, and deleted in the end."""
        url = f"{find_server('KAFKA')}?prefix={secrets.token_hex(4)}.&timeout=10s&partitions=3"
        broker = KafkaBroker(url, AdapterContext())
        yield broker
        _, admin = await (await broker._publishers.get()).ready()
        await admin.delete_topics(list(broker._layout.names()))
        await broker.close()

    async def kill(self, subscription: Subscription) -> None:
        """A group excludes a member that is silent; its partitions go to others."""
        await subscription.close()


def test_partitions_whose_replicas_are_not_in_sync_are_counted() -> None:
    good, behind = {"replicas": [1, 2], "isr": [2, 1]}, {"replicas": [1, 2], "isr": [1]}
    assert out_of_sync([{"partitions": [good]}, {"partitions": []}]) == ""
    assert out_of_sync([{"partitions": [good, behind]}]).startswith("1 of 2 partitions")
