"""Backups of a PostgreSQL database: our schema by COPY, all tables in one repeatable-read transaction.

A restore replays the migrations that the backup had, in one transaction with the rows. Until the restored store is
settled, a row in its table of migrations keeps every program out: see `UNUSABLE`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from mainspring.clock import Clock
from mainspring.core.instants import Instant
from mainspring.core.runs.outcome import Next
from mainspring.core.states import CANCELLED
from mainspring.errors import Conflict, InvalidInput, NotFound, StoreMismatch
from mainspring.ops.backup.archive import Progress, Writer, check_file, unpacked
from mainspring.ops.backup.manifest import Manifest, Part, Partition, Snapshot
from mainspring.ops.backup.settling import EPOCH_STEP, Settled, after_jobs_in, settle
from mainspring.process.urls import show_url
from mainspring.store import Store
from mainspring.stores.postgres.ends.endings import end_unstarted
from mainspring.stores.postgres.server.connection import (
    UNUSABLE,
    Connection,
    Server,
    close_quietly,
    connect,
    is_pooled,
    migrate,
    schema_status,
)
from mainspring.stores.postgres.server.database import Database, Limits, Transaction
from mainspring.stores.postgres.server.errors import mapped_errors
from mainspring.stores.postgres.store import PostgresStore
from mainspring.stores.sql import load_migrations

PATIENCE_S = 6 * 3600.0
"""A table of a hundred million rows takes an hour; a server that is gone is noticed by its connection."""
_LEFT_OUT = ("migrations", "functions", "offers")
"""The tables that a restore fills by itself, or that describe processes which no longer exist."""
_SCHEMA = (
    "SELECT c.{} FROM pg_class AS c JOIN pg_namespace AS n ON n.oid = c.relnamespace WHERE n.nspname = 'mainspring'"
)
_TABLES = _SCHEMA.format("relname") + " AND c.relkind IN ('r', 'p') AND NOT c.relispartition ORDER BY 1"
_SEQUENCES = "SELECT sequencename, coalesce(last_value, 0) FROM pg_sequences WHERE schemaname = 'mainspring' ORDER BY 1"
_PARTITIONS = """
SELECT c.relname, p.relname, pg_get_expr(c.relpartbound, c.oid) FROM pg_inherits AS i
JOIN pg_class AS c ON c.oid = i.inhrelid JOIN pg_class AS p ON p.oid = i.inhparent
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'mainspring' AND c.relkind = 'r' ORDER BY 1
"""
_COLUMNS = """
SELECT attname FROM pg_attribute
WHERE attrelid = ('mainspring.' || $1)::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


async def _open(url: str) -> Connection:
    """A connection that may take its time: to read or write whole tables in one transaction."""
    connection = await connect(Server(url, pooled=True, statement_s=PATIENCE_S))
    if await is_pooled(connection):
        await close_quietly(connection)
        raise InvalidInput("store", show_url(url), "is a pooler", "name the server itself with --store")
    await connection.execute("SET statement_timeout = 0; SET idle_in_transaction_session_timeout = 0; SET jit = off")
    return connection


async def dump(url: str, folder: Path, progress: Progress) -> Snapshot:
    """Write our schema into the folder of a backup, as one snapshot."""
    with mapped_errors(url):
        connection = await _open(url)
        try:
            status = await schema_status(connection, show_url(url))
            if not status.version:
                raise NotFound(f"there is nothing of Mainspring's at {show_url(url)}: name the database with --store")
            if status.refusal:
                raise StoreMismatch(f"{show_url(url)} {status.refusal}, or restore it again if a restore was cut off")
            async with connection.transaction(isolation="repeatable_read", readonly=True):
                return await _dump(connection, folder, progress)
        finally:
            await close_quietly(connection)


async def _dump(connection: Connection, folder: Path, progress: Progress) -> Snapshot:
    taken_at = await connection.fetchval("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
    tables = [row[0] for row in await connection.fetch(_TABLES) if row[0] not in _LEFT_OUT]
    parts, rows = [], {}
    for number, table in enumerate(tables):
        progress("Copying", number, len(tables))
        columns = tuple(row[0] for row in await connection.fetch(_COLUMNS, table))
        rows[table], content = await _fingerprint(connection, table)
        listed = ", ".join(f'"{column}"' for column in columns)
        query = f"SELECT {listed} FROM mainspring.{table}"
        with Writer(folder / f"{table}.copy.gz") as writer:

            async def write(data: bytes, writer: Writer = writer) -> None:
                writer.write(data)

            await connection.copy_from_query(query, output=write, timeout=PATIENCE_S)
            parts.append(Part(writer.path.name, *writer.close(), content, table, columns))
    return Snapshot(
        taken_at=taken_at,
        migrations=tuple(
            row[0] for row in await connection.fetch("SELECT version FROM mainspring.migrations ORDER BY 1")
        ),
        rows=rows,
        parts=tuple(parts),
        # A sequence is not part of the snapshot: it may be ahead of it, never behind.
        sequences={row[0]: row[1] for row in await connection.fetch(_SEQUENCES)},
        partitions=tuple(Partition(*row) for row in await connection.fetch(_PARTITIONS)),
    )


async def _fingerprint(connection: Connection, table: str) -> tuple[int, str]:
    """The number of rows of a table, and a digest of them in any order."""
    query = (
        f"SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM mainspring.{table} AS t"
    )
    row = await connection.fetchrow(query, timeout=PATIENCE_S)
    return int(row[0]), str(row[1])


def verify(folder: Path, manifest: Manifest, progress: Progress) -> None:
    """Prove the files of a backup: their digests, and the number of rows in each. InvalidInput if one is damaged.
    The digests of rows need a server: a restore compares them."""
    for number, part in enumerate(manifest.parts):
        progress("Verifying", number, len(manifest.parts))
        check_file(folder / part.file, part.bytes, part.sha256)
        # COPY ends each row with a line feed, and escapes those within.
        rows = sum(data.count(b"\n") for data in unpacked(folder / part.file))
        if rows != manifest.rows[part.table]:
            problem = f"has {rows} rows of {part.table}, not {manifest.rows[part.table]}"
            raise InvalidInput("backup", str(folder), problem, "choose another backup")


async def restore(
    folder: Path, manifest: Manifest, url: str, clock: Clock, progress: Progress, *, moved: bool
) -> Settled:
    """Restore to a database that has nothing of Mainspring."""
    verify(folder, manifest, progress)
    with mapped_errors(url):
        connection = await _open(url)
        try:
            await _check_empty(connection, manifest, show_url(url))
            async with connection.transaction():
                await _load(connection, folder, manifest, clock.now(), progress)
            await migrate(connection, clock.now())
            settled = await _settle(url, manifest, clock, progress, moved=moved)
            await connection.execute("DELETE FROM mainspring.migrations WHERE version = $1", UNUSABLE)
        finally:
            await close_quietly(connection)
    return settled


async def _settle(url: str, manifest: Manifest, clock: Clock, progress: Progress, *, moved: bool) -> Settled:
    database = Database(Server(url, pooled=False), clock, limits=Limits(), listen=None, given_time=False)
    store = PostgresStore(database)
    try:
        await database.read(lambda tx: tx.fetchval("SELECT 1"))  # The first call asks the server for its time.
        return await settle(_Schema(store), manifest, progress, moved=moved)
    finally:
        await store.close()


async def _check_empty(connection: Connection, manifest: Manifest, shown: str) -> None:
    if await connection.fetchval("SELECT to_regnamespace('mainspring') IS NOT NULL"):
        found = await connection.fetchval(f"SELECT count(*) FROM ({_TABLES}) AS t")
        if found:
            raise Conflict(
                f"{shown} has {found} tables in the schema `mainspring`: a restore needs an empty place. Name an empty "
                "database with --store, or drop that schema"
            )
    known, version = load_migrations("postgres"), max(manifest.migrations)
    if version > known[-1].version:
        problem = f"the backup has schema version {version}, and this program knows {known[-1].version}"
        raise StoreMismatch(f"{problem}: install a newer mainspring")
    if version < known[0].version:
        problem = f"the backup has schema version {version}, and this program upgrades from {known[0].version} on"
        raise StoreMismatch(f"{problem}: restore it with an older mainspring, and upgrade that")


async def _load(connection: Connection, folder: Path, manifest: Manifest, now: Instant, progress: Progress) -> None:
    await _replay(connection, manifest, now)
    for partition in manifest.partitions:
        await connection.execute(
            f"CREATE TABLE IF NOT EXISTS mainspring.{partition.name} PARTITION OF mainspring.{partition.table} "
            f"{partition.bounds}"
        )
    await _switch_triggers(connection, "DISABLE")
    for number, part in enumerate(manifest.parts):
        progress("Restoring", number, len(manifest.parts))
        await connection.execute(f"DELETE FROM mainspring.{part.table}")  # What a migration put there.
        await connection.copy_to_table(
            part.table,
            schema_name="mainspring",
            columns=list(part.columns),
            source=_read(folder / part.file),
            timeout=PATIENCE_S,
        )
        if await _fingerprint(connection, part.table) != (manifest.rows[part.table], part.content):
            problem = f"gives other rows of {part.table} than were backed up"
            raise InvalidInput("backup", str(folder), problem, "choose another backup")
    await _switch_triggers(connection, "ENABLE")
    for part in manifest.parts:
        # Without statistics the server plans as for empty tables: to settle 20,000 due jobs then takes twice as long.
        await connection.execute(f"ANALYZE mainspring.{part.table}")
    for sequence, value in manifest.sequences.items():
        if value:
            await connection.execute("SELECT setval(('mainspring.' || $1::text)::regclass, $2)", sequence, value)


async def _replay(connection: Connection, manifest: Manifest, now: Instant) -> None:
    """The schema as the backup had it, and the row that keeps programs out."""
    await connection.execute(
        "CREATE SCHEMA IF NOT EXISTS mainspring; "
        "CREATE TABLE mainspring.migrations (version integer PRIMARY KEY, name text NOT NULL, "
        "oldest integer NOT NULL, applied_at bigint NOT NULL)"
    )
    applied = "INSERT INTO mainspring.migrations VALUES ($1, $2, $3, $4)"
    for migration in load_migrations("postgres"):
        if migration.version in manifest.migrations:
            await connection.execute(migration.script.replace("CONCURRENTLY ", ""))
            await connection.execute(applied, migration.version, migration.name, migration.oldest, now)
    await connection.execute(applied, UNUSABLE, "restoring", UNUSABLE, now)


async def _switch_triggers(connection: Connection, verb: str) -> None:
    """Triggers count and index rows that are written: the backup has those counts and rows already."""
    for row in await connection.fetch(_SCHEMA.format("relname") + " AND c.relkind IN ('r', 'p')"):
        await connection.execute(f"ALTER TABLE mainspring.{row[0]} {verb} TRIGGER USER")


async def _read(path: Path) -> AsyncIterator[bytes]:
    for data in unpacked(path):
        yield data


class _Schema:
    """See `settling.Ground`."""

    def __init__(self, store: PostgresStore) -> None:
        self.store: Store = store
        self._db = store._db

    async def fence(self, fact: str) -> None:
        await self._db.write(lambda tx: _fence(tx, fact), patient=True)

    async def due_runs(self, until: Instant) -> list[str]:
        query = "SELECT id FROM mainspring.runs WHERE state <> 'running' AND due_at <= $1 ORDER BY seq DESC"
        return [row[0] for row in await self._db.read(lambda tx: tx.fetch(query, until))]

    async def cancel(self, run_ids: Sequence[str], reason: str) -> None:
        verdict = Next(CANCELLED, reason)
        endings = [(run_id, verdict) for run_id in run_ids]
        await self._db.write(lambda tx: end_unstarted(tx, endings), patient=True)

    async def abandon_claims(self, reason: str) -> int:
        query = (
            "UPDATE mainspring.runs SET claimed_until = 0, cancel_requested_at = $1, cancel_reason = $2 "
            "WHERE state = 'running'"
        )
        return await self._db.write(lambda tx: tx.run(query, tx.now, reason), patient=True)

    async def skip_after_jobs(self, reason: str) -> int:
        return await self._db.write(lambda tx: _skip_after_jobs(tx, reason), patient=True)


async def _fence(tx: Transaction, fact: str) -> None:
    for table, column in (("terms", "number"), ("leases", "token"), ("runs", "token")):
        await tx.run(f"UPDATE mainspring.{table} SET {column} = {column} + $1::bigint", EPOCH_STEP)
    await tx.run("UPDATE mainspring.leases SET expires_at = 0")
    await tx.run("UPDATE mainspring.workers SET state = 'dead' WHERE state IN ('active', 'draining')")
    # Events that are not public yet have no position: they get theirs after the step.
    await tx.run("UPDATE mainspring.counters SET value = value + $1::bigint WHERE name = 'event_position'", EPOCH_STEP)
    await tx.run(
        "INSERT INTO mainspring.facts VALUES ('restored', $1) ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        fact,
    )


async def _skip_after_jobs(tx: Transaction, reason: str) -> int:
    rows = await tx.fetch(
        'SELECT id, "trigger", policy, next_fire_at FROM mainspring.jobs WHERE next_fire_at IS NOT NULL'
    )
    due = after_jobs_in(rows)
    await tx.many(
        "INSERT INTO mainspring.firings (job_id, fire_at, region, kind, outcome, reason, created_at, finished_at) "
        "VALUES ($1, $2, $3, 'after', 'skipped', $4, $5, $5) ON CONFLICT DO NOTHING",
        [(*each, reason, tx.now) for each in due],
    )
    await tx.run("UPDATE mainspring.jobs SET next_fire_at = NULL WHERE id = ANY ($1)", [each[0] for each in due])
    await tx.run("UPDATE mainspring.upstreams SET consumed_at = greatest(consumed_at, latest_at)")
    return len(due)
