"""History on PostgreSQL: partitions by day, made ahead and dropped whole."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from mainspring.conformance.store.samples import a_run, finish, new_id, seen, states, submit, take_one
from mainspring.core.ids import encode_time
from mainspring.core.instants import DAY, HOUR
from mainspring.core.model import LogLine
from mainspring.errors import NotFound
from mainspring.stores.postgres.history.days import SLACK, day_of, not_before
from mainspring.stores.postgres.history.partitions import DAYS_AHEAD, partition_name
from mainspring.stores.postgres.store import PostgresStore
from mainspring.testing.clock import ManualClock

TABLES = ("history", "history_tags", "attempts", "logs")
PATIENCE_S = 20.0
"""Far longer than cleaning takes, and shorter than any wait for a lock."""


@pytest.fixture
async def fresh(new_database: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    """A store whose database has no partitions yet."""
    store = await PostgresStore.open(new_database, clock, given_time=True)
    yield store
    await store.close()


@pytest.fixture
async def watcher(fresh: PostgresStore, new_database: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(new_database)
    yield connection
    await connection.close()


async def partitions(watcher: asyncpg.Connection) -> set[str]:
    rows = await watcher.fetch(
        "SELECT c.relname FROM pg_inherits JOIN pg_class AS c ON c.oid = inhrelid WHERE c.relkind = 'r'"
    )
    return {row[0] for row in rows if not row[0].endswith("_rest")}


async def clean(store: PostgresStore, keep: int = 3 * DAY) -> int:
    return await store.clean(keep, 100 * DAY, 100 * DAY, 1_000)


async def where(watcher: asyncpg.Connection, table: str) -> list[str]:
    """The partitions in which rows of a table lie."""
    query = f"SELECT DISTINCT relname FROM mainspring.{table} AS t JOIN pg_class AS c ON c.oid = t.tableoid"
    return [row[0] for row in await watcher.fetch(query)]


async def test_partitions_are_made_ahead(fresh: PostgresStore, watcher: asyncpg.Connection, clock: ManualClock) -> None:
    await clean(fresh)
    days = [day_of(clock.now()) + n * DAY for n in range(DAYS_AHEAD + 1)]
    assert await partitions(watcher) == {partition_name(table, day) for table in TABLES for day in days}
    run = a_run(clock)
    await submit(fresh, run)
    await finish(fresh, run)
    assert await where(watcher, "history") == [partition_name("history", days[0])]


async def test_a_day_whose_rows_came_before_its_partition_has_none(
    fresh: PostgresStore, watcher: asyncpg.Connection, clock: ManualClock
) -> None:
    run = a_run(clock)
    await submit(fresh, run)
    await finish(fresh, run)
    await clean(fresh)
    assert partition_name("history", day_of(clock.now())) not in await partitions(watcher)
    assert partition_name("history", day_of(clock.now()) + DAY) in await partitions(watcher)
    assert await states(fresh, run) == ["succeeded"]
    clock.advance(4 * DAY)
    assert await clean(fresh) == 1
    with pytest.raises(NotFound):
        await seen(fresh, run)


async def test_old_days_are_dropped_whole(
    fresh: PostgresStore, watcher: asyncpg.Connection, clock: ManualClock
) -> None:
    await clean(fresh)
    old_day = day_of(clock.now())
    old = a_run(clock)
    await submit(fresh, old)
    await finish(fresh, old)
    await fresh.record([LogLine(old.id, 1, clock.now(), "stdout", "text")], [])
    clock.advance(4 * DAY)
    young = a_run(clock)
    await submit(fresh, young)
    await finish(fresh, young)
    assert await clean(fresh) > 0
    left = await partitions(watcher)
    assert not {partition_name(table, old_day) for table in TABLES} & left
    with pytest.raises(NotFound):
        await seen(fresh, old)
    assert await fresh.list_logs(old.id) == []
    assert await states(fresh, young) == ["succeeded"]


async def test_what_an_unfinished_run_wrote_outlives_its_partition(
    fresh: PostgresStore, watcher: asyncpg.Connection, clock: ManualClock
) -> None:
    await clean(fresh)
    run, other = a_run(clock), a_run(clock)
    await submit(fresh, run)
    await take_one(fresh)
    await fresh.record([LogLine(each.id, 1, clock.now(), "stdout", "text") for each in (run, other)], [])
    clock.advance(4 * DAY)
    await clean(fresh)
    assert await where(watcher, "logs") == ["logs_rest"]
    assert len(await fresh.list_logs(run.id)) == 1
    assert await fresh.list_logs(other.id) == []


async def test_cleaning_waits_for_nobody(fresh: PostgresStore, watcher: asyncpg.Connection, clock: ManualClock) -> None:
    await clean(fresh)
    clock.advance(4 * DAY)
    transaction = watcher.transaction()
    await transaction.start()
    await watcher.fetchval("SELECT count(*) FROM mainspring.history")
    async with asyncio.timeout(PATIENCE_S):
        await clean(fresh)
    run = a_run(clock)
    await submit(fresh, run)
    await finish(fresh, run)
    await transaction.rollback()
    assert await states(fresh, run) == ["succeeded"]
    await clean(fresh)
    assert partition_name("history", day_of(clock.now()) - 4 * DAY) not in await partitions(watcher)


async def test_runs_of_several_days_are_read_alike(
    fresh: PostgresStore, watcher: asyncpg.Connection, clock: ManualClock
) -> None:
    runs = []
    for _ in range(4):
        await clean(fresh, keep=30 * DAY)
        run = a_run(clock)
        await submit(fresh, run)
        await finish(fresh, run)
        runs.append(run)
        clock.advance(DAY)
    assert len(await where(watcher, "history")) == 4
    assert await states(fresh, *runs) == ["succeeded"] * 4
    assert {run.id for run in await fresh.finished([run.id for run in runs])} == {run.id for run in runs}
    assert [len(await fresh.list_attempts(run.id)) for run in runs] == [1] * 4
    assert await submit(fresh, *runs) == [run.id for run in runs]
    assert await fresh.count_runs("default") == {"succeeded": 4}


class TestWhichDaysToLookAt:
    """A run cannot have ended before its id was made, as far as clocks agree."""

    def test_days_before_an_id_are_left_out(self, clock: ManualClock) -> None:
        now = clock.now()
        assert not_before([new_id(clock)], now) == day_of(now - SLACK)
        clock.advance(10 * DAY)
        ids = [new_id(clock), encode_time(now) + "0" * 16]
        assert not_before(ids, clock.now()) == day_of(now - SLACK)

    def test_an_id_of_a_clock_that_is_ahead_is_looked_for(self, clock: ManualClock) -> None:
        now = clock.now()
        assert not_before([encode_time(now + HOUR) + "0" * 16], now) < now
        assert not_before([encode_time(now + 30 * DAY) + "0" * 16], now) == 0

    def test_an_id_without_a_time_is_looked_for_everywhere(self, clock: ManualClock) -> None:
        for odd in ("", "x", "UPPERCASE-AND-OTHERS", "0"):
            assert not_before([odd], clock.now()) == 0
