"""The broker on Redis: what its keys say, in what order runs leave, and what it does where Redis has trouble."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from redis import Redis
from redis_server import Start

from mainspring.adapter import AdapterContext
from mainspring.broker import Notice, Subscription
from mainspring.brokers.redis import TIMEOUT, RedisBroker
from mainspring.core.instants import HOUR, SECOND
from mainspring.core.model import Worker
from mainspring.core.runs.priority import Ordering
from mainspring.drivers.redis.client import read_url
from mainspring.errors import BrokerUnavailable
from mainspring.settings import Settings
from mainspring.testing.servers.process import free_port

WORKER = Worker(id="host:1:abc", tasks=("encode",))
NOW = 1_800_000_000 * SECOND
LINE = "job_queue:{default/default/default}"


@asynccontextmanager
async def opened(url: str, ordering: Ordering = "strict") -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(url + "?timeout=20s", AdapterContext(Settings(ordering=ordering)))
    try:
        yield broker
    finally:
        await broker.close()


def notice(run_id: str, priority: int = 5, due_at: int = NOW, token: int = 0) -> Notice:
    return Notice(run_id, token, "default", "default", "default", priority, due_at)


async def taking(broker: RedisBroker) -> Subscription:
    """A worker that asks, and is not given anything unasked."""
    return await broker.subscribe(WORKER, lambda: None)


async def ids(subscription: Subscription, limit: int = 100) -> list[str]:
    return [each.run_id for each in await subscription.receive(limit)]


async def test_the_keys_say_what_waits_and_which_worker_has_what(start: Start) -> None:
    server = start()
    async with opened(server.url) as broker:
        await broker.publish([notice("a", 1), notice("b", 2)])
        subscription = await taking(broker)
        with Redis(port=server.port, decode_responses=True) as client:
            assert client.zrange(LINE, 0, -1) == ["a:0", "b:0"]
            deliveries = await subscription.receive(1)
            assert client.zrange(LINE, 0, -1) == ["b:0"]
            assert client.zrange(f"{LINE}:taken", 0, -1) == ["a:0"]
            assert client.hget(f"{LINE}:owners", "a:0").endswith(f" {WORKER.id}")
            await subscription.ack(deliveries)
            assert client.exists(f"{LINE}:taken", f"{LINE}:owners") == 0


async def test_what_is_under_way_to_a_worker_is_not_put_in_line_again(start: Start) -> None:
    async with opened(start().url) as broker:
        await broker.publish([notice("a")])
        subscription = await taking(broker)
        deliveries = await subscription.receive(10)
        await broker.publish([notice("a"), notice("a", token=1)])
        assert [(each.run_id, each.token) for each in await subscription.receive(10)] == [("a", 1)]
        await subscription.ack(deliveries)
        await broker.publish([notice("a")])
        assert await ids(await taking(broker)) == ["a"]


async def test_in_strict_order_priority_alone_decides_and_then_the_due_instant(start: Start) -> None:
    async with opened(start().url) as broker:
        await broker.publish(
            [notice("low", 10, NOW - 24 * HOUR), notice("late", 1, NOW), notice("soon", 1, NOW - 1000)]
        )
        assert await ids(await taking(broker)) == ["soon", "late", "low"]


async def test_in_ageing_order_a_run_that_waited_long_enough_is_before_a_better_one(start: Start) -> None:
    async with opened(start().url, "ageing") as broker:
        old, new = notice("old", 2, NOW - 1001 * SECOND), notice("new", 1, NOW)
        young = notice("young", 2, NOW - 999 * SECOND)
        await broker.publish([young, new, old])
        assert await ids(await taking(broker)) == ["old", "new", "young"]


async def test_many_at_once_leave_in_order(start: Start) -> None:
    async with opened(start().url) as broker:
        await broker.publish([notice(f"{n:05d}", 3, NOW + n * 100) for n in range(3_000)])
        subscription = await taking(broker)
        found = [each for _ in range(3) for each in await ids(subscription, 1_000)]
        assert found == [f"{n:05d}" for n in range(3_000)]


async def test_a_waiting_worker_is_notified_of_what_arrives(start: Start) -> None:
    server = start()
    async with opened(server.url) as broker, opened(server.url) as publisher:
        reported = asyncio.Event()
        subscription = await broker.subscribe(WORKER, reported.set)
        await asyncio.wait_for(reported.wait(), 20)  # It listens.
        with Redis(port=server.port) as client:
            before = client.info("commandstats").get("cmdstat_evalsha", {"calls": 0})["calls"]
            for number in range(5):
                reported.clear()
                await publisher.publish([notice(str(number))])
                await asyncio.wait_for(reported.wait(), 20)
            after = client.info("commandstats")["cmdstat_evalsha"]["calls"]
        assert after - before == 5
        await subscription.close()


async def test_a_waiting_worker_hears_again_after_a_restart(start: Start) -> None:
    server = start()
    async with opened(server.url) as broker:
        reported = asyncio.Event()
        await broker.subscribe(WORKER, reported.set)
        await asyncio.wait_for(reported.wait(), 20)
        server.kill()
        server.start()
        reported.clear()
        async with asyncio.timeout(60):
            while not reported.is_set():
                await broker.publish([notice(str(asyncio.get_running_loop().time()))])
                await asyncio.sleep(0.05)


@pytest.mark.parametrize("trouble", ["killed", "paused", "full", "read-only"])
async def test_a_redis_that_cannot_is_reported_and_loses_nothing_that_it_had(start: Start, trouble: str) -> None:
    server, master = start(), start()
    broker = RedisBroker(server.url + "?timeout=300ms", AdapterContext())
    subscription = await taking(broker)
    await broker.publish([notice("a")])
    with Redis(port=server.port) as client:
        match trouble:
            case "killed":
                server.kill()
            case "paused":
                server.pause()
            case "full":
                client.config_set("maxmemory", 1)
            case "read-only":
                client.execute_command("REPLICAOF", "127.0.0.1", master.port)
        for call in (subscription.receive(10), broker.publish([notice("b")])):
            with pytest.raises(BrokerUnavailable):
                await asyncio.wait_for(call, 20)
        if trouble == "paused":
            server.resume()
        if trouble == "full":
            client.config_set("maxmemory", 0)
            assert "a" in await ids(await taking(broker))
    await broker.close()


async def test_on_a_cluster(start: Start) -> None:
    server = start("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with Redis(port=server.port) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        async with asyncio.timeout(60):
            while True:
                if b"cluster_state:ok" in client.execute_command("CLUSTER", "INFO"):
                    break
                await asyncio.sleep(0.05)
    async with opened(server.url.replace("redis://", "redis+cluster://")) as broker:
        await broker.publish([notice("a", 2), notice("b", 1)])
        subscription = await taking(broker)
        deliveries = await subscription.receive(10)
        assert [each.run_id for each in deliveries] == ["b", "a"]
        await subscription.release(deliveries[:1])
        await subscription.ack(deliveries[1:])
        assert await ids(await taking(broker)) == ["b"]


async def test_installations_with_their_own_prefix_do_not_meet(start: Start) -> None:
    server = start()
    one, other = (RedisBroker(f"{server.url}?prefix={prefix}:&timeout=20s", AdapterContext()) for prefix in "ab")
    await one.publish([notice("a")])
    assert await ids(await taking(other)) == []
    assert await ids(await taking(one)) == ["a"]
    await one.close()
    await other.close()


async def test_a_ping_says_whether_it_works_and_can_be_written_to(start: Start) -> None:
    server = start()
    async with opened(server.url) as broker:
        await broker.publish([notice("a")])
        await broker.ping()
        assert await ids(await taking(broker)) == ["a"]
        with Redis(port=server.port) as client:
            client.config_set("maxmemory", "1")
            with pytest.raises(BrokerUnavailable, match="memory"):
                await broker.ping()
            client.config_set("maxmemory", "0")
            client.replicaof("127.0.0.1", str(free_port()))
            with pytest.raises(BrokerUnavailable, match=r"(?i)read.?only"):
                await broker.ping()
            client.replicaof("NO", "ONE")
        await broker.ping()
        server.kill()
        with pytest.raises(BrokerUnavailable):
            await broker.ping()


async def test_each_use_has_a_connection_for_commands_and_one_to_listen(start: Start) -> None:
    """However much is asked for at once: commands of one loop share a connection."""
    server = start()
    async with opened(server.url) as broker:
        subscription = await taking(broker)
        await asyncio.gather(*(broker.publish([notice(f"run-{number}")]) for number in range(200)))
        await asyncio.gather(*(subscription.receive(1) for _ in range(50)))
        with Redis(port=server.port) as admin:
            assert len(admin.client_list()) - 1 <= 2
        await subscription.close()


async def test_a_server_that_hangs_is_given_up_after_the_default_timeouts(start: Start) -> None:
    assert read_url("redis://a", "broker", TIMEOUT).timeout_s == 0.25
    assert read_url("redis://a", "lease").timeout_s == 1.0
    server = start()
    broker = RedisBroker(f"{server.url}?timeout=20s", AdapterContext())
    await broker.ping()
    await broker.close()
    server.pause()
    broker = RedisBroker(server.url, AdapterContext())
    try:
        began = time.monotonic()
        with pytest.raises(BrokerUnavailable):
            await broker.ping()
        assert time.monotonic() - began >= 0.2
    finally:
        server.resume()
        await broker.close()
