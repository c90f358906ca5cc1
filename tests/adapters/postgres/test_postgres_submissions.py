"""Submissions on PostgreSQL: gathered from many callers, and inside a transaction of the caller's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import psycopg
import pytest

from mainspring.conformance.store.samples import (
    a_run,
    a_worker,
    gated,
    in_line,
    new_events,
    new_id,
    seen,
    states,
    submit,
    success,
    take_one,
)
from mainspring.core.instants import HOUR
from mainspring.errors import Conflict, InvalidInput, MainspringError, NotFound
from mainspring.sdk.app import Mainspring
from mainspring.stores.postgres.store import PostgresStore
from mainspring.testing.clock import ManualClock
from sdk_work import stored_run


@pytest.fixture
async def theirs(postgres_url: str, postgres: PostgresStore) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the caller's own, with a table."""
    connection = await asyncpg.connect(postgres_url)
    await connection.execute("CREATE TABLE IF NOT EXISTS orders (id integer)")
    yield connection
    await connection.execute("DROP TABLE orders")
    await connection.close()


async def transactions(postgres: PostgresStore) -> int:
    """How many transactions have left events so far."""
    return len(await numbered(postgres))


async def numbered(postgres: PostgresStore) -> list[object]:
    while await postgres.number_events(1_000):
        pass
    return list(await postgres.events_since(0, 1_000))


class TestMany:
    """A large submission is written as if all of it were new, and once more row by row if it is not."""

    @pytest.mark.parametrize("count", [30, 1_500])
    async def test_each_keeps_its_own_arguments_whatever_is_in_them(
        self, postgres: PostgresStore, clock: ManualClock, count: int
    ) -> None:
        odd = ["", "{}", '{"x": "ä,\\u001f\\n\\"{"}', "[\n]", "\x1f", "NULL", "\x1e\x1d,"]
        runs = [a_run(clock, args=odd[number % len(odd)]) for number in range(count)]
        await postgres.submit([*runs, runs[3], a_run(clock, id=runs[5].id, args="another")])
        found = {run.id: run.args for run in await asyncio.gather(*(postgres.get_run("default", it.id) for it in runs))}
        assert found == {run.id: run.args for run in runs}

    async def test_one_that_is_repeated_with_more_adds_only_what_is_new(
        self, postgres: PostgresStore, clock: ManualClock
    ) -> None:
        runs = [a_run(clock) for _ in range(1_500)]
        first, ended = runs[:1_200], runs[0]
        assert await postgres.submit(first) == [run.id for run in first]
        claims = await postgres.claim(a_worker(), 1, HOUR, "strict")
        assert await postgres.report([success(claim) for claim in claims]) == ["accepted"]
        assert await postgres.submit(runs) == [run.id for run in runs]
        assert await postgres.count_runs("default") == {"pending": 1_499, "succeeded": 1}
        assert (await seen(postgres, ended)).state == "succeeded"
        while await postgres.number_events(1_000):
            pass
        events = [event for batch in await postgres.events_since(0, 1_000) for event in batch.events]
        told_of = [event.run_id or "" for event in events if event.kind == "run.submitted"]
        assert sorted(told_of) == sorted(run.id for run in runs), "each of them once"

    async def test_an_error_leaves_nothing_of_it(self, postgres: PostgresStore, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(1_100)]
        runs[-1] = a_run(clock, args="\0")
        with pytest.raises(MainspringError):
            await postgres.submit(runs)
        assert await postgres.count_runs("default") == {}


class TestGathered:
    """What arrives while another submission is under way shares the next transaction."""

    async def test_many_callers_share_few_transactions(self, postgres: PostgresStore, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(50)]
        answers = await asyncio.gather(*(postgres.submit([run]) for run in runs))
        assert answers == [[run.id] for run in runs]
        assert await states(postgres, *runs) == ["pending"] * 50
        assert await transactions(postgres) <= 3

    async def test_one_that_is_refused_does_not_spoil_the_others(
        self, postgres: PostgresStore, clock: ManualClock
    ) -> None:
        first = a_run(clock, idempotency_key="k", task="decode")
        await submit(postgres, first)
        good = [a_run(clock), in_line(clock, "key:a"), gated(clock, "g"), a_run(clock)]
        bad = [a_run(clock, after=(new_id(clock),)), a_run(clock, idempotency_key="k")]
        mixed = [good[0], bad[0], good[1], good[2], bad[1], good[3]]
        asked = (postgres.submit([run]) for run in mixed)
        answers = await asyncio.gather(*asked, return_exceptions=True)
        refusals = [type(answer) for answer in answers if isinstance(answer, Exception)]
        assert refusals == [InvalidInput, Conflict]
        assert [answer for answer in answers if isinstance(answer, list)] == [[run.id] for run in good]
        assert await states(postgres, *good) == ["pending"] * 4
        with pytest.raises(NotFound):
            await seen(postgres, bad[0])

    async def test_a_caller_that_goes_away_takes_nobody_along(
        self, postgres: PostgresStore, clock: ManualClock
    ) -> None:
        runs = [a_run(clock) for _ in range(6)]
        tasks = [asyncio.ensure_future(postgres.submit([run])) for run in runs]
        await asyncio.sleep(0)
        tasks[0].cancel()
        tasks[3].cancel()
        answers = await asyncio.gather(*tasks, return_exceptions=True)
        rest = [1, 2, 4, 5]
        assert [answers[n] for n in rest] == [[runs[n].id] for n in rest]
        assert await states(postgres, *(runs[n] for n in rest)) == ["pending"] * 4


class TestInACallersTransaction:
    """Committed with what the caller writes, or not at all."""

    async def test_asyncpg_commits_both(
        self, postgres: PostgresStore, clock: ManualClock, theirs: asyncpg.Connection
    ) -> None:
        runs = [a_run(clock), in_line(clock, "key:a"), gated(clock, "g")]
        async with theirs.transaction():
            await theirs.execute("INSERT INTO orders VALUES (1)")
            assert await postgres.submit_within(theirs, runs) == [run.id for run in runs]
            with pytest.raises(NotFound):
                await seen(postgres, runs[0])
        assert await states(postgres, *runs) == ["pending"] * 3
        assert [event.kind for event in await new_events(postgres)] == ["run.submitted"] * 3
        await postgres.report([success(await take_one(postgres))])

    async def test_asyncpg_rolls_both_back(
        self, postgres: PostgresStore, clock: ManualClock, theirs: asyncpg.Connection
    ) -> None:
        run = a_run(clock)
        transaction = theirs.transaction()
        await transaction.start()
        await theirs.execute("INSERT INTO orders VALUES (1)")
        await postgres.submit_within(theirs, [run])
        await transaction.rollback()
        with pytest.raises(NotFound):
            await seen(postgres, run)
        assert await new_events(postgres) == []

    async def test_a_refusal_leaves_the_callers_transaction_as_it_was(
        self, postgres: PostgresStore, clock: ManualClock, theirs: asyncpg.Connection
    ) -> None:
        good, bad = a_run(clock, idempotency_key="k"), a_run(clock, after=(new_id(clock),))
        async with theirs.transaction():
            await theirs.execute("INSERT INTO orders VALUES (1)")
            with pytest.raises(InvalidInput):
                await postgres.submit_within(theirs, [good, bad])
        assert await theirs.fetchval("SELECT count(*) FROM orders") == 1
        assert await postgres.count_runs("default") == {}
        again = a_run(clock, idempotency_key="k")
        assert await submit(postgres, again) == [again.id]

    @pytest.mark.parametrize("autocommit", [False, True])
    async def test_psycopg_commits_or_rolls_back_both(
        self,
        postgres: PostgresStore,
        postgres_url: str,
        clock: ManualClock,
        theirs: asyncpg.Connection,
        autocommit: bool,
    ) -> None:
        kept, gone = a_run(clock), [a_run(clock), in_line(clock, "key:a"), gated(clock, "g")]
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=autocommit) as connection:
            async with connection.transaction():
                await connection.execute("INSERT INTO orders VALUES (1)")
                assert await postgres.submit_within(connection, [kept]) == [kept.id]
            async with connection.transaction(force_rollback=True):
                await postgres.submit_within(connection, gone)
        assert await theirs.fetchval("SELECT count(*) FROM orders") == 1
        assert await states(postgres, kept) == ["pending"]
        assert await postgres.count_runs("default") == {"pending": 1}

    async def test_a_psycopg_connection_begins_by_itself(
        self, postgres: PostgresStore, postgres_url: str, clock: ManualClock
    ) -> None:
        kept, gone = in_line(clock, "key:a"), in_line(clock, "key:a")
        async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
            await postgres.submit_within(connection, [kept])
            await connection.commit()
            await postgres.submit_within(connection, [gone])
            await connection.rollback()
        assert await states(postgres, kept) == ["pending"]
        assert await postgres.count_runs("default") == {"pending": 1}

    async def test_a_connection_that_blocks_is_joined_too(
        self, postgres: PostgresStore, postgres_url: str, clock: ManualClock, theirs: asyncpg.Connection
    ) -> None:
        kept, gone = [a_run(clock), in_line(clock, "key:a"), gated(clock, "g")], a_run(clock)
        refused = [a_run(clock), a_run(clock, after=(new_id(clock),))]
        with psycopg.connect(postgres_url) as connection:
            connection.execute("INSERT INTO orders VALUES (1)")
            await postgres.submit_within(connection, kept)
            with pytest.raises(InvalidInput):
                await postgres.submit_within(connection, refused)
            assert await postgres.count_runs("default") == {}
            connection.commit()
            await postgres.submit_within(connection, [gone])
            connection.rollback()
        assert await theirs.fetchval("SELECT count(*) FROM orders") == 1
        assert await states(postgres, *kept) == ["pending"] * 3
        assert await postgres.count_runs("default") == {"pending": 3}

    async def test_code_without_a_loop_joins_through_app_sync(
        self, postgres: PostgresStore, postgres_url: str, theirs: asyncpg.Connection
    ) -> None:
        app = Mainspring(postgres_url)

        @app.task
        def bill(order: int) -> None: ...

        def order() -> str:
            with psycopg.connect(postgres_url) as connection:
                connection.execute("INSERT INTO orders VALUES (1)")
                run = app.sync(bill.options(connection=connection).submit, 1)
                connection.commit()
                app.sync(bill.options(connection=connection).submit, 2)
                connection.rollback()
            app.sync.close()
            return run.id

        run_id = await asyncio.to_thread(order)
        assert (await postgres.get_run("default", run_id)).args == '{"order":1}'
        assert await postgres.count_runs("default") == {"pending": 1}

    async def test_an_app_as_users_open_it_joins_every_kind_of_connection(
        self, postgres: PostgresStore, postgres_url: str, theirs: asyncpg.Connection
    ) -> None:
        """With the wrappers around its store, which `isinstance` of a protocol does not see through on Python 3.12."""
        async with Mainspring(postgres_url) as app, asyncpg.create_pool(postgres_url, min_size=1, max_size=1) as pool:

            @app.task
            def bill(order: int) -> None: ...

            async with theirs.transaction():
                await bill.options(connection=theirs).submit(1)
            async with pool.acquire() as pooled, pooled.transaction():
                await bill.options(connection=pooled).submit_many([{"order": 2}])
            async with await psycopg.AsyncConnection.connect(postgres_url) as connection:
                await connection.execute("SELECT 1")
                await bill.options(connection=connection).submit(3)
        assert await postgres.count_runs("default") == {"pending": 3}

    async def test_what_cannot_be_joined_is_refused(
        self, postgres: PostgresStore, postgres_url: str, clock: ManualClock, theirs: asyncpg.Connection
    ) -> None:
        run = a_run(clock)
        for connection in (theirs, object()):
            with pytest.raises(InvalidInput) as refusal:
                await postgres.submit_within(connection, [run])
            assert refusal.value.field == "connection"
        with psycopg.connect(postgres_url, autocommit=True) as blocking, pytest.raises(InvalidInput):
            await postgres.submit_within(blocking, [run])
        async with await psycopg.AsyncConnection.connect(postgres_url, autocommit=True) as idle:
            with pytest.raises(InvalidInput):
                await postgres.submit_within(idle, [run])
        assert await postgres.count_runs("default") == {}

    async def test_waiting_workers_hear_of_it_after_the_commit(
        self, postgres: PostgresStore, clock: ManualClock, theirs: asyncpg.Connection
    ) -> None:
        heard = asyncio.Event()
        loop = asyncio.get_running_loop()

        def hear() -> None:
            loop.call_soon_threadsafe(heard.set)

        stop = postgres.on_change(hear)
        async with theirs.transaction():
            await postgres.submit_within(theirs, [a_run(clock)])
        await asyncio.wait_for(heard.wait(), 10)
        stop()

    async def test_the_sdk_submits_in_it(
        self, postgres: PostgresStore, clock: ManualClock, theirs: asyncpg.Connection
    ) -> None:
        app = Mainspring("sqlite:///unused.db")

        @app.task
        def ship(order: int) -> None: ...

        give_back = app.borrow(postgres, clock)
        try:
            async with theirs.transaction():
                run = await ship.options(connection=theirs).submit(order=1)
                with pytest.raises(NotFound):
                    await stored_run(app, run.id)
            assert (await stored_run(app, run.id)).state == "pending"
        finally:
            give_back()
