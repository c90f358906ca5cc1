"""The connections of a process: bounded in number, in how long they are waited for, held and kept; and a shortage of
them, which ends no loop."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest

from mainspring import Mainspring
from mainspring.clock import SystemClock
from mainspring.core.instants import parse_duration
from mainspring.errors import StoreUnavailable
from mainspring.services.loop import within
from mainspring.services.node import Node
from mainspring.stores.postgres.server import pool as pooling
from mainspring.stores.postgres.server.database import Database, Limits, Transaction
from mainspring.stores.postgres.server.pool import Bounds
from mainspring.stores.postgres.store import PostgresStore
from mainspring.testing.servers.proxy import Proxy
from mainspring.wiring import build_runtime

CLOCK = SystemClock()
PATIENCE_S = 30.0


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


@asynccontextmanager
async def opened(url: str, bounds: Bounds) -> AsyncIterator[Database]:
    database = await Database.open(url, CLOCK, limits=Limits(pool=bounds))
    try:
        yield database
    finally:
        await database.close()


class Keepers:
    """Work that keeps connections until it is let go."""

    def __init__(self, database: Database, count: int) -> None:
        self._let_go = asyncio.Event()
        self._keep = 0
        self._tasks = [asyncio.create_task(database.read(self.keep_for_long)) for _ in range(count)]

    async def keep_for_long(self, tx: Transaction) -> None:
        self._keep += 1
        await self._let_go.wait()

    async def __aenter__(self) -> None:
        await until(lambda: self._keep == len(self._tasks))

    async def __aexit__(self, *_: object) -> None:
        self._let_go.set()
        await asyncio.gather(*self._tasks)


class TestWaiting:
    async def test_a_shortage_is_reported_with_the_holders_of_the_connections(self, postgres_url: str) -> None:
        async with opened(postgres_url, Bounds(size=2, wait_s=0.05)) as database:
            async with Keepers(database, 2):
                with pytest.raises(
                    StoreUnavailable, match=r"all 2 .*setting pool_size.*keep_for_long \(test_postgres_p"
                ):
                    await database.alone("SELECT 1")
            assert await database.alone("SELECT 1") != []

    async def test_a_timer_that_fires_early_never_becomes_a_cancellation(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An event loop may call a timer a little before the clock says that it is due."""
        async with opened(postgres_url, Bounds(size=1, wait_s=0.05)) as database, Keepers(database, 1):
            now = time.monotonic()
            monkeypatch.setattr(pooling, "time", SimpleNamespace(monotonic=lambda: now))
            with pytest.raises(StoreUnavailable, match="no database connection became free"):
                await database.alone("SELECT 1")

    async def test_once_none_has_become_free_for_long_nobody_waits(self, postgres_url: str) -> None:
        async with opened(postgres_url, Bounds(size=1, wait_s=20.0, exhausted_s=0.2)) as database:
            async with Keepers(database, 1):
                waiter = asyncio.create_task(database.alone("SELECT 1"))
                began = time.monotonic()
                await until(lambda: time.monotonic() > began + 0.3)
                with pytest.raises(StoreUnavailable, match=r"free within 0\.\d+ s"):
                    await database.alone("SELECT 1")
                assert time.monotonic() - began < 5
                assert not waiter.done()
            assert await waiter
            assert await database.alone("SELECT 1"), "what became free is lent again"

    async def test_a_waiter_that_is_cancelled_leaves_its_turn_to_the_next(self, postgres_url: str) -> None:
        async with opened(postgres_url, Bounds(size=1)) as database:
            async with Keepers(database, 1):
                leaver, stayer = (asyncio.create_task(database.alone("SELECT 1")) for _ in range(2))
                await until(lambda: database.count_connections()[3] == 2)
                leaver.cancel()
            assert await stayer
            assert (await asyncio.gather(leaver, return_exceptions=True))[0].__class__ is asyncio.CancelledError
            assert database.count_connections() == (1, 0, 1, 0)

    async def test_what_is_in_use_idle_and_waited_for_is_counted(self, postgres_url: str) -> None:
        store = await PostgresStore.open(postgres_url, CLOCK, limits=Limits(pool=Bounds(size=2)))
        async with Keepers(store._db, 2):
            waiter = asyncio.create_task(store._db.alone("SELECT 1"))
            await until(lambda: store.strain().pool.waiters)
            assert (store.strain().pool.size, store.strain().pool.in_use, store.strain().pool.idle) == (2, 2, 0)
        await waiter
        assert (store.strain().pool.in_use, store.strain().pool.idle, store.strain().pool.waiters) == (0, 2, 0)
        await store.close()


class TestKeeping:
    async def test_a_caller_that_keeps_one_too_long_is_named_with_where_it_waits(
        self, postgres_url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        async with opened(postgres_url, Bounds(size=2, leak_s=0.05)) as database, Keepers(database, 1):
            await until(lambda: "has been in use" in caplog.text)
            assert database.waiting.leaks == 1
        assert "Keepers.keep_for_long (test_postgres_pool.py" in caplog.text
        assert "Event.wait (locks.py" in caplog.text, "the stack of the task that holds it"

    async def test_one_that_has_lain_idle_for_long_is_closed_down_to_a_few(self, postgres_url: str) -> None:
        async with opened(postgres_url, Bounds(size=4, min_idle=1, idle_s=0.1)) as database:
            async with Keepers(database, 4):
                pass
            assert database.count_connections()[2] == 4
            await until(lambda: database.count_connections()[2] == 1)
            assert await database.alone("SELECT 1")

    async def test_one_that_is_old_is_replaced(self, postgres_url: str) -> None:
        async with opened(postgres_url, Bounds(size=1, lifetime_s=0.05)) as database:
            (first,) = await database.alone("SELECT pg_backend_pid()")
            began = time.monotonic()
            await until(lambda: time.monotonic() > began + 0.1)
            await database.alone("SELECT 1")
            (later,) = await database.alone("SELECT pg_backend_pid()")
            assert first != later

    async def test_one_that_rested_is_tried_before_it_is_lent(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """It was cut without a word: the server's process stands still, as behind a firewall that forgot it."""
        monkeypatch.setattr(pooling, "RESTED_S", 0.0)
        async with opened(postgres_url, Bounds(size=1, validation_s=0.3)) as database:
            (row,) = await database.alone("SELECT pg_backend_pid()")
            admin = await asyncpg.connect(postgres_url)
            await admin.execute("SELECT pg_terminate_backend($1)", row[0])
            await admin.close()
            assert await database.write(lambda tx: tx.fetchval("SELECT 42")) == 42

    async def test_one_call_without_an_answer_is_enough_to_doubt_all_that_lie_idle(self, postgres_url: str) -> None:
        """A router was replaced: connections are dead, and neither side knows. Each of them would cost a timeout."""
        port = urlsplit(postgres_url).port
        assert port is not None
        proxy = Proxy(port, Random(7))
        proxy.start()
        try:
            url = postgres_url.replace(f":{port}/", f":{proxy.port}/")
            async with opened(url, Bounds(size=6, validation_s=0.5)) as database:
                async with Keepers(database, 6):
                    pass
                assert database.count_connections()[2] == 6
                proxy.block()
                proxy.unblock(forget=True)
                tries = 0
                while True:
                    tries += 1
                    with suppress(StoreUnavailable):
                        assert await within(CLOCK, 1.0, database.alone("SELECT 42"))
                        break
                assert tries <= 3, "one that is cut off, one that is tried, and a new one"
        finally:
            proxy.close()


@asynccontextmanager
async def locked(url: str, *tables: str) -> AsyncIterator[None]:
    """Tables that another session keeps locked."""
    connection = await asyncpg.connect(url)
    try:
        async with connection.transaction():
            names = ", ".join(f"mainspring.{table}" for table in tables)
            await connection.execute(f"LOCK TABLE {names} IN ACCESS EXCLUSIVE MODE")
            yield
    finally:
        await connection.close()


class TestDeadlines:
    @pytest.mark.parametrize("pool_size", [1, 10])
    async def test_a_submission_fails_in_time_where_a_table_is_locked(self, postgres_url: str, pool_size: int) -> None:
        app = Mainspring(postgres_url, pool_size=pool_size, schedule_timeout="1s", schedule_retries="100ms,200ms")
        async with app:
            store = await app.open()
            async with locked(postgres_url, "runs"):
                began = time.monotonic()
                submissions = [app.submit("work", {"number": number}) for number in range(20)]
                errors = await asyncio.gather(*submissions, return_exceptions=True)
                took_s = time.monotonic() - began
                assert all(isinstance(error, StoreUnavailable) for error in errors), errors
                assert "not done within 1 s" in str(errors[0])
                assert took_s < 3.0, "one deadline for all of it, not one for each wait"
            handle = await app.submit("work", {})
            assert (await store.get_run("default", handle.id)).state == "pending"

    async def test_an_edit_of_a_job_fails_in_time_too(self, postgres_url: str) -> None:
        from mainspring import every

        async with Mainspring(postgres_url, schedule_timeout="500ms") as app:
            async with locked(postgres_url, "jobs"):
                with pytest.raises(StoreUnavailable, match=r"not done within 0\.5 s"):
                    await app.jobs.add("report", every("1h"), task="work")
            await app.jobs.add("report", every("1h"), task="work")

    async def test_a_submission_that_gets_no_answer_is_repeated_within_its_time(
        self, postgres_url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        failures = iter([StoreUnavailable("away")] * 2)
        async with Mainspring(postgres_url, schedule_retries="20ms,40ms") as app:
            store = await app.open()
            runs: Any = getattr(store, "_store", store)
            real = runs._group_commit.submit

            async def submit(batch: object) -> object:
                if (failure := next(failures, None)) is not None:
                    raise failure
                return await real(batch)

            monkeypatch.setattr(runs._group_commit, "submit", submit)
            handle = await app.submit("work", {})
            assert (await store.get_run("default", handle.id)).state == "pending"

    async def test_any_other_call_is_bounded_as_a_whole(self, postgres_url: str) -> None:
        database = await Database.open(postgres_url, CLOCK, limits=Limits(call_s=0.5))

        async def many_steps(tx: Transaction) -> None:
            for _ in range(100):
                await tx.fetchval("SELECT pg_sleep(0.05)")

        with pytest.raises(StoreUnavailable, match=r"not done within 0\.5 s"):
            await database.write(many_steps)
        assert await database.alone("SELECT 1"), "its connection is not lost for good"
        await database.close()


async def test_a_shortage_of_connections_ends_no_loop(postgres_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """Three nodes with one connection each, and tables that are locked for a while. Timers fire thousands of times;
    before, some of them became cancellations that ended claimers, relays and reapers for good, without a word."""
    caplog.set_level(logging.CRITICAL, "mainspring")
    ran: list[int] = []
    async with _nodes(postgres_url, ran, 3) as (app, nodes):
        async with locked(postgres_url, "runs", "leases", "workers", "jobs", "outbox"):
            began = time.monotonic()
            await until(lambda: time.monotonic() > began + 8)
        assert [node.troubles() for node in nodes] == [{}, {}, {}]
        assert [task.get_name() for node in nodes for task in node.supervisor.tasks if task.done()] == []
        turned_at = [loop.turned_at for node in nodes for loop in node.loops if loop.name != "cleaner"]

        def all_turn() -> bool:
            now = [loop.turned_at for node in nodes for loop in node.loops if loop.name != "cleaner"]
            return all(later > earlier for earlier, later in zip(turned_at, now, strict=True))

        await until(all_turn)
        await app.submit("work", {"number": 7})
        await until(lambda: ran == [7])


@asynccontextmanager
async def _nodes(url: str, ran: list[int], count: int) -> AsyncIterator[tuple[Mainspring, list[Node]]]:
    apps = [Mainspring(url, pool_size=1, pool_wait="50ms", pool_exhausted="10s") for _ in range(count)]
    for app in apps:
        app.task(name="work")(_appending(ran))
    runtimes = [build_runtime(app, app.settings, schedule=True, work=True) for app in apps]
    for app in apps:
        await app.open()
    try:
        yield apps[0], [await runtime.start() for runtime in runtimes]
    finally:
        for runtime in runtimes:
            await runtime.stop(0.0)
        for app in apps:
            await app.close()


def _appending(ran: list[int]) -> Callable[[int], Awaitable[None]]:
    async def work(number: int) -> None:
        ran.append(number)

    return work


def test_the_bounds_are_settings() -> None:
    settings = Mainspring(pool_leak="2m", schedule_retries=["1s", "2s"], heartbeat_retries="10s,30s").settings
    assert settings.pool_leak == parse_duration("2m")
    assert settings.schedule_retries == (1_000_000, 2_000_000)
    assert settings.heartbeat_retries == (10_000_000, 30_000_000)
