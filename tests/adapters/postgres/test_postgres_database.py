"""Transactions on PostgreSQL: what is committed and what is undone, whose turn it is, and a server that goes away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from threading import Thread

import asyncpg
import psycopg
import pytest

from mainspring.clock import SystemClock
from mainspring.core.instants import SECOND
from mainspring.core.model import Event
from mainspring.errors import Conflict, StoreError, StoreReadOnly, StoreUnavailable, Unstorable
from mainspring.services.loop import within
from mainspring.stores.postgres.server.clock import ServerClock
from mainspring.stores.postgres.server.database import Database, Limits, Transaction
from mainspring.stores.postgres.server.pool import Bounds
from mainspring.stores.postgres.store import PostgresStore
from mainspring.testing.clock import ManualClock
from mainspring.testing.servers.postgres import Postgres

CLOCK = SystemClock()
BOUNDS = Bounds(size=2, wait_s=2.0)
PUT = "INSERT INTO mainspring.facts VALUES ($1, $2)"
GET = "SELECT value FROM mainspring.facts WHERE name = $1"


@pytest.fixture
async def database(postgres_url: str) -> AsyncIterator[Database]:
    database = await Database.open(postgres_url, CLOCK, limits=Limits(pool=BOUNDS))
    yield database
    await database.close()


async def cut_all(url: str) -> None:
    """End every session of the program in a database, as a restart would."""
    connection = await asyncpg.connect(url)
    ours = "datname = current_database() AND application_name LIKE 'mainspring%'"
    await connection.execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {ours}")
    await connection.close()


async def _put(database: Database, value: str) -> None:
    await database.write(lambda tx: tx.run(PUT, "a", value))


class TestWork:
    async def test_that_fails_is_undone_with_all_its_events(self, database: Database) -> None:
        async def work(tx: Transaction) -> None:
            await tx.run(PUT, "a", "1")
            tx.events.append(Event("noted", tx.now))
            raise Conflict("no")

        with pytest.raises(Conflict):
            await database.write(work)
        assert await database.alone(GET, "a") == []
        assert await database.alone("SELECT 1 FROM mainspring.outbox") == []

    async def test_whose_error_was_passed_over_is_not_taken_for_committed(self, database: Database) -> None:
        async def work(tx: Transaction) -> None:
            await tx.run(PUT, "a", "1")
            with pytest.raises(asyncpg.PostgresError):
                await tx.run(PUT, "a", "2")

        with pytest.raises(StoreError, match="undone"):
            await database.write(work)
        assert await database.alone(GET, "a") == []

    async def test_that_met_another_in_a_deadlock_is_run_again(self, database: Database) -> None:
        await database.write(lambda tx: tx.many(PUT, [("a", "0"), ("b", "0")]))
        met, tries = asyncio.Barrier(2), 0
        add = "UPDATE mainspring.facts SET value = value || $2 WHERE name = $1"

        async def work(tx: Transaction, first: str, second: str) -> None:
            nonlocal tries
            tries += 1
            await tx.run(add, first, first)
            if tries <= 2:
                await asyncio.wait_for(met.wait(), 20)
            await tx.run(add, second, first)

        await asyncio.gather(
            database.write(lambda tx: work(tx, "a", "b")), database.write(lambda tx: work(tx, "b", "a"))
        )
        assert tries == 3
        values = [row[0] for row in await database.alone("SELECT value FROM mainspring.facts ORDER BY name")]
        assert [sorted(value) for value in values] == [["0", "a", "b"]] * 2

    async def test_that_only_looks_sees_one_state_of_things_if_it_asks_for_it(self, database: Database) -> None:
        async def look(tx: Transaction) -> tuple[object, object]:
            before = await tx.fetchval(GET, "a")
            await database.write(lambda other: other.run(PUT, "a", "1"))
            return before, await tx.fetchval(GET, "a")

        assert await database.read(look, consistent=True) == (None, None)
        assert await database.alone(GET, "a") != []

    async def test_that_is_cancelled_leaves_no_lock_behind(self, database: Database) -> None:
        await database.write(lambda tx: tx.run(PUT, "a", "1"))
        holding = asyncio.Event()

        async def hold(tx: Transaction) -> None:
            await tx.run("UPDATE mainspring.facts SET value = '2' WHERE name = 'a'")
            holding.set()
            await tx.fetchval("SELECT pg_sleep(60)")

        task = asyncio.create_task(database.write(hold))
        await asyncio.wait_for(holding.wait(), 20)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        change = "UPDATE mainspring.facts SET value = '3' WHERE name = 'a'"
        assert await asyncio.wait_for(database.write(lambda tx: tx.run(change)), 20) == 1

    async def test_with_a_value_that_cannot_be_stored_says_so(self, database: Database) -> None:
        for value in ("nul \0", "lone \ud800"):
            with pytest.raises(Unstorable):
                await _put(database, value)
        with pytest.raises(Unstorable):
            await database.alone("SELECT $1::integer", 2**40)

    async def test_on_a_read_only_server_says_so(self, database: Database) -> None:
        async def work(tx: Transaction) -> None:
            await tx.connection.execute("SET TRANSACTION READ ONLY")
            await tx.run(PUT, "a", "1")

        with pytest.raises(StoreReadOnly):
            await database.write(work)

    async def test_may_come_from_several_event_loops(self, database: Database) -> None:
        await database.write(lambda tx: tx.run(PUT, "here", "1"))

        def elsewhere() -> None:
            asyncio.run(database.write(lambda tx: tx.run(PUT, "there", "1")))

        thread = Thread(target=elsewhere)
        thread.start()
        await asyncio.to_thread(thread.join)
        assert len(await database.alone("SELECT 1 FROM mainspring.facts")) == 2


class TestConnections:
    async def test_are_no_more_than_allowed_and_waiting_callers_are_counted(self, database: Database) -> None:
        at_once, most = 0, 0

        async def work(tx: Transaction) -> None:
            nonlocal at_once, most
            at_once += 1
            most = max(most, at_once)
            await tx.fetchval("SELECT pg_sleep(0.01)")
            at_once -= 1

        await asyncio.gather(*(database.write(work) for _ in range(8)))
        assert most == 2
        assert database.waiting.count == 6
        assert database.waiting.longest_s > 0

    async def test_that_were_cut_while_idle_are_replaced_unnoticed(self, database: Database, postgres_url: str) -> None:
        await asyncio.gather(*(database.write(lambda tx: tx.fetchval("SELECT 1")) for _ in range(2)))
        await cut_all(postgres_url)
        assert await database.write(lambda tx: tx.run(PUT, "a", "1")) == 1
        await cut_all(postgres_url)
        assert await database.read(lambda tx: tx.fetchval(GET, "a")) == "1"

    async def test_that_are_cut_in_the_middle_fail_the_work_and_nothing_else(
        self, database: Database, postgres_url: str
    ) -> None:
        async def work(tx: Transaction) -> None:
            await tx.run(PUT, "a", "1")
            await cut_all(postgres_url)
            await tx.run(PUT, "b", "1")

        with pytest.raises(StoreUnavailable):
            await database.write(work)
        assert await database.alone("SELECT 1 FROM mainspring.facts") == []

    @pytest.mark.parametrize("pooled", [False, True])
    async def test_that_stand_still_in_a_transaction_are_ended_by_the_server(
        self, pooled: bool, postgres_url: str, pooled_url: str
    ) -> None:
        database = await Database.open(pooled_url if pooled else postgres_url, CLOCK)
        limit = "SELECT current_setting('idle_in_transaction_session_timeout')"
        assert await database.write(lambda tx: tx.fetchval(limit)) == "3s"
        await database.close()

    @pytest.mark.parametrize("pooled", [False, True])
    async def test_never_plan_to_read_a_table_whole(self, pooled: bool, postgres_url: str, pooled_url: str) -> None:
        database = await Database.open(pooled_url if pooled else postgres_url, CLOCK)
        asked = "SELECT current_setting('enable_seqscan') || ' ' || current_setting('jit')"
        assert await database.write(lambda tx: tx.fetchval(asked)) == "off off"
        assert await database.read(lambda tx: tx.fetchval(asked)) == "off off"
        assert await database.read(lambda tx: tx.fetchval(asked), consistent=True) == "off off"
        await database.close()

    @pytest.mark.parametrize("pooled", [False, True])
    @pytest.mark.parametrize(("durable", "synced"), [(True, "on"), (False, "off")])
    async def test_wait_for_the_disk_if_they_are_to(
        self, durable: bool, synced: str, pooled: bool, postgres_url: str, pooled_url: str
    ) -> None:
        database = await Database.open(pooled_url if pooled else postgres_url, CLOCK, durable=durable)
        asked = "SELECT current_setting('synchronous_commit')"
        assert await database.write(lambda tx: tx.fetchval(asked)) == synced
        await database.close()


class TestTheClock:
    def test_says_what_time_it_surely_is_also_when_the_host_is_faster(self) -> None:
        host = ManualClock()
        clock = ServerClock(host)
        clock.learn(1_000 * SECOND, host.monotonic())
        host.advance(10 * SECOND)
        assert 1_009 * SECOND < clock.surely_now() < clock.now()

    async def test_is_the_servers_whatever_the_host_says(self, postgres_url: str) -> None:
        class WrongClock(SystemClock):
            def now(self) -> int:
                return super().now() + 3_600 * SECOND

        store = await PostgresStore.open(postgres_url, WrongClock())
        assert abs(store.now() - CLOCK.now()) < 5 * SECOND
        await store.close()

    def test_is_not_made_worse_by_a_slow_answer(self) -> None:
        host = ManualClock()
        clock = ServerClock(host)
        clock.learn(1_000 * SECOND, host.monotonic())
        assert clock.now() == 1_000 * SECOND
        sent_at = host.monotonic()
        host.advance(4 * SECOND)
        clock.learn(1_003 * SECOND, sent_at)  # read on the server somewhere in these four seconds
        assert clock.now() == 1_004 * SECOND

    def test_is_never_ahead_of_the_server_and_a_vague_answer_is_soon_bettered(self) -> None:
        host = ManualClock()
        clock = ServerClock(host)
        sent_at = host.monotonic()
        host.advance(4 * SECOND)
        clock.learn(1_000 * SECOND, sent_at)  # read just before the answer, for all that is known
        assert clock.now() == 1_000 * SECOND
        host.advance(SECOND)
        assert clock.is_stale()
        clock.learn(1_004 * SECOND, host.monotonic())
        assert clock.now() == 1_004 * SECOND
        host.advance(SECOND)
        assert not clock.is_stale()

    def test_follows_a_server_whose_clock_was_set(self) -> None:
        host = ManualClock()
        clock = ServerClock(host)
        clock.learn(1_000 * SECOND, host.monotonic())
        clock.learn(5_000 * SECOND, host.monotonic())
        assert clock.now() == 5_000 * SECOND
        assert not clock.is_stale()
        host.advance(10 * SECOND)
        assert clock.is_stale()


@pytest.fixture
def own_server() -> Iterator[Postgres]:
    """A server to be killed."""
    server = Postgres()
    try:
        server.make()
        yield server
    finally:
        server.close()


async def keep_trying_until_it_fails(store: PostgresStore) -> None:
    """The last children of a killed server may answer for a moment."""
    for _ in range(100):
        await store.acquire("during", "me", SECOND)
        await asyncio.sleep(0.05)


async def test_a_server_that_is_killed_and_comes_back_is_used_again(own_server: Postgres) -> None:
    store = await PostgresStore.open(own_server.url, CLOCK, limits=Limits(pool=Bounds(size=3)))
    accepted = await store.acquire("before", "me", 60 * SECOND)
    assert accepted is not None
    own_server.kill()
    with pytest.raises(StoreUnavailable):
        await keep_trying_until_it_fails(store)
    await asyncio.to_thread(own_server.start)
    for _ in range(100):
        try:
            assert await store.acquire("before", "another", SECOND) is None
            break
        except StoreUnavailable:
            await asyncio.sleep(0.1)
    else:
        pytest.fail("it did not come back")
    await store.close()


async def test_a_process_suspended_while_it_prepares_a_statement_keeps_nobody_from_leading(postgres_url: str) -> None:
    """PostgreSQL applies no timeout then: neither that of idle transactions nor that of statements."""
    store = await PostgresStore.open(postgres_url, CLOCK)
    await store.begin_term("scheduler", "suspended")
    with psycopg.connect(postgres_url, application_name="mainspring") as suspended:
        suspended.execute("SELECT FROM mainspring.terms FOR SHARE")
        suspended.pgconn.enter_pipeline_mode()
        suspended.pgconn.send_prepare(b"half", b"SELECT 1")
        suspended.pgconn.send_flush_request()
        suspended.pgconn.flush()
        async with asyncio.timeout(30):
            while True:
                with suppress(StoreUnavailable):
                    term = await within(CLOCK, 1.0, store.begin_term("scheduler", "other"))
                    break
        assert term.number == 2
        suspended.close()
    await store.close()
