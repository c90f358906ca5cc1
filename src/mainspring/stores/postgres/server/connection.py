"""Connects to a server, and checks that it can be used and that its schema is ours and current."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple, TypeAlias

import asyncpg

from mainspring.errors import InvalidInput, StoreMismatch
from mainspring.process.urls import show_url
from mainspring.stores.postgres.server.errors import DRIVER_ERRORS, mapped_errors
from mainspring.stores.sql import Function, Migration, SchemaStatus, load_functions, load_migrations

Connection: TypeAlias = Any
"""An `asyncpg.Connection`: the driver ships no types."""

log = logging.getLogger("mainspring")

OLDEST_SERVER = 14
CONNECT_TIMEOUT_S = 5.0
COMMAND_TIMEOUT_S = 15.0
"""A statement that takes longer counts as lost: a connection may have been cut silently."""
IDLE_TIMEOUT_S = 3.0
"""A process that is suspended in a transaction would keep its locks, and all others would wait for them."""
LOCK = 0x4D535052
"""A migrating process holds the advisory lock of this number: "MSPR"."""
BUILD_TIMEOUT_S = 3_600.0
"""An index of many million rows takes minutes, and only the starting program waits for it."""
UNUSABLE = 2**31 - 1
"""A schema version that no program knows: a restore sets it until it has finished, to keep programs out."""
_APPLIED = "INSERT INTO mainspring.migrations VALUES ($1, $2, $3, $4)"
_DENIED = """
SELECT privilege || ' on ' || relname FROM pg_class, unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS privilege
WHERE relnamespace = to_regnamespace('mainspring') AND relkind IN ('r', 'p')
  AND NOT has_table_privilege(pg_class.oid, privilege)
ORDER BY relname, privilege
"""
SETTINGS = (
    f"idle_in_transaction_session_timeout = '{IDLE_TIMEOUT_S}s'",
    "jit = off",
    "enable_seqscan = off",
    "enable_bitmapscan = off",
)
"""Compiling a plan takes longer than any of our statements. A plan that was made while a table was small would read it
whole also when it has a million rows: a claim would take seconds. And rows that are found by a bitmap are locked in the
order of their places, not of their ids: two workers that end and renew the same runs would wait for each other."""


class Server(NamedTuple):
    """Where the database is, and what was found there."""

    url: str
    pooled: bool
    """Whether a pooler stands before it: then every transaction may meet another session."""
    durable: bool = True
    """Whether commits wait for the disk, as the server is configured; otherwise they do not wait."""
    statement_s: float = COMMAND_TIMEOUT_S
    """The server ends a statement after this time, too."""

    @property
    def shown(self) -> str:
        """The URL without its password."""
        return show_url(self.url)

    @property
    def settings(self) -> tuple[str, ...]:
        """The settings of our sessions or, behind a pooler, of our transactions."""
        bounded = (*SETTINGS, f"statement_timeout = '{round(self.statement_s * 1000)}ms'")
        return bounded if self.durable else (*bounded, "synchronous_commit = off")


async def connect(server: Server) -> Connection:
    """A connection with our settings; errors of the driver are ours to map."""
    connection = await _connect(server.url, cached=not server.pooled, command_s=server.statement_s)
    if not server.pooled:
        try:
            await connection.execute("; ".join(f"SET {setting}" for setting in server.settings))
        except BaseException:
            connection.terminate()
            raise
    return connection


async def _connect(url: str, *, cached: bool, command_s: float = COMMAND_TIMEOUT_S) -> Connection:
    try:
        return await asyncpg.connect(
            url,
            timeout=CONNECT_TIMEOUT_S,
            command_timeout=command_s,
            statement_cache_size=1000 if cached else 0,
            max_cached_statement_lifetime=0,
            server_settings={"application_name": "mainspring"},
        )
    except ValueError as error:  # What the driver says of a URL that it cannot read.
        remedy = "write it like postgresql://user@host:5432/database"
        raise InvalidInput("store", show_url(url), f"is not a usable URL ({error})", remedy) from error


async def prepare(url: str, now: int, *, durable: bool = True) -> Server:
    """Make sure that the database is ours and current, migrate it if not; how to connect to it from now on."""
    with mapped_errors(url):
        connection = await _connect(url, cached=False)
        try:
            server = Server(url, await is_pooled(connection), durable)
            await _check_server(connection, server.shown)
            status = await schema_status(connection, server.shown)
            if status.oldest == UNUSABLE:
                raise StoreMismatch(
                    f"{server.shown} is being restored, or a restore was cut off: wait for its end, or drop the schema "
                    "`mainspring` and restore again"
                )
            if status.refusal:
                raise StoreMismatch(f"{server.shown} {status.refusal}")
            if status.version < status.latest or await outdated_functions(connection, status):
                await migrate(connection, now)
            return server
        finally:
            await close_quietly(connection)


class Look(NamedTuple):
    """What a look at a database finds."""

    schema: SchemaStatus
    size: int
    """In bytes."""
    server: str
    """Product and version."""
    denied: tuple[str, ...]
    """What the role may not do, and must: `INSERT on runs`."""


async def look_at(url: str) -> Look:
    """The schema, size, server and missing permissions of a database, without changing anything."""
    with mapped_errors(url):
        connection = await _connect(url, cached=False)
        try:
            status = await schema_status(connection, show_url(url))
            pooled = " behind a pooler" if await is_pooled(connection) else ""
            async with connection.transaction():
                size, version = await connection.fetchrow(
                    "SELECT pg_database_size(current_database()), current_setting('server_version')"
                )
                denied = [row[0] for row in await connection.fetch(_DENIED)]
            return Look(status, int(size), f"PostgreSQL {version.split()[0]}{pooled}", tuple(denied))
        finally:
            await close_quietly(connection)


async def close_quietly(connection: Connection) -> None:
    """Close a connection, whatever state it is in; a running statement is cancelled first."""
    try:
        await connection.close(timeout=CONNECT_TIMEOUT_S)
    except DRIVER_ERRORS:
        connection.terminate()
    except BaseException:
        connection.terminate()
        raise


async def is_pooled(connection: Connection) -> bool:
    """Whether there is a pooler in between: the process id in its greeting is invented."""
    async with connection.transaction():
        return bool(await connection.fetchval("SELECT pg_backend_pid()") != connection.get_server_pid())


async def _check_server(connection: Connection, shown: str) -> None:
    version = connection.get_server_version()
    if version.major < OLDEST_SERVER:
        raise StoreMismatch(f"{shown} is PostgreSQL {version.major}: Mainspring needs {OLDEST_SERVER} or newer")
    async with connection.transaction():
        encoding = await connection.fetchval("SELECT current_setting('server_encoding')")
    if encoding != "UTF8":
        raise StoreMismatch(f"{shown} has the encoding {encoding}: create a database with ENCODING 'UTF8'")


async def schema_status(connection: Connection, shown: str) -> SchemaStatus:
    """Which schema the database has; StoreMismatch if another program has made one of our name."""
    async with connection.transaction():
        # Tables are looked for first: what another process makes meanwhile is then seen whole, or not at all.
        if not await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'mainspring'"):
            return _status((), 0)
        if not await connection.fetchval("SELECT to_regclass('mainspring.migrations') IS NOT NULL"):
            raise StoreMismatch(
                f"the schema `mainspring` of {shown} is not one of Mainspring's: name another database, or rename it"
            )
        rows = await connection.fetch("SELECT version, oldest FROM mainspring.migrations")
    return _status({row[0] for row in rows}, max((row[1] for row in rows), default=0))


def _status(applied: Collection[int], oldest: int) -> SchemaStatus:
    """The schema has the version up to which no migration is missing: one that builds indexes may be applied later than
    those after it."""
    known = load_migrations("postgres")
    version = known[0].version if known[0].version in applied else max(applied, default=0)
    while version + 1 in applied:
        version += 1
    return SchemaStatus(version, known[0].version, known[-1].version, oldest)


async def outdated_functions(connection: Connection, status: SchemaStatus) -> list[Function]:
    """The functions whose text is not this program's, unless a program with a newer schema created it."""
    if not load_functions("postgres"):
        return []
    async with connection.transaction():
        rows = await connection.fetch("SELECT name, hash, version FROM mainspring.functions")
    stored = {row[0]: (row[1], row[2]) for row in rows}
    found = []
    for function in load_functions("postgres"):
        text, version = stored.get(function.name, ("", 0))
        if text != function.hash and version <= status.latest:
            found.append(function)
    return found


async def migrate(connection: Connection, now: int) -> None:
    """Apply what is missing, under an advisory lock: several processes may start at once. All in one transaction; on a
    database in use, indexes are built before it ends up to date, while others write."""
    latest = load_migrations("postgres")
    version = await _migrate(connection, now, [each for each in latest if not each.concurrent], fresh=latest)
    building = [each for each in latest if each.concurrent and each.version not in version]
    if building:
        await _build_indexes(connection, building, now)


async def _migrate(
    connection: Connection, now: int, wanted: Sequence[Migration], fresh: Sequence[Migration]
) -> set[int]:
    """Apply these, or all where no other process can be in the way. Returns those that the database has then."""
    async with connection.transaction():
        await connection.execute(f"SET LOCAL statement_timeout = 0; SELECT pg_advisory_xact_lock({LOCK})", timeout=600)
        await connection.execute(
            "CREATE SCHEMA IF NOT EXISTS mainspring; "
            "CREATE TABLE IF NOT EXISTS mainspring.migrations (version integer PRIMARY KEY, name text NOT NULL, "
            "oldest integer NOT NULL, applied_at bigint NOT NULL)"
        )
        applied = {row[0] for row in await connection.fetch("SELECT version FROM mainspring.migrations")}
        for migration in wanted if applied else fresh:
            if migration.version not in applied:
                await connection.execute(migration.script.replace("CONCURRENTLY ", ""), timeout=600)
                await connection.execute(_APPLIED, *_row(migration, now))
                applied.add(migration.version)
        status = _status(applied, 0)
        for function in await outdated_functions(connection, status):
            await connection.execute(function.script)
            await connection.execute(
                "INSERT INTO mainspring.functions VALUES ($1, $2, $3) "
                "ON CONFLICT (name) DO UPDATE SET hash = excluded.hash, version = excluded.version",
                *(function.name, function.hash, status.latest),
            )
    return applied


def _row(migration: Migration, now: int) -> tuple[object, ...]:
    return (migration.version, migration.name, migration.oldest, now)


async def _build_indexes(connection: Connection, migrations: Sequence[Migration], now: int) -> None:
    """One process builds them; the others start without, since an index that is missing costs speed alone.

    The lock is not waited for: a build waits for every transaction that is older, and so for one that waits for it.
    Behind a pooler no session keeps a lock: there a build that another began is left to that one."""
    if not await connection.fetchval(f"SELECT pg_try_advisory_lock({LOCK + 1})"):
        return
    try:
        await connection.execute("SET statement_timeout = 0")
        for migration in migrations:
            for statement in _statements(migration.script):
                await _build(connection, statement)
            await connection.execute(f"{_APPLIED} ON CONFLICT DO NOTHING", *_row(migration, now))
    finally:
        await connection.execute(f"SELECT pg_advisory_unlock({LOCK + 1})")


def _statements(script: str) -> list[str]:
    lines = [line for line in script.splitlines() if not line.startswith("--")]
    return [statement.strip() for statement in "\n".join(lines).split(";") if statement.strip()]


async def _build(connection: Connection, statement: str) -> None:
    """Build an index; one that a build left unusable, because it was interrupted, is built anew."""
    name = statement.split()[3]
    valid = await connection.fetchval(
        "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass($1)", f"mainspring.{name}"
    )
    if valid is False:
        await connection.execute(f"DROP INDEX CONCURRENTLY IF EXISTS mainspring.{name}", timeout=BUILD_TIMEOUT_S)
    if not valid:
        log.info("building the index %s of the database; it goes on working meanwhile", name)
        await connection.execute(statement, timeout=BUILD_TIMEOUT_S)
