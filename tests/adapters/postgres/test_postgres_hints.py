"""Hints: what one process changed wakes others, and a process that cannot listen polls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import asyncpg
import pytest
from listening import Listener

from mainspring.clock import SystemClock
from mainspring.conformance.store.samples import a_run
from mainspring.core.model import NewRun
from mainspring.errors import InvalidInput
from mainspring.stores.postgres.server import listener
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.postgres.store import PostgresStore

CLOCK = SystemClock()
PATIENCE_S = 20.0

Open = Callable[..., Awaitable[PostgresStore]]


@pytest.fixture
async def opened(postgres_url: str) -> AsyncIterator[Open]:
    """Open a store that is closed after the test."""
    stores: list[PostgresStore] = []

    async def open_one(url: str = postgres_url, **options: Any) -> PostgresStore:
        stores.append(await PostgresStore.open(url, CLOCK, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        await store.close()


class Subscriber:
    """Counts what a listener hears."""

    def __init__(self, store: PostgresStore) -> None:
        self._loop = asyncio.get_running_loop()
        self._heard = asyncio.Event()
        self.stop = store.on_change(self._hear)

    def _hear(self) -> None:
        self._loop.call_soon_threadsafe(self._heard.set)

    async def hears(self) -> None:
        await asyncio.wait_for(self._heard.wait(), PATIENCE_S)
        self._heard.clear()


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(int(PATIENCE_S * 100)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not come about")


@pytest.fixture
def seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """Polling that no test waits for: what is heard, is heard by NOTIFY."""
    monkeypatch.setattr(listener, "POLL_S", 3_600.0)


def hearing(store: PostgresStore) -> bool:
    return store._db.listener.hears


async def listening(store: PostgresStore) -> Subscriber:
    """A listener to what happens from now on."""
    subscriber = Subscriber(store)
    await until(lambda: hearing(store))
    await subscriber.hears()  # It is notified once when it listens: what was sent before is not known.
    return subscriber


@pytest.mark.usefixtures("seldom")
async def test_a_change_by_another_process_is_heard_at_once(opened: Open) -> None:
    here, there = await opened(), await opened()
    subscriber = await listening(here)
    await there.submit([a_run(CLOCK)])
    await subscriber.hears()


@pytest.mark.usefixtures("seldom")
async def test_a_submission_is_heard_in_its_own_process(opened: Open) -> None:
    here = await opened()
    subscriber = await listening(here)
    for _ in range(5):
        await here.submit([a_run(CLOCK)])
        await subscriber.hears()


async def said_while(postgres_url: str, store: PostgresStore, work: Callable[[], Awaitable[object]]) -> int:
    """How often others are notified while a store does something and is closed."""
    said: list[object] = []
    connection = await asyncpg.connect(postgres_url)
    await connection.add_listener(listener.CHANNEL, lambda *words: said.append(words))
    await work()
    await store.close()
    await connection.fetchval("SELECT 1")  # What was said before is delivered with its answer.
    await connection.close()
    return len(said)


async def test_a_change_that_was_not_committed_is_not_reported(opened: Open, postgres_url: str) -> None:
    store = await opened()

    async def fail() -> None:
        with pytest.raises(InvalidInput):
            await store.submit([a_run(CLOCK), a_run(CLOCK, after=("nobody",))])

    assert await said_while(postgres_url, store, fail) == 0


@pytest.mark.parametrize("count", [1, 2])
async def test_submissions_that_a_listener_announces_reach_others_only_if_it_says_so(
    opened: Open, postgres_url: str, count: int
) -> None:
    store = await opened()
    accepted: list[NewRun] = []
    store.on_accepted(Listener(accepted.extend))
    runs = [a_run(CLOCK) for _ in range(count)]

    async def submit() -> None:
        assert await store.submit(runs) == [run.id for run in runs]

    assert await said_while(postgres_url, store, submit) == 0
    assert accepted == runs

    async def announce() -> None:
        await again.count_runs("default")
        again.announce()

    again = await opened()
    assert await said_while(postgres_url, again, announce) == 1


async def test_many_changes_are_reported_together(opened: Open, postgres_url: str) -> None:
    store = await opened()

    async def change_much() -> None:
        for _ in range(50):
            await store._db.write(_change)

    assert 1 <= await said_while(postgres_url, store, change_much) < 50


async def _change(tx: Transaction) -> None:
    tx.changed = True


async def test_a_process_that_loses_the_connection_polls_and_hears_again(
    opened: Open, postgres_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    here, there = await opened(), await opened()
    subscriber = await listening(here)
    connection = await asyncpg.connect(postgres_url)
    cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'mainspring listener' "
    await connection.execute(cut + "AND datname = current_database()")
    await connection.close()
    await until(lambda: not hearing(here))
    await subscriber.hears()  # by looking
    await until(lambda: hearing(here))
    assert "looking every 0.5 s meanwhile" in caplog.text
    await subscriber.hears()
    await there.submit([a_run(CLOCK)])
    await subscriber.hears()


async def test_behind_a_pooler_one_looks_every_half_second(opened: Open, pooled_url: str) -> None:
    store = await opened(pooled_url)
    subscriber = Subscriber(store)
    await subscriber.hears()
    assert not hearing(store)


@pytest.mark.usefixtures("seldom")
async def test_behind_a_pooler_one_hears_where_the_server_itself_is_named(
    opened: Open, pooled_url: str, postgres_url: str
) -> None:
    here, there = await opened(pooled_url, listen=postgres_url), await opened(pooled_url)
    subscriber = await listening(here)
    await there.submit([a_run(CLOCK)])
    await subscriber.hears()


async def test_a_pooler_named_as_the_server_is_noticed(
    opened: Open, pooled_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    store = await opened(pooled_url, listen=pooled_url)
    subscriber = Subscriber(store)
    await subscriber.hears()
    assert not hearing(store)
    assert "is a pooler" in caplog.text


async def test_a_listener_that_fails_does_not_fail_the_work(opened: Open) -> None:
    store = await opened()

    def fail() -> None:
        raise RuntimeError("mine")

    stop = store.on_change(fail)
    run = a_run(CLOCK)
    assert await store.submit([run]) == [run.id]
    stop()
