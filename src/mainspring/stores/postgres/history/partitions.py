"""Partitions by day: created ahead, and dropped whole at the end of their retention.

Both need, for a moment, a lock that blocks all other transactions. So they wait for it only briefly, and try again at
the next pass: rows of a day without a partition go to the default one, from which they are deleted.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from functools import partial

from mainspring.core.instants import DAY, SECOND, Instant
from mainspring.errors import StoreUnavailable
from mainspring.stores.postgres.history.days import day_of
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "maintenance")
DAYS_AHEAD = 2
_PATIENCE = "SET LOCAL lock_timeout = '200ms'"
_ALONE = "SELECT pg_try_advisory_xact_lock(hashtextextended('mainspring/partitions', 2))"
_AGES = {"history": "finished_at", "history_tags": "finished_at", "attempts": "finished_at", "logs": "at"}
"""The tables that have partitions, and what they are divided by."""
_OF_RUNS = ("attempts", "logs")


def partition_name(table: str, day: Instant) -> str:
    """What the partition of a day is called."""
    return f"{table}_{datetime.fromtimestamp(day // SECOND, UTC):%Y%m%d}"


def day_of_partition(partition: str) -> Instant | None:
    """The day that a partition is of; None of the default one."""
    day = partition.rpartition("_")[2]
    return int(datetime.strptime(day + "+0000", "%Y%m%d%z").timestamp()) * SECOND if day.isdecimal() else None


async def make_partitions(db: Database) -> None:
    """Partitions for today and the next days, unless the default one has rows of that day already."""
    now = db.clock.now()
    existing = {row[1] for row in await db.read(lambda tx: tx.fetch(_Q["partitions"]))}
    for number in range(DAYS_AHEAD + 1):
        day = day_of(now) + number * DAY
        for table in _AGES:
            if partition_name(table, day) not in existing:
                await _make(db, table, day)


async def _make(db: Database, table: str, day: Instant) -> None:
    with suppress(StoreUnavailable):  # A reader holds a lock.
        await db.write(partial(make_partition, table=table, day=day), patient=True)


async def make_partition(tx: Transaction, table: str, day: Instant) -> None:
    """Make the partition of a day, unless the default one has rows of that day already. Statements that were about to
    insert such rows there then fail once, and are tried again (`server.database`)."""
    age, partition = _AGES[table], partition_name(table, day)
    taken = f"SELECT EXISTS (SELECT FROM mainspring.{table}_rest WHERE {age} >= $1 AND {age} < $2)"
    if not await _begin(tx, partition, exists=False) or await tx.fetchval(taken, day, day + DAY):
        return
    # Attached, not created in place: that would lock the whole table against readers.
    await tx.run(
        f"CREATE TABLE mainspring.{partition} (LIKE mainspring.{table} INCLUDING DEFAULTS INCLUDING CONSTRAINTS)"
    )
    await tx.run(
        f"ALTER TABLE mainspring.{table} ATTACH PARTITION mainspring.{partition} "
        f"FOR VALUES FROM ({day}) TO ({day + DAY})"
    )


async def _begin(tx: Transaction, partition: str, *, exists: bool) -> bool:
    """Whether this process may make or drop a partition: no other does, and it exists, or not, as expected."""
    if not await tx.fetchval(_ALONE):
        return False
    await tx.run(_PATIENCE)
    found = await tx.fetchval("SELECT to_regclass($1) IS NOT NULL", f"mainspring.{partition}")
    return bool(found) == exists


async def index_tails(db: Database) -> None:
    """Index the short forms of ids in days that are over, so that no run pays for it when it ends."""
    today = partition_name("history", day_of(db.clock.now()))
    for table, partition, _ in await db.read(lambda tx: tx.fetch(_Q["partitions"])):
        if table == "history" and not partition.endswith("_rest") and partition < today:
            with suppress(StoreUnavailable):
                await db.write(partial(_index_tails, partition=partition), patient=True)


async def _index_tails(tx: Transaction, partition: str) -> None:
    index = f"{partition}_by_tail"
    if await tx.fetchval("SELECT to_regclass($1) IS NULL", f"mainspring.{index}"):
        await tx.run(_PATIENCE)
        await tx.run(f"CREATE INDEX IF NOT EXISTS {index} ON mainspring.{partition} (right(id, 8))")


async def drop_partitions(db: Database, before: Instant) -> int:
    """Drop whole days that ended before an instant; returns about how many rows they had."""
    gone = 0
    for table, partition, rows in await db.read(lambda tx: tx.fetch(_Q["partitions"])):
        if partition.endswith("_rest") or partition >= partition_name(table, day_of(before)):
            continue
        with suppress(StoreUnavailable):
            if await db.write(partial(_drop, table=table, partition=partition), patient=True) and table == "history":
                gone += max(rows, 1)
    return gone


async def _drop(tx: Transaction, table: str, partition: str) -> bool:
    """Rows of unfinished runs stay, in the default partition."""
    if not await _begin(tx, partition, exists=True):
        return False
    await tx.run(f"ALTER TABLE mainspring.{table} DETACH PARTITION mainspring.{partition}")
    if table in _OF_RUNS:
        await tx.run(
            f"INSERT INTO mainspring.{table} SELECT * FROM mainspring.{partition} AS old "
            "WHERE EXISTS (SELECT FROM mainspring.runs AS r WHERE r.id = old.run_id)"
        )
    await tx.run(f"DROP TABLE mainspring.{partition}")
    return True
