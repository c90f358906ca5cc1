"""Locks for users, on every lease: one holder at a time, kept while the body runs; a loss is reported in time."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from redis import Redis

from mainspring import Mainspring
from mainspring.errors import Conflict, InvalidInput, LeaseUnavailable, LockLost, LockRefused, StoreError
from mainspring.testing.servers.redis import RedisServer

BOUND_S = 60


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    with suppress(Exception):
        server.kill()


@pytest.fixture(params=["database", "redis"])
def lease(request: pytest.FixtureRequest) -> str | None:
    if request.param == "database":
        return None
    server: RedisServer = request.getfixturevalue("server")
    return f"{server.url}?timeout=5s&prefix={os.urandom(4).hex()}:"


@pytest.fixture
async def app(tmp_path: Path, lease: str | None) -> AsyncIterator[Mainspring]:
    app = Mainspring(f"sqlite:///{tmp_path}/x.db", lease=lease)
    yield app
    await app.close()


@pytest.fixture
async def on_redis(tmp_path: Path, server: RedisServer) -> AsyncIterator[Mainspring]:
    app = Mainspring(f"sqlite:///{tmp_path}/x.db", lease=f"{server.url}?timeout=300ms&prefix={os.urandom(4).hex()}:")
    yield app
    await app.close()


def forget(server: RedisServer) -> None:
    """What a failover to an empty replica does."""
    with Redis(port=server.port) as client:
        client.flushall()


async def test_one_at_a_time_is_within(app: Mainspring) -> None:
    within: list[int] = []
    most = 0

    async def work(number: int) -> None:
        nonlocal most
        async with app.lock("payroll", wait=BOUND_S):
            within.append(number)
            most = max(most, len(within))
            await asyncio.sleep(0.002)
            within.remove(number)

    await asyncio.wait_for(asyncio.gather(*(work(n) for n in range(12))), BOUND_S)
    assert most == 1


async def test_other_names_and_other_tenants_do_not_wait(app: Mainspring, tmp_path: Path, lease: str | None) -> None:
    other = Mainspring(f"sqlite:///{tmp_path}/x.db", lease=lease, namespace="other")
    async with app.lock("a", wait=0), app.lock("b", wait=0), other.lock("a", wait=0):
        pass
    await other.close()


async def test_a_wait_in_vain_raises_and_does_nothing(app: Mainspring) -> None:
    async with app.lock("payroll"):
        with pytest.raises(LockRefused, match=r"payroll.*held by another"):
            async with app.lock("payroll", wait="50ms"):
                pytest.fail("the body must not run")
        with pytest.raises(LockRefused):
            await app.lock("payroll", wait=0).acquire()


async def test_a_waiting_caller_gets_it_when_it_is_free(app: Mainspring) -> None:
    first = app.lock("payroll")
    await first.acquire()
    waiting = asyncio.create_task(app.lock("payroll", wait=BOUND_S).acquire())
    await asyncio.sleep(0)
    await first.release()
    await asyncio.wait_for(waiting, BOUND_S)


async def test_it_is_kept_for_as_long_as_the_body_runs(app: Mainspring) -> None:
    async with app.lock("payroll", ttl="2s") as lock:
        for _ in range(10):
            await asyncio.sleep(0.3)
            with pytest.raises(LockRefused):
                await app.lock("payroll", wait=0).acquire()
        lock.check()


async def test_the_token_grows_with_each_holder_and_is_known_only_while_it_is_held(app: Mainspring) -> None:
    tokens = []
    for _ in range(5):
        async with app.lock("payroll") as lock:
            tokens.append(lock.token)
        with pytest.raises(Conflict, match="not held"):
            _ = lock.token
    assert tokens == sorted(set(tokens))


async def test_the_error_of_the_body_passes_and_the_lock_is_free(app: Mainspring) -> None:
    with pytest.raises(ZeroDivisionError):
        async with app.lock("payroll"):
            _ = 1 / 0
    async with app.lock("payroll", wait=0):
        pass


async def test_a_lock_object_is_entered_once_at_a_time(app: Mainspring) -> None:
    lock = app.lock("payroll", wait=0)
    async with lock:
        with pytest.raises(Conflict, match="this very object"):
            await lock.acquire()
    async with lock:
        pass


async def test_a_caller_that_is_cancelled_while_it_waits_leaves_nothing_held(app: Mainspring) -> None:
    for _ in range(20):
        waiting = asyncio.create_task(app.lock("payroll", wait=0).acquire())
        await asyncio.sleep(0)
        waiting.cancel()
        with suppress(asyncio.CancelledError):
            await waiting
            break  # It was done before it could be cancelled.
        async with app.lock("payroll", wait=BOUND_S):
            pass


async def test_a_body_that_is_cancelled_from_outside_is_cancelled(app: Mainspring) -> None:
    inside = asyncio.Event()

    async def work() -> None:
        async with app.lock("payroll"):
            inside.set()
            await asyncio.sleep(BOUND_S)

    task = asyncio.create_task(work())
    await asyncio.wait_for(inside.wait(), BOUND_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with app.lock("payroll", wait=0):
        pass


async def test_a_lock_that_redis_forgot_is_lost_and_its_body_cancelled(
    on_redis: Mainspring, server: RedisServer
) -> None:
    lock = on_redis.lock("payroll", ttl="300ms")

    async def work() -> None:
        async with lock:
            forget(server)
            await asyncio.sleep(BOUND_S)
            pytest.fail("the body must be cancelled")

    with pytest.raises(LockLost, match="server has lost it"):
        await work()
    assert lock.lost.is_set()
    task = asyncio.current_task()
    assert task is not None
    assert task.cancelling() == 0


async def test_a_body_that_ignores_its_cancellation_is_reported_at_its_end(
    on_redis: Mainspring, server: RedisServer
) -> None:
    async def work() -> None:
        async with on_redis.lock("payroll", ttl="300ms") as lock:
            forget(server)
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(BOUND_S)
            with pytest.raises(LockLost):
                lock.check()

    with pytest.raises(LockLost):
        await work()


async def test_both_cancelled_and_lost_is_cancelled(on_redis: Mainspring, server: RedisServer) -> None:
    lost = asyncio.Event()

    async def work() -> None:
        async with on_redis.lock("payroll", ttl="300ms") as lock:
            forget(server)
            try:
                await asyncio.sleep(BOUND_S)
            finally:
                assert lock.lost.is_set()
                lost.set()
                await asyncio.sleep(BOUND_S)

    task = asyncio.create_task(work())
    await asyncio.wait_for(lost.wait(), BOUND_S)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_it_is_lost_before_another_can_have_it_where_redis_does_not_answer(
    tmp_path: Path, on_redis: Mainspring
) -> None:
    server = RedisServer(tmp_path).start()
    app = Mainspring(f"sqlite:///{tmp_path}/y.db", lease=f"{server.url}?timeout=100ms")

    async def work() -> None:
        async with app.lock("payroll", ttl="1s"):
            server.pause()
            await asyncio.sleep(BOUND_S)

    try:
        with pytest.raises(LockLost, match="renewed in time"):
            await work()
        server.resume()
    finally:
        await app.close()
        server.kill()


async def test_where_nobody_can_be_asked_the_error_says_so(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path}/x.db", lease="redis://127.0.0.1:1")
    with pytest.raises(LeaseUnavailable, match=r"127\.0\.0\.1:1"):
        await app.lock("payroll", wait="50ms").acquire()
    await app.close()


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda app: app.lock(""), "name"),
        (lambda app: app.lock("a", ttl="10ms"), "too short"),
        (lambda app: app.lock("a", ttl=-1), "ttl"),
        (lambda app: app.lock("a", wait="soon"), "wait"),
    ],
)
def test_a_lock_that_cannot_be_is_refused(make: Callable[[Mainspring], object], complaint: str) -> None:
    with pytest.raises(InvalidInput, match=complaint):
        make(Mainspring())


async def test_locks_are_counted(app: Mainspring) -> None:
    async with app.lock("payroll"):
        with suppress(LockRefused):
            await app.lock("payroll", wait=0).acquire()
    figures = (await app.open()).metrics
    assert figures.counts["locks", "acquired"] == 1
    assert figures.counts["locks", "refused"] == 1
    assert figures.lock_wait.buckets()[-1] == ("+Inf", 2)
    assert figures.lock_held.buckets()[-1] == ("+Inf", 1)


def test_blocking_code_holds_it_and_it_is_renewed_though_the_body_blocks(tmp_path: Path, lease: str | None) -> None:
    app = Mainspring(f"sqlite:///{tmp_path}/x.db", lease=lease)
    with app.sync(app.lock, "payroll", ttl="2s") as lock:
        assert not threading.Event().wait(3.0)  # Longer than it would live if it were not renewed.
        with pytest.raises(LockRefused), app.sync(app.lock, "payroll", wait=0):
            pass
        lock.check()
        first = lock.token
    with app.sync(app.lock, "payroll", wait=0) as lock:
        assert lock.token > first
    app.sync.close()


def test_blocking_code_learns_that_it_is_lost(tmp_path: Path, server: RedisServer) -> None:
    app = Mainspring(f"sqlite:///{tmp_path}/x.db", lease=f"{server.url}?prefix={os.urandom(4).hex()}:")

    def work() -> None:
        with app.sync(app.lock, "payroll", ttl="300ms") as lock:
            forget(server)
            until = time.monotonic() + BOUND_S
            while not lock.lost.is_set():
                assert time.monotonic() < until
            with pytest.raises(LockLost):
                lock.check()

    with pytest.raises(LockLost):
        work()
    app.sync.close()


def test_threads_of_one_app_exclude_each_other(tmp_path: Path, lease: str | None) -> None:
    app = Mainspring(f"sqlite:///{tmp_path}/x.db", lease=lease)
    within: list[int] = []
    overlaps: list[int] = []

    def work() -> None:
        with app.sync(app.lock, "payroll", wait=BOUND_S):
            within.append(1)
            overlaps.append(len(within))
            within.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND_S)
    assert overlaps == [1] * 6
    app.sync.close()


async def test_without_redis_a_lock_whose_store_is_gone_is_not_had(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path}/x.db")
    store = await app.open()
    await store.close()
    with pytest.raises(StoreError):
        await app.lock("payroll", wait=0).acquire()
