"""Lists and counts of finished runs are answered by an index, whatever they ask for: how many pages they touch does not
depend on how many runs there are, also where nothing matches."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any, cast

import asyncpg
import msgspec
import pytest
from postgres_server import Servers, create_shared, drop_database, in_database, literal

from mainspring.core.answers import DELAYS
from mainspring.core.ids import TAIL, encode_time
from mainspring.core.instants import DAY, HOUR, MINUTE, Instant
from mainspring.core.states import FINAL, State
from mainspring.operations.runs import MOST_COUNTED
from mainspring.store import RunFilter
from mainspring.stores.postgres.history.days import SLACK, day_of
from mainspring.stores.postgres.history.partitions import DAYS_AHEAD, partition_name
from mainspring.stores.postgres.history.runs import _COUNTS, _list_rows, _list_runs
from mainspring.stores.postgres.server.connection import Server, connect
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.postgres.store import PostgresStore
from mainspring.stores.sql import load_queries
from mainspring.testing.clock import ManualClock

DAYS, A_DAY = 30, 4_000
NOW: Instant = ManualClock().now()
FIRST = day_of(NOW) - (DAYS - 1) * DAY
PAGES = 2_500
"""Warm, some 10 ms. The table of this test has five times as many, that of a million runs fifty times."""

_FILL = f"""
INSERT INTO mainspring.history (id, finished_at, namespace, queue, region, task, args, options, state, outcome, reason,
                                priority, due_at, started_at, idx, token, attempt, losses, cancel_reason,
                                progress_note, job_id, job, created_at)
SELECT {{time}} || lpad((n * 7919 % 1000003)::text, 10, '0') || lpad(n::text, 6, '0'),
       CASE WHEN n % 20 = 9 THEN {{at}} + {MINUTE} ELSE {{at}} END, 'default',
       CASE WHEN n % 2 = 0 THEN 'even' ELSE 'default' END,
       CASE WHEN n % 20 = 3 THEN 'north' ELSE 'default' END, 'task-' || n % 20, '{{{{"video":"v1"}}}}',
       CASE WHEN n % 3 = 0 THEN '{{{{"tags":["popular"]}}}}' WHEN n % 100 > 50 THEN '{{{{"tags":["succeeding"]}}}}'
            WHEN n = 1 THEN '{{{{"tags":["rare"],"submitted_by":"ann"}}}}'
            WHEN n % 6 = 1 THEN '{{{{"tags":["odd"],"submitted_by":"busy"}}}}'
            WHEN n % 2 = 1 THEN '{{{{"tags":["odd"]}}}}' WHEN n % 3 = 1 THEN '{{{{"submitted_by":"busy"}}}}'
            ELSE '{{{{}}}}' END,
       CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'succeeded' END, 'succeeded', repeat('x', 200), 5,
       CASE WHEN n % 20 = 7 THEN {{at}} - {MINUTE} ELSE {{at}} END, {{at}}, 0, 1, 1, 0,
       '', '', CASE WHEN n % 2 = 0 THEN 'job-' || n % 50 END, CASE WHEN n % 2 = 0 THEN 'job-' || n % 50 END, {{at}}
FROM generate_series(1, {A_DAY}) AS n"""

FILTERS = {
    "all": RunFilter(),
    "the next page": RunFilter(before=encode_time(NOW - 9 * DAY)),
    "since": RunFilter(since=encode_time(NOW - DAY), states=("failed",)),
    "another namespace": RunFilter("nobody"),
    "a state": RunFilter(states=("failed",)),
    "a state that no run has": RunFilter(states=("cancelled", "skipped")),
    "a task": RunFilter(task="task-3"),
    "a task that is unknown": RunFilter(task="missing"),
    "a task in a state": RunFilter(task="task-0", states=("failed",)),
    "a task never in a state": RunFilter(task="task-3", states=("failed",)),
    "a job": RunFilter(job="job-4"),
    "a job that is unknown": RunFilter(job="missing"),
    "a job never in a state": RunFilter(job="job-4", states=("failed", "skipped")),
    "a queue": RunFilter(queue="default"),
    "a queue that is unknown": RunFilter(queue="missing"),
    "a tag": RunFilter(tag="popular"),
    "a rare tag": RunFilter(tag="rare"),
    "a tag that is unknown": RunFilter(tag="missing"),
    "a tag and a state": RunFilter(tag="popular", states=("failed",)),
    "a tag never in a state": RunFilter(tag="popular", states=("cancelled",)),
    "a tag and a task": RunFilter(tag="popular", task="task-3"),
    "a tag that no run of a task has": RunFilter(tag="odd", task="task-4"),
    "a tag that no run of a queue has": RunFilter(tag="odd", queue="even"),
    "a tag never in a state that many have": RunFilter(tag="succeeding", states=("failed",)),
    "a worker": RunFilter(worker="missing"),
    "a key": RunFilter(key="missing"),
    "late ones": RunFilter(late="1m"),
    "long ones": RunFilter(took="1h"),
    "late ones that took long": RunFilter(late="1m", took="1m"),
    "late ones that took longer": RunFilter(late="1m", took="1h"),
    "a region": RunFilter(region="north"),
    "a region that is unknown": RunFilter(region="missing"),
    "a region and a task": RunFilter(region="north", task="task-3"),
    "a region where a task never ran": RunFilter(region="north", task="task-4"),
    "a region where a queue was never used": RunFilter(region="north", queue="even"),
    "a region never in a state": RunFilter(region="north", states=("failed",)),
    "a submitter": RunFilter(submitted_by="busy"),
    "a submitter that is unknown": RunFilter(submitted_by="missing"),
    "a submitter in a state": RunFilter(submitted_by="busy", states=("failed",)),
    "a submitter never in a state": RunFilter(submitted_by="busy", states=("cancelled", "skipped")),
    "a rare submitter": RunFilter(submitted_by="ann"),
}

COUNTED = {
    "all": RunFilter(limit=MOST_COUNTED),
    "a task": RunFilter(task="task-3", limit=MOST_COUNTED),
    "a state": RunFilter(states=("succeeded",), limit=MOST_COUNTED),
    "a task in a state": RunFilter(task="task-0", states=("failed",), limit=MOST_COUNTED),
    "a task that is unknown": RunFilter(task="missing", limit=MOST_COUNTED),
    "a tag": RunFilter(tag="popular", limit=MOST_COUNTED),
    "a tag in a state": RunFilter(tag="popular", states=("failed",), limit=MOST_COUNTED),
    "a rare tag": RunFilter(tag="rare", limit=MOST_COUNTED),
    "a tag that is unknown": RunFilter(tag="missing", limit=MOST_COUNTED),
    "a tag and a queue": RunFilter(tag="popular", queue="even", limit=MOST_COUNTED),
    "a tag and a queue since": RunFilter(tag="popular", queue="even", since=encode_time(FIRST), limit=MOST_COUNTED),
    "a state since": RunFilter(states=("succeeded",), since=encode_time(FIRST), limit=MOST_COUNTED),
    "a submitter": RunFilter(submitted_by="busy", limit=MOST_COUNTED),
}
COUNTED_PAGES = 1_500
"""To look at each of ten thousand runs would touch seven to twenty times as many."""
COUNTED_ENTRIES = MOST_COUNTED * 6 // 5
"""A count ends at its limit. To merge lists, it may read an entry or two of each of them in each partition."""


@pytest.fixture(scope="module")
def full(servers: Servers) -> Iterator[str]:
    """The URL of a database with a month of history. The last day is in the default partition, as on a day whose runs
    began to end before its own was made."""

    async def fill() -> str:
        name = await create_shared(servers.direct)
        connection = await asyncpg.connect(in_database(servers.direct, name), timeout=60)
        await connection.execute("SET synchronous_commit = off")
        for number in range(DAYS):
            day = FIRST + number * DAY
            for table in ("history", "history_tags") if number < DAYS - 1 else ():
                await connection.execute(
                    f"CREATE TABLE mainspring.{partition_name(table, day)} PARTITION OF mainspring.{table} "
                    f"FOR VALUES FROM ({day}) TO ({day + DAY})"
                )
            await connection.execute(_FILL.format(time=f"'{encode_time(day + HOUR)}'", at=day + 2 * HOUR), timeout=600)
        store = await PostgresStore.open(in_database(servers.direct, name), ManualClock(), given_time=True)
        await store.clean(100 * DAY, 100 * DAY, 100 * DAY, 1_000)
        await store.close()
        await connection.execute("VACUUM ANALYZE", timeout=600)
        await connection.close()
        return name

    name = asyncio.run(fill())
    yield in_database(servers.direct, name)
    asyncio.run(drop_database(servers.direct, name))


class Watched:
    """A transaction that counts the pages that its queries touch, and the rows that they find by indexes."""

    now = NOW

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._statements: dict[str, str] = {}
        self.pages = 0
        self.entries = 0
        self.days: set[str] = set()
        """The partitions that the latest plan names, and those that it left out only when it was executed."""

    async def fetch(self, query: str, *values: object) -> list[Any]:
        if query not in self._statements:
            self._statements[query] = f"watched_{len(self._statements)}"
            await self._connection.execute(f"PREPARE {self._statements[query]} AS {query}")
        given = f"({', '.join(map(literal, values))})" if values else ""
        explained = f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) EXECUTE {self._statements[query]} {given}"
        (plan,) = json.loads(await self._connection.fetchval(explained))
        self.pages += plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
        self.entries += entries_of(plan["Plan"])
        self.days = days_of(plan["Plan"])
        rows: list[Any] = await self._connection.fetch(query, *values)
        return rows

    async def fetchval(self, query: str, *values: object) -> Any:
        return (await self.fetch(query, *values))[0][0]


def entries_of(node: dict[str, Any]) -> int:
    """How many rows the indexes of a plan gave: those that fitted, and those that were read and did not."""
    own = node["Actual Rows"] + node.get("Rows Removed by Filter", 0) if "Index Name" in node else 0
    return int(own * node["Actual Loops"]) + sum(entries_of(child) for child in node.get("Plans", ()))


def days_of(node: dict[str, Any]) -> set[str]:
    """The partitions of history that a plan covers; those that it removes are counted, for they have no names."""
    own = {node["Relation Name"]} if str(node.get("Relation Name", "")).startswith("history_") else set()
    own |= {f"{node.get('Alias', 'removed')} {number}" for number in range(node.get("Subplans Removed", 0))}
    return own.union(*(days_of(child) for child in node.get("Plans", ())))


@pytest.fixture
async def watched(full: str) -> AsyncIterator[Watched]:
    """As the store makes its connections, and plans lists and counts: once, without their values."""
    connection = await connect(Server(full, pooled=False))
    await connection.execute("SET plan_cache_mode = force_generic_plan")
    yield Watched(connection)
    await connection.close()


@pytest.mark.parametrize("where", FILTERS.values(), ids=FILTERS)
async def test_a_list_touches_few_pages(watched: Watched, where: RunFilter) -> None:
    found = await _list_runs(cast(Transaction, watched), where)
    assert [run.id for run in found] == sorted((run.id for run in found), reverse=True)
    assert watched.pages < PAGES


@pytest.mark.parametrize("states", [("failed",), ()], ids=["of a state", "of many classes"])
async def test_a_list_of_recent_runs_is_planned_for_recent_days(watched: Watched, states: tuple[State, ...]) -> None:
    where = RunFilter(since=encode_time(NOW - DAY), states=states)
    assert await _list_runs(cast(Transaction, watched), where)
    assert 0 < len(watched.days) <= SLACK // DAY + DAYS_AHEAD + 2  # Yesterday besides; the default one has today.
    assert await _list_runs(cast(Transaction, watched), msgspec.structs.replace(where, since=encode_time(FIRST)))
    assert len(watched.days) >= DAYS


async def test_a_list_is_what_a_look_at_every_row_finds(watched: Watched) -> None:
    for where in FILTERS.values():
        rows = await watched._connection.fetch(
            """SELECT id FROM mainspring.history
               WHERE namespace = $1 AND ($2::text[] = '{}' OR state = ANY ($2)) AND ($3::text IS NULL OR job = $3)
                 AND ($4::text IS NULL OR task = $4) AND ($5::text IS NULL OR options::jsonb -> 'tags' ? $5)
                 AND ($6::text IS NULL OR queue = $6) AND ($7::text IS NULL OR worker = $7)
                 AND id < coalesce($8, '~') AND id >= coalesce($9, '') AND ($10::text IS NULL OR key = $10)
                 AND ($11::text IS NULL OR options::jsonb ->> 'submitted_by' = $11)
                 AND ($12::text IS NULL OR region = $12) AND ($13::bigint IS NULL OR started_at - due_at >= $13)
                 AND ($14::bigint IS NULL OR finished_at - started_at >= $14)
               ORDER BY id DESC LIMIT 50""",
            *(where.namespace, list(where.states), where.job, where.task, where.tag, where.queue, where.worker),
            *(where.before, where.since, where.key, where.submitted_by, where.region),
            *(each and DELAYS[each] for each in (where.late, where.took)),
        )
        found = await _list_runs(cast(Transaction, watched), where)
        assert [run.id for run in found] == [row[0] for row in rows], where


async def test_a_count_touches_few_pages(watched: Watched) -> None:
    rows = await watched.fetch(load_queries("postgres", "runs")["count_states"], "default", 10)
    assert {row[0]: row[1] for row in rows if row[0] in FINAL} == {
        "succeeded": DAYS * A_DAY * 99 // 100,
        "failed": DAYS * A_DAY // 100,
    }
    assert watched.pages < PAGES


@pytest.mark.parametrize("where", COUNTED.values(), ids=COUNTED)
async def test_a_count_by_a_filter_touches_few_pages(watched: Watched, where: RunFilter) -> None:
    rows = await _list_rows(cast(Transaction, watched), where, _COUNTS)
    tag = where.tag and f'%"{where.tag}"%'
    query = """SELECT count(*) FROM mainspring.history WHERE namespace = 'default' AND ($1::text IS NULL OR task = $1)
               AND ($2::text IS NULL OR options LIKE $2) AND ($3::text[] = '{}' OR state = ANY ($3))
               AND ($4::text IS NULL OR queue = $4) AND ($5::text IS NULL OR options::jsonb ->> 'submitted_by' = $5)"""
    asked = (where.task, tag, list(where.states), where.queue, where.submitted_by)
    there = await watched._connection.fetchval(query, *asked)
    assert min(sum(row[0] for row in rows), where.limit) == min(there, where.limit)
    assert watched.entries < COUNTED_ENTRIES
    if where.submitted_by is None:  # A submitter is found by an index, and the row has to agree.
        assert watched.pages < COUNTED_PAGES


async def test_a_count_by_region_is_answered_by_its_index_alone(watched: Watched) -> None:
    rows = await _list_rows(cast(Transaction, watched), RunFilter(region="north", limit=MOST_COUNTED), _COUNTS)
    assert sum(row[0] for row in rows) == DAYS * A_DAY // 20
    assert watched.pages < 10 * DAYS


async def test_the_oldest_run_is_found_by_what_is_shown_of_its_id(watched: Watched) -> None:
    oldest = await watched._connection.fetchval("SELECT min(id) FROM mainspring.history")
    rows = await watched.fetch(
        load_queries("postgres", "runs")["find_tail"], "default", oldest[-TAIL:], 100, day_of(NOW)
    )
    assert oldest in {row[0] for row in rows}
    assert watched.pages < PAGES + A_DAY  # Today's are looked through, up to a bound.
