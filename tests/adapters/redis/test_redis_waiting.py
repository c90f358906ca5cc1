"""An idle worker receives what arrives without asking for it: one worker, and no other."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from redis import Redis
from redis_server import Start

from mainspring.adapter import AdapterContext
from mainspring.broker import Notice, Subscription
from mainspring.brokers import redis as broker_module
from mainspring.brokers.redis import RedisBroker
from mainspring.core.instants import HOUR, SECOND
from mainspring.core.model import Worker
from mainspring.core.runs.priority import Ordering
from mainspring.drivers.redis import connection as redis_wire
from mainspring.settings import Settings
from mainspring.testing.servers.process import free_port
from mainspring.testing.servers.redis import RedisServer

NOW = 1_800_000_000 * SECOND
LINE = "job_queue:{default/default/default}"
PATIENCE_S = 20.0


def notice(run_id: str, priority: int = 5, due_at: int = NOW) -> Notice:
    return Notice(run_id, 0, "default", "default", "default", priority, due_at)


class Waiting:
    """A worker with a way of its own to Redis."""

    def __init__(self, url: str, name: str, ordering: Ordering = "strict") -> None:
        self.row = Worker(id=name, tasks=("encode",))
        self.broker = RedisBroker(url, AdapterContext(Settings(ordering=ordering)))
        self.notified = asyncio.Event()

    subscription: Subscription

    async def listen(self) -> None:
        """It returns when messages are heard."""
        self.subscription = await self.broker.subscribe(self.row, self.notified.set)
        await self.is_told()

    async def is_told(self) -> None:
        await asyncio.wait_for(self.notified.wait(), PATIENCE_S)
        self.notified.clear()

    async def ask(self, limit: int = 10) -> list[str]:
        return [each.run_id for each in await self.subscription.receive(limit)]


@asynccontextmanager
async def waiting(server: RedisServer, name: str, ordering: Ordering = "strict") -> AsyncIterator[Waiting]:
    """A worker that has asked in vain."""
    worker = Waiting(server.url + "?timeout=20s", name, ordering)
    try:
        await worker.listen()
        assert await worker.ask() == []
        yield worker
    finally:
        await worker.broker.close()


@asynccontextmanager
async def publisher(server: RedisServer, ordering: Ordering = "strict") -> AsyncIterator[RedisBroker]:
    broker = RedisBroker(server.url + "?timeout=20s", AdapterContext(Settings(ordering=ordering)))
    yield broker
    await broker.close()


def scripts_run(client: Redis) -> int:
    stats: dict[str, Any] = client.info("commandstats")
    return sum(stats.get(f"cmdstat_{each}", {"calls": 0})["calls"] for each in ("evalsha", "eval"))


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No worker returns what it received, however busy the machine is."""
    monkeypatch.setattr(broker_module, "KEPT_S", 3_600.0)
    monkeypatch.setattr(broker_module, "HANDED", HOUR)
    monkeypatch.setattr(broker_module, "WAITS", HOUR)


@pytest.mark.usefixtures("patient")
async def test_what_arrives_is_with_the_worker_that_waits_before_it_asks(start: Start) -> None:
    server = start()
    async with publisher(server) as source, waiting(server, "w") as worker:
        with Redis(port=server.port, decode_responses=True) as client:
            before = scripts_run(client)
            await source.publish([notice("a")])
            await worker.is_told()
            assert client.zrange(LINE, 0, -1) == []
            assert client.zrange(f"{LINE}:taken", 0, -1) == ["a:0"]
            assert client.hget(f"{LINE}:owners", "a:0").endswith(" w")
            deliveries = await worker.subscription.receive(10)
            assert [(each.run_id, each.token) for each in deliveries] == [("a", 0)]
            told_once = 2  # `EVALSHA` of what the server did not know yet, and `EVAL`.
            assert scripts_run(client) - before <= told_once
            await worker.subscription.ack(deliveries)
            assert client.exists(f"{LINE}:taken", f"{LINE}:owners") == 0


@pytest.mark.usefixtures("patient")
async def test_each_waiting_worker_gets_one_longest_wait_first_and_the_rest_stays_in_line(
    start: Start,
) -> None:
    server = start()
    async with publisher(server) as source, waiting(server, "first") as first:
        with Redis(port=server.port) as client:
            since = client.zscore(f"{LINE}:waiting", "first")
            assert since is not None
            client.zadd(f"{LINE}:waiting", {"first": since - 1})  # Surely longer than the next one.
        async with waiting(server, "second") as second:
            await source.publish([notice("a", 1), notice("b", 2), notice("c", 3)])
            await first.is_told()
            await second.is_told()
            assert await first.ask(1) == ["a"]
            assert await second.ask(1) == ["b"]
            assert await second.ask() == ["c"]


@pytest.mark.usefixtures("patient")
async def test_a_worker_that_was_given_one_while_more_are_in_line_takes_them_with_it(start: Start) -> None:
    server = start()
    async with publisher(server) as source, waiting(server, "w") as worker:
        await source.publish([notice("a", 1), notice("b", 2), notice("c", 3)])
        await worker.is_told()
        assert await worker.ask() == ["a", "b", "c"]


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize(("ordering", "best"), [("strict", "new"), ("ageing", "old")])
async def test_the_best_in_line_is_given(start: Start, ordering: Ordering, best: str) -> None:
    server = start()
    old, new = notice("old", 2, NOW - 1001 * SECOND), notice("new", 1, NOW)
    async with publisher(server, ordering) as source, waiting(server, "w", ordering) as worker:
        await source.publish([old, new])
        await worker.is_told()
        assert await worker.ask(1) == [best]


@pytest.mark.usefixtures("patient")
async def test_a_worker_that_died_while_it_waited_is_given_nothing(start: Start) -> None:
    server = start()
    async with publisher(server) as source, waiting(server, "other") as other:
        async with waiting(server, "dead"):
            with Redis(port=server.port) as client:
                client.zadd(f"{LINE}:waiting", {"dead": 1e15})  # However long ago it asked.
                client.zrem(f"{LINE}:waiting", "other")
        await source.publish([notice("a")])
        await other.is_told()
        assert await other.ask() == ["a"]


async def test_a_worker_that_has_not_polled_for_long_is_given_nothing(start: Start) -> None:
    server = start()
    async with publisher(server) as source, waiting(server, "still") as still:
        with Redis(port=server.port) as client:
            client.zadd(f"{LINE}:waiting", {"still": 1})
            await source.publish([notice("a")])
            await still.is_told()  # As every worker of the queue.
            assert client.zrange(LINE, 0, -1) == [b"a:0"]
            assert client.zcard(f"{LINE}:waiting") == 0


async def test_a_worker_that_took_something_waits_no_more(start: Start) -> None:
    server = start()
    async with publisher(server) as source, waiting(server, "w") as worker:
        with Redis(port=server.port) as client:
            client.delete(f"{LINE}:waiting")
            await source.publish([notice("a")])
            client.zadd(f"{LINE}:waiting", {"w": 1e15})
            assert await worker.ask() == ["a"]
            assert client.zcard(f"{LINE}:waiting") == 0


async def test_a_worker_that_takes_some_priorities_only_is_not_given_others(start: Start) -> None:
    server = start()
    async with publisher(server) as source, waiting(server, "w") as worker:
        with Redis(port=server.port) as client:
            client.delete(f"{LINE}:waiting")
            assert await worker.subscription.receive(10, (1, 2)) == []
            assert client.zcard(f"{LINE}:waiting") == 0
            await source.publish([notice("a", 5)])
            await worker.is_told()
            assert await worker.subscription.receive(10, (1, 2)) == []
            assert await worker.ask() == ["a"]


@pytest.mark.parametrize("how", ["later", "closing"])
async def test_what_was_given_to_a_worker_that_does_not_ask_for_it_comes_to_another(
    start: Start, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "HANDED", HOUR)
    monkeypatch.setattr(broker_module, "WAITS", HOUR)
    monkeypatch.setattr(broker_module, "KEPT_S", 0.01 if how == "later" else 3_600.0)
    server = start()
    async with publisher(server) as source, waiting(server, "other") as other:
        with Redis(port=server.port) as client:
            client.delete(f"{LINE}:waiting")
        async with waiting(server, "busy") as busy:
            await source.publish([notice("a")])
            await busy.is_told()
            if how == "later":
                await other.is_told()
        if how == "closing":
            await other.is_told()
        assert await other.ask() == ["a"]


async def test_what_was_given_just_now_is_kept_though_something_else_was_given_long_ago(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = start()
    async with publisher(server) as source, waiting(server, "w") as worker:
        with Redis(port=server.port) as client:
            monkeypatch.setattr(broker_module, "KEPT_S", 0.5)
            await source.publish([notice("a")])
            await worker.is_told()
            assert await worker.ask() == ["a"]
            assert await worker.ask() == []
            monkeypatch.setattr(broker_module, "KEPT_S", 3_600.0)
            before = scripts_run(client)
            await source.publish([notice("b")])
            await asyncio.sleep(0.6)
            assert scripts_run(client) - before == 1
            assert await worker.ask() == ["b"]


async def test_what_was_given_to_a_stalled_worker_is_in_line_again_after_a_while(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_module, "KEPT_S", 3_600.0)
    server = start()
    async with publisher(server) as source, waiting(server, "still") as still, waiting(server, "other") as other:
        with Redis(port=server.port) as client:
            client.zrem(f"{LINE}:waiting", "other")
            client.zadd(f"{LINE}:waiting", {"still": 1e15})
        await source.publish([notice("a")])
        await still.is_told()
        async with asyncio.timeout(60):
            while await other.ask() != ["a"]:
                await asyncio.sleep(0.05)


async def test_a_listener_notices_that_the_server_does_not_answer(
    start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_wire, "PING_S", 0.2)
    server = start()
    async with waiting(server, "w") as worker:
        server.pause()
        await worker.is_told()  # What was said meanwhile is unknown.
        server.resume()
        await worker.is_told()
        assert await worker.ask() == []


async def test_no_worker_waits_on_a_cluster_and_all_are_notified(start: Start) -> None:
    server = start("--cluster-enabled", "yes", "--cluster-port", str(free_port()))
    with Redis(port=server.port) as client:
        client.execute_command("CLUSTER", "ADDSLOTSRANGE", 0, 16383)
        async with asyncio.timeout(60):
            while b"cluster_state:ok" not in client.execute_command("CLUSTER", "INFO"):
                await asyncio.sleep(0.05)
        worker = Waiting(server.url.replace("redis://", "redis+cluster://") + "?timeout=20s", "w")
        await worker.listen()
        assert await worker.ask() == []
        assert client.zcard(f"{LINE}:waiting") == 0
        await worker.broker.publish([notice("a")])
        await worker.is_told()
        assert await worker.ask() == ["a"]
        await worker.broker.close()
