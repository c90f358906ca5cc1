"""What a broker's adapter publishes, receives and acknowledges, and how long a message takes, without a store. Beside
it the bare client, in the same process.

A latency is the time from the call of publish to the arrival of the message, at 100 messages a second.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import NamedTuple

from bench.brokers.bare import BARE, BareClient
from bench.brokers.servers import BrokerServer
from bench.harness.script import pace
from mainspring.adapter import AdapterContext, open_adapter
from mainspring.broker import Broker, Notice, Subscription
from mainspring.core.model import Worker

BATCH = 500
TAKEN = 100
PER_SECOND = 100
LIMIT_S = 120
PATIENCE_S = 10


class Carried(NamedTuple):
    """Messages in a second, and the milliseconds of each at a pace."""

    published: float
    received: float
    samples_ms: list[float]


async def carry_by_adapter(server: BrokerServer, count: int, seconds: float) -> Carried:
    """Publish by 500, receive and acknowledge by 100."""
    async with _broker(server) as broker:
        published, received = await _rates(broker, count)
    async with _broker(server) as broker:
        return Carried(published, received, await _latencies(broker, seconds))


async def carry_by_client(server: BrokerServer, count: int, seconds: float) -> Carried:
    """The same by the client library alone."""
    async with _client(server) as client:
        began = time.perf_counter()
        await client.publish(count)
        published = count / (time.perf_counter() - began)
        received = await _consume(client, count)
    return Carried(published, received, await latencies_of_client(server, seconds))


async def latencies_of_client(server: BrokerServer, seconds: float) -> list[float]:
    """Milliseconds of each message of the client library alone, at 100 a second."""
    async with _client(server) as client:
        arrived = asyncio.Event()
        consuming = asyncio.ensure_future(client.consume(arrived.set))

        async def send() -> None:
            await client.publish(1)

        await _await_first(send, arrived)
        samples = await _timed(send, arrived, seconds)
        await _stop(consuming)
    return samples


@asynccontextmanager
async def _client(server: BrokerServer) -> AsyncIterator[BareClient]:
    client = BARE[server.name](server)
    await client.open()
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def _broker(server: BrokerServer) -> AsyncIterator[Broker]:
    url = server.own(f"bench{secrets.token_hex(3)}-", timeout="10s")
    broker: Broker = open_adapter("broker", url, AdapterContext())
    try:
        yield broker
    finally:
        await broker.close()


def _notices(count: int) -> list[Notice]:
    """Notices of runs that do not exist: the store is no part of this."""
    return [Notice(secrets.token_hex(8), 0, "default", "default", "default", 5, 0) for _ in range(count)]


async def _rates(broker: Broker, count: int) -> tuple[float, float]:
    wanted = _notices(count)
    await broker.publish(wanted[:1])
    began = time.perf_counter()
    for start in range(1, count, BATCH):
        await broker.publish(wanted[start : start + BATCH])
    published = (count - 1) / (time.perf_counter() - began)
    arrived = asyncio.Event()
    subscription = await broker.subscribe(Worker(id="bench"), arrived.set)
    received, first_at = 0, 0.0
    async with asyncio.timeout(LIMIT_S):
        while received < count:
            arrived.clear()
            some = await subscription.receive(TAKEN)
            if some:
                first_at = first_at or time.perf_counter()
                received += len(some)
                await subscription.ack(some)
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(arrived.wait(), 0.05)
    rate = received / (time.perf_counter() - first_at)
    await subscription.close()
    return published, rate


async def _latencies(broker: Broker, seconds: float) -> list[float]:
    arrived = asyncio.Event()
    subscription = await broker.subscribe(Worker(id="bench"), arrived.set)
    try:
        return await _latencies_of(broker, subscription, arrived, seconds)
    finally:
        await subscription.close()


async def _latencies_of(
    broker: Broker, subscription: Subscription, arrived: asyncio.Event, seconds: float
) -> list[float]:
    async def send() -> None:
        await subscription.ack(await subscription.receive(10))  # The one before, and to ask for the next.
        await broker.publish(_notices(1))

    await _await_first(send, arrived)
    return await _timed(send, arrived, seconds)


async def _await_first(send: Callable[[], Awaitable[None]], arrived: asyncio.Event) -> None:
    """A first message shows that queues are made and partitions assigned."""
    async with asyncio.timeout(LIMIT_S):
        await send()
        await arrived.wait()


async def _timed(send: Callable[[], Awaitable[None]], arrived: asyncio.Event, seconds: float) -> list[float]:
    found: list[float] = []
    for pause in pace(PER_SECOND, seconds):
        await asyncio.sleep(pause)
        arrived.clear()
        began = time.perf_counter()
        await send()
        async with asyncio.timeout(PATIENCE_S):
            await arrived.wait()
        found.append((time.perf_counter() - began) * 1_000)
    return found


async def _consume(client: BareClient, count: int) -> float:
    """Consume this many; how many a second, from the first on."""
    left, first_at, done = count, 0.0, asyncio.Event()

    def take() -> None:
        nonlocal left, first_at
        first_at = first_at or time.perf_counter()
        left -= 1
        if left <= 0:
            done.set()

    consuming = asyncio.ensure_future(client.consume(take))
    try:
        async with asyncio.timeout(LIMIT_S):
            await done.wait()
        return count / (time.perf_counter() - first_at)
    finally:
        await _stop(consuming)


async def _stop(task: asyncio.Future[None]) -> None:
    task.cancel()
    await asyncio.wait({task}, timeout=PATIENCE_S)
