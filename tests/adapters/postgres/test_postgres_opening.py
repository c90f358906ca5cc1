"""Opening a database: its owner, the roles that may use it, the role that upgrades its schema."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import asyncpg
import pytest
from postgres_server import Servers, in_database

from mainspring.clock import SystemClock
from mainspring.errors import InvalidInput, StoreError, StoreMismatch, StoreUnavailable
from mainspring.stores.postgres.server.connection import LOCK, look_at, migrate, prepare, schema_status
from mainspring.stores.postgres.store import PostgresStore
from mainspring.stores.sql import Migration, load_functions, load_migrations

CLOCK = SystemClock()
SERVER = "mainspring.stores.postgres.server.connection"
KNOWN = load_migrations("postgres")
FIRST, LATEST = KNOWN[0].version, KNOWN[-1].version
LATER = (
    Migration(LATEST + 1, "colours", LATEST, "ALTER TABLE mainspring.runs ADD COLUMN colour text"),
    Migration(
        LATEST + 2, "lists", LATEST, "CREATE INDEX CONCURRENTLY runs_by_colour ON mainspring.runs (colour);", True
    ),
    Migration(LATEST + 3, "shades", LATEST, "CREATE TABLE mainspring.shades (name text PRIMARY KEY)"),
)
"""What later versions may do. The second builds its index while others write."""


async def on(url: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    connection = await asyncpg.connect(url)
    try:
        return await work(connection)
    finally:
        await connection.close()


async def refusal(url: str) -> str:
    with pytest.raises((StoreError, InvalidInput)) as caught:
        await PostgresStore.open(url, CLOCK)
    return f"{type(caught.value).__name__}: {caught.value}"


async def schema_of(connection: Any) -> list[tuple[str, ...]]:
    """Every column, index and constraint there is, as text."""
    columns = await connection.fetch(
        "SELECT table_name, column_name, data_type, coalesce(column_default, ''), is_nullable "
        "FROM information_schema.columns WHERE table_schema = 'mainspring' ORDER BY 1, 2"
    )
    indexes = await connection.fetch("SELECT indexdef FROM pg_indexes WHERE schemaname = 'mainspring' ORDER BY 1")
    checks = await connection.fetch(
        "SELECT conrelid::regclass::text, pg_get_constraintdef(oid) FROM pg_constraint "
        "WHERE connamespace = 'mainspring'::regnamespace ORDER BY 1, 2"
    )
    return [tuple(row) for row in (*columns, *indexes, *checks)]


class TestWhoMayUseIt:
    async def test_an_empty_database_is_made_ready(self, new_database: str) -> None:
        status = (await look_at(new_database)).schema
        assert (status.version, status.refusal) == (0, "")
        await (await PostgresStore.open(new_database, CLOCK)).close()
        status, size, *_ = await look_at(new_database)
        assert (status.version, status.latest) == (LATEST, LATEST)
        assert size > 0

    async def test_looking_at_a_database_changes_nothing(self, new_database: str) -> None:
        await look_at(new_database)
        tables = "SELECT count(*) FROM pg_namespace WHERE nspname = 'mainspring'"
        assert await on(new_database, lambda it: it.fetchval(tables)) == 0

    async def test_somebody_elses_schema_of_our_name_is_refused_and_left_alone(self, new_database: str) -> None:
        theirs = "CREATE SCHEMA mainspring; CREATE TABLE mainspring.invoices (id integer)"
        await on(new_database, lambda it: it.execute(theirs))
        assert "not one of Mainspring's" in await refusal(new_database)
        tables = "SELECT tablename FROM pg_tables WHERE schemaname = 'mainspring'"
        assert [row[0] for row in await on(new_database, lambda it: it.fetch(tables))] == ["invoices"]

    @pytest.mark.parametrize("question", range(3))
    async def test_a_schema_that_another_process_makes_at_this_moment_is_ours(
        self, new_database: str, question: int
    ) -> None:
        connection = await asyncpg.connect(new_database)
        asked = 0

        async def fetchval(query: str) -> Any:
            nonlocal asked
            asked += 1
            if asked == question + 1:
                await on(new_database, lambda it: migrate(it, CLOCK.now()))
            return await connection.fetchval(query)

        meddled = SimpleNamespace(transaction=connection.transaction, fetchval=fetchval, fetch=connection.fetch)
        status = await schema_status(meddled, new_database)
        assert status.version == (LATEST if question == 0 else 0)
        await connection.close()

    async def test_a_database_that_needs_a_newer_program_is_refused(self, new_database: str) -> None:
        await prepare(new_database, 0)
        newer = f"INSERT INTO mainspring.migrations VALUES ({LATEST + 1}, 'later', {LATEST + 1}, 0)"
        await on(new_database, lambda it: it.execute(newer))
        assert "Install a newer mainspring" in await refusal(new_database)
        assert "Install a newer mainspring" in (await look_at(new_database))[0].refusal

    async def test_a_schema_from_before_the_first_known_one_is_refused_and_kept(self, new_database: str) -> None:
        await prepare(new_database, 0)
        older = f"UPDATE mainspring.migrations SET version = {FIRST - 1}, oldest = 1 WHERE version = {FIRST}"
        await on(new_database, lambda it: it.execute(older))
        remedy = (
            f"schema version {FIRST - 1}, and this program upgrades from version {FIRST} on. Upgrade it with an older"
        )
        assert remedy in await refusal(new_database)
        assert (await look_at(new_database))[0].version == FIRST - 1

    async def test_a_newer_schema_that_older_programs_may_use_is_used(self, new_database: str) -> None:
        await prepare(new_database, 0)
        newer = f"INSERT INTO mainspring.migrations VALUES ({LATEST + 1}, 'later', {LATEST}, 0)"
        await on(new_database, lambda it: it.execute(newer))
        store = await PostgresStore.open(new_database, CLOCK)
        assert await store.list_jobs("default") == []
        await store.close()

    async def test_a_role_that_may_not_create_anything_can_use_what_is_there(
        self, new_database: str, servers: Servers
    ) -> None:
        await prepare(new_database, 0)
        name = urlsplit(new_database).path.lstrip("/")
        role = f"guest_{name}"
        await on(
            new_database,
            lambda it: it.execute(
                f"CREATE ROLE {role} LOGIN PASSWORD 'guest'; GRANT USAGE ON SCHEMA mainspring TO {role}; "
                f"GRANT ALL ON ALL TABLES IN SCHEMA mainspring TO {role}; "
                f"GRANT ALL ON ALL SEQUENCES IN SCHEMA mainspring TO {role}"
            ),
        )
        host = servers.direct.rpartition("@")[2]
        store = await PostgresStore.open(f"postgresql://{role}:guest@{host}/{name}", CLOCK)
        assert await store.list_jobs("default") == []
        await store.close()
        await on(new_database, lambda it: it.execute(f"DROP OWNED BY {role}; DROP ROLE {role}"))


class TestTrouble:
    async def test_a_wrong_password_is_named_and_not_shown(self, servers: Servers) -> None:
        host = servers.direct.rpartition("@")[2]
        said = await refusal(f"postgresql://mainspring:hunter2@{host}/postgres")
        assert said.startswith("StoreRefused")
        assert "does not let mainspring in" in said
        assert "hunter2" not in said

    async def test_a_database_that_does_not_exist_is_named(self, servers: Servers) -> None:
        said = await refusal(in_database(servers.direct, "no_such"))
        assert "no such database" in said
        assert "createdb" in said

    async def test_a_server_that_does_not_run_is_named(self) -> None:
        assert "is PostgreSQL running there?" in await refusal("postgresql://somebody@127.0.0.1:1/x")

    async def test_a_url_that_cannot_be_read_is_refused_with_one_that_can(self) -> None:
        assert "postgresql://user@host:5432/database" in await refusal("postgresql://:::/x")

    async def test_a_database_in_another_encoding_is_refused(self, servers: Servers, new_database: str) -> None:
        name = urlsplit(new_database).path.lstrip("/") + "_latin"
        latin = f"CREATE DATABASE {name} ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0"
        await on(servers.direct + "/postgres", lambda it: it.execute(latin))
        try:
            with pytest.raises(StoreMismatch, match="UTF8"):
                await PostgresStore.open(in_database(servers.direct, name), CLOCK)
        finally:
            await on(servers.direct + "/postgres", lambda it: it.execute(f"DROP DATABASE {name} WITH (FORCE)"))

    async def test_a_schema_that_was_dropped_under_a_running_program_is_named(self, new_database: str) -> None:
        store = await PostgresStore.open(new_database, CLOCK)
        await on(new_database, lambda it: it.execute("DROP SCHEMA mainspring CASCADE"))
        with pytest.raises(StoreMismatch, match="mainspring db status"):
            await store.list_jobs("default")
        await store.close()

    async def test_after_closing_it_says_so(self, postgres_url: str) -> None:
        store = await PostgresStore.open(postgres_url, CLOCK)
        await store.list_jobs("default")
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed by this program"):
            await store.list_jobs("default")


class TestMigrations:
    def test_several_processes_may_migrate_at_once(self, new_database: str) -> None:
        program = (
            "import asyncio, sys; from mainspring.clock import SystemClock; "
            "from mainspring.stores.postgres.store import PostgresStore\n"
            "async def main():\n"
            "    await (await PostgresStore.open(sys.argv[1], SystemClock())).close()\n"
            "asyncio.run(main())"
        )
        command = [sys.executable, "-c", program, new_database]
        processes = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
        assert [(process.communicate(timeout=60)[1], process.returncode) for process in processes] == [(b"", 0)] * 4

    async def test_a_process_that_opens_while_another_migrates_waits_for_it(self, new_database: str) -> None:
        connection = await asyncpg.connect(new_database)
        async with connection.transaction():
            await connection.execute(f"SELECT pg_advisory_xact_lock({LOCK})")
            other = asyncio.create_task(prepare(new_database, 0))
            waiting = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
            async with asyncio.timeout(20):
                while not await connection.fetchval(waiting):
                    assert not other.done()
        await asyncio.wait_for(other, 20)
        await connection.close()

    async def test_one_by_one_they_add_up_to_the_schema_of_all_at_once(
        self, new_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        connection = await asyncpg.connect(new_database)
        everything = (*KNOWN, *LATER)
        for count in range(1, len(everything) + 1):
            monkeypatch.setattr(f"{SERVER}.load_migrations", lambda _, n=count: everything[:n])
            await migrate(connection, 0)
        assert await connection.fetchval("SELECT count(*) FROM mainspring.migrations") == len(everything)
        stepwise = await schema_of(connection)
        await connection.execute("DROP SCHEMA mainspring CASCADE")
        await migrate(connection, 0)
        assert stepwise == await schema_of(connection)
        await connection.close()

    async def test_indexes_of_a_database_in_use_are_built_by_one_process_while_others_start(
        self, new_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await prepare(new_database, 0)
        monkeypatch.setattr(f"{SERVER}.load_migrations", lambda _: (*KNOWN, *LATER))
        valid = "SELECT indisvalid FROM pg_index WHERE indexrelid = to_regclass('mainspring.runs_by_colour')"
        connection = await asyncpg.connect(new_database)
        await connection.execute(f"SELECT pg_advisory_lock({LOCK + 1})")  # As a process that builds them holds it.
        await asyncio.wait_for(prepare(new_database, 0), 20)
        assert await connection.fetchval(valid) is None
        assert (await look_at(new_database))[0].version == LATEST + 1
        await connection.execute(f"SELECT pg_advisory_unlock({LOCK + 1})")
        await prepare(new_database, 0)
        assert await connection.fetchval(valid) is True
        assert (await look_at(new_database))[0].version == LATEST + 3
        assert await connection.fetchval("SELECT count(*) FROM mainspring.migrations WHERE name = 'lists'") == 1
        await connection.close()

    async def test_a_function_is_created_anew_when_its_text_changes(
        self, new_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Not by a program with an older schema: its text is older, too."""
        later = Migration(LATEST + 1, "later", LATEST, "SELECT")  # Programs of today may use it.
        everything, known = (*KNOWN, later), load_functions("postgres")
        now = next(each for each in known if each.name == "store_now")

        async def open_as(migrations: int, answer: int | None) -> int:
            given = "given" if answer is None else f"{answer}::bigint"
            script = now.script.replace("coalesce(given", f"coalesce({given}")
            changed = now._replace(script=script, hash=f"hash of {answer}")
            with monkeypatch.context() as patch:
                patch.setattr(f"{SERVER}.load_migrations", lambda _: everything[:migrations])
                patch.setattr(f"{SERVER}.load_functions", lambda _: [changed if it is now else it for it in known])
                await prepare(new_database, 0)
            return int(await on(new_database, lambda it: it.fetchval("SELECT mainspring.store_now(7)")))

        newest = len(everything)
        assert await open_as(newest, None) == 7
        assert await open_as(newest, 1) == 1
        assert await open_as(newest - 1, 2) == 1
        assert await open_as(newest, None) == 7

    async def test_one_that_fails_leaves_nothing_behind(
        self, new_database: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        broken = KNOWN[-1]._replace(
            version=LATEST + 1, script="CREATE TABLE mainspring.half (x int); CREATE TABLE mainspring.half ()"
        )
        monkeypatch.setattr("mainspring.stores.postgres.server.connection.load_migrations", lambda _: (*KNOWN, broken))
        with pytest.raises(StoreError):
            await prepare(new_database, 0)
        schemas = "SELECT count(*) FROM pg_namespace WHERE nspname = 'mainspring'"
        assert await on(new_database, lambda it: it.fetchval(schemas)) == 0
