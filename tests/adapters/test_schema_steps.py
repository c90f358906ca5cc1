"""A database of every earlier schema, with data in it, is upgraded, answers as before, and goes on working. So does the
restored backup of one.

The program of today fills a store. Its rows are copied into the schema of each version, as far as that has their tables
and columns; then a program that knows one more version opens it.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import pytest
from postgres_server import Servers, create_database, drop_database, in_database

from mainspring import Mainspring, Retry, after, cron, manual
from mainspring.clock import SystemClock
from mainspring.core.model import Report, Worker
from mainspring.core.states import SUCCEEDED
from mainspring.ops.backup import backups
from mainspring.settings import Settings
from mainspring.stores.sql import Migration, load_migrations
from mainspring.stores.sqlite.file.connection import APPLICATION_ID, split_statements
from mainspring.wiring import database_status

BOUND_S = 60
CLAIM_US = 60_000_000
WAITING = ['{"n":10}', '{"n":11}', '{"n":6}', '{"n":7}', '{"n":8}']
LIMITED = {'{"n":10}', '{"n":11}'}
"""The arguments of the runs that are due when the store is opened, and of those that may not run at the same time."""
WIDER = {
    "sqlite": """
        ALTER TABLE runs ADD COLUMN colour TEXT NOT NULL DEFAULT 'none';
        ALTER TABLE history ADD COLUMN colour TEXT NOT NULL DEFAULT 'none';
        CREATE TABLE colours (name TEXT PRIMARY KEY) WITHOUT ROWID;
        CREATE INDEX runs_by_colour ON runs (colour);
    """,
    "postgres": """
        ALTER TABLE mainspring.runs ADD COLUMN colour text NOT NULL DEFAULT 'none';
        ALTER TABLE mainspring.history ADD COLUMN colour text NOT NULL DEFAULT 'none';
        CREATE TABLE mainspring.colours (name text PRIMARY KEY);
        CREATE INDEX runs_by_colour ON mainspring.runs (colour);
    """,
}
"""What the next version does."""
USERS = ("stores.sqlite.file.connection", "stores.postgres.server.connection", "ops.backup.postgres")
Answers = dict[str, object]


@pytest.fixture
def next_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """The program knows one more version than today's."""

    def load(dialect: str) -> tuple[Migration, ...]:
        known = load_migrations(dialect)
        return (*known, Migration(known[-1].version + 1, "wider", known[-1].version, WIDER[dialect]))

    for module in USERS:
        monkeypatch.setattr(f"mainspring.{module}.load_migrations", load)


async def work(n: int) -> int:
    """A task, for numbers that are not negative."""
    if n < 0:
        raise ValueError("too small")
    return n * 2


async def fill(app: Mainspring) -> None:
    """Jobs, a ledger, and runs in most states."""
    task = app.task(retry=Retry(0))(work)
    await app.jobs.add("nightly", cron("0 2 * * *", tz="Europe/Berlin"), task=task, args={"n": 1}, tags=["night"])
    await app.jobs.add("by-hand", manual(), task=task, args={"n": 2}, limit=3)
    await app.jobs.add("then", after("by-hand"), task=task, args={"n": 3})
    await app.jobs.add("paused", cron("0 3 * * *"), task=task, args={"n": 4})
    await app.jobs.pause("paused", reason="maintenance")
    async with app.running():
        runs = [await task.options(tags=["kept"], idempotency_key="order-1").submit(5), await task.submit(-1)]
        await app.jobs.trigger("by-hand")
        for run in runs:
            await run.wait(BOUND_S)
        async with asyncio.timeout(BOUND_S):
            while not [run async for run in app.runs.list(job="then", states=["succeeded"])]:
                await asyncio.sleep(0.01)
    first = await task.options(tags=["waiting"], key="line").submit(6)
    await task.options(key="line").submit(7)
    await task.options(after=[first]).submit(8)
    await task.options(delay="1h").submit(9)
    await task.map([{"n": 10}, {"n": 11}], limit=1).submit()


async def ask(app: Mainspring) -> Answers:
    """What the store answers, whatever its age."""
    runs = [run async for run in app.runs.list()]
    jobs = [job async for job in app.jobs.list()]
    return {
        "jobs": [(job.name, job.next_fire_at, job.paused_at, job.policy, job.trigger) for job in jobs],
        "runs": [(run.run_id, run.state, run.reason, run.args, run.result, run.error, run.key) for run in runs],
        "tags": {tag: [run.run_id async for run in app.runs.list(tag=tag)] for tag in ("kept", "waiting", "night")},
        "states": {run.state: [it.run_id async for it in app.runs.list(states=[run.state])] for run in runs},
        "attempts": [[(each.attempt, each.outcome) for each in await app.runs.attempts(run.run_id)] for run in runs],
        "ledger": {name: [row async for row in app.jobs.firings(name)] for name in ("by-hand", "then")},
        "counts": await (await app.open()).count_runs("default"),
    }


async def go_on(app: Mainspring, old: str) -> None:
    """Execute what waits, in order and within its limit, and give the old answer to an old key."""
    store = await app.open()
    worker = Worker(id="worker-of-today", tasks=("work",), concurrency=10)
    await store.register(worker)
    done: list[object] = []
    async with asyncio.timeout(BOUND_S):
        while len(done) < len(WAITING):  # A run that another one frees is found by the next full search.
            claims = await store.claim(worker, 10, CLAIM_US, "strict")
            assert len(LIMITED & {claim.args for claim in claims}) <= 1
            done += [claim.args for claim in claims]
            reports = [Report(claim.run_id, claim.token, "succeeded", SUCCEEDED, result="1") for claim in claims]
            assert set(await store.report(reports)) <= {"accepted"}
            await asyncio.sleep(0.01)
    assert sorted(map(str, done)) == WAITING
    again = app.task(retry=Retry(0))(work).options(tags=["kept"], idempotency_key="order-1")
    assert (await again.submit(5)).id == old
    assert (await app.jobs.trigger("by-hand")).outcome == "fired"


async def check(url: str, wanted: Answers, old: str) -> None:
    """Open the store with the next program, which upgrades it."""
    async with Mainspring(url, name="steps") as app:
        answers = await ask(app)
        for name, answer in wanted.items():
            assert answers[name] == answer, name
        await go_on(app, old)


async def walk(
    url: str, dialect: str, age: Callable[[int], Awaitable[str]], restore: Callable[[str], Awaitable[str]]
) -> None:
    """Fill a store, and check one of each age. `age` makes a store of an earlier version, `restore` one of a backup of
    it; both give its URL."""
    versions = [each.version for each in load_migrations(dialect)]
    async with Mainspring(url, name="steps") as app:
        await fill(app)
        wanted = await ask(app)
        (old,) = [run.run_id async for run in app.runs.list(tag="kept")]
    for version in versions:
        try:
            await check(await age(version), wanted, old)
        except Exception as error:
            error.add_note(f"upgraded from version {version}")
            raise
    for version in sorted({versions[0], versions[len(versions) // 2], versions[-1]}):
        try:
            await check(await restore(await age(version)), wanted, old)
        except Exception as error:
            error.add_note(f"restored from a backup of version {version}")
            raise


def move(url: str, target: str, folder: Path) -> None:
    """Back a store up as it is, and restore it elsewhere; nothing ran in between."""
    made = backups.create(Settings(store=url), folder, SystemClock())
    assert read_version(url) == max(made.migrations)  # A backup changes nothing.
    backups.restore(folder / made.name, Settings(store=target), SystemClock(), moved=True)


def read_version(url: str) -> int:
    """The version of the schema of a store."""
    return database_status(Settings(store=url)).version


def older(dialect: str, version: int) -> list[Migration]:
    """The migrations that made a version."""
    return [each for each in load_migrations(dialect) if each.version <= version]


def quoted(columns: Sequence[str]) -> str:
    """Columns as a list in SQL."""
    return ", ".join(f'"{column}"' for column in columns)


@pytest.mark.usefixtures("next_program")
async def test_a_file_of_every_earlier_version_is_upgraded(tmp_path: Path) -> None:
    newest = tmp_path / "newest.db"

    async def age(version: int) -> str:
        file = tmp_path / f"{version}-{uuid4().hex}.db"
        with closing(sqlite3.connect(newest)) as source, closing(sqlite3.connect(file)) as target:
            make_sqlite(target, version)
            names = "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'"
            for (name,) in target.execute(names).fetchall():
                columns = [row[1] for row in target.execute(f"PRAGMA table_info({name})")]
                known = {row[1] for row in source.execute(f"PRAGMA table_info({name})")}
                shared = [column for column in columns if column in known]
                if name != "migrations" and shared:
                    rows = source.execute(f"SELECT {quoted(shared)} FROM {name}").fetchall()
                    marks = ", ".join("?" * len(shared))
                    target.execute(f"DELETE FROM {name}")
                    target.executemany(f"INSERT INTO {name} ({quoted(shared)}) VALUES ({marks})", rows)
            for (script,) in list(target.execute("SELECT script FROM temp.kept_triggers")):
                target.execute(script)
            target.commit()
        return f"sqlite:///{file}"

    async def restore(url: str) -> str:
        target = f"{url}.restored"
        await asyncio.to_thread(move, url, target, tmp_path / "backups")
        return target

    await walk(f"sqlite:///{newest}", "sqlite", age, restore)


def make_sqlite(connection: sqlite3.Connection, version: int) -> None:
    """The schema of a version. Its triggers are set aside: the rows that they would make are copied."""
    connection.execute(
        "CREATE TABLE migrations (version INTEGER PRIMARY KEY, name TEXT NOT NULL, oldest INTEGER NOT NULL, "
        "applied_at INTEGER NOT NULL)"
    )
    for each in older("sqlite", version):
        for statement in split_statements(each.script):
            connection.execute(statement)
        connection.execute("INSERT INTO migrations VALUES (?, ?, ?, 0)", (each.version, each.name, each.oldest))
    connection.execute(f"PRAGMA user_version = {version}")
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(
        "CREATE TEMP TABLE kept_triggers AS SELECT name, sql AS script FROM main.sqlite_master WHERE type = 'trigger'"
    )
    for (name,) in connection.execute("SELECT name FROM temp.kept_triggers").fetchall():
        connection.execute(f"DROP TRIGGER {name}")


COLUMNS = """
SELECT c.relname::text, array_agg(a.attname::text ORDER BY a.attnum)
FROM pg_class AS c JOIN pg_attribute AS a ON a.attrelid = c.oid
WHERE c.relnamespace = 'mainspring'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition AND a.attnum > 0
  AND NOT a.attisdropped AND a.attgenerated = '' AND c.relname NOT IN ('migrations', 'functions', 'facts')
GROUP BY 1
"""
SEQUENCES = """
SELECT a.attrelid::regclass::text, a.attname::text, pg_get_serial_sequence(a.attrelid::regclass::text, a.attname)
FROM pg_attribute AS a JOIN pg_class AS c ON c.oid = a.attrelid
WHERE c.relnamespace = 'mainspring'::regnamespace AND a.attidentity <> '' AND NOT c.relispartition
"""


@pytest.mark.usefixtures("next_program")
async def test_a_database_of_every_earlier_version_is_upgraded(
    servers: Servers, new_database: str, tmp_path: Path
) -> None:
    name, other = await create_database(servers.direct), await create_database(servers.direct)
    aged, restored = in_database(servers.direct, name), in_database(servers.direct, other)
    source, target = await asyncpg.connect(new_database), await asyncpg.connect(aged)

    async def age(version: int) -> str:
        await target.execute("DROP SCHEMA IF EXISTS mainspring CASCADE")
        await make_postgres(target, version)
        await target.execute("SET session_replication_role = replica")  # What triggers would write is copied.
        known = dict(await source.fetch(COLUMNS))
        for table, columns in await target.fetch(COLUMNS):
            shared = [column for column in columns if column in known.get(table, ())]
            if shared:
                names = quoted(shared)
                rows = await source.fetch(f"SELECT {names} FROM mainspring.{table}")
                marks = ", ".join(f"${number + 1}" for number in range(len(shared)))
                await target.execute(f"DELETE FROM mainspring.{table}")
                insert = f"INSERT INTO mainspring.{table} ({names}) OVERRIDING SYSTEM VALUE VALUES ({marks})"
                await target.executemany(insert, [tuple(row) for row in rows])
        for table, column, sequence in await target.fetch(SEQUENCES):
            await target.execute(f"SELECT setval('{sequence}', (SELECT max({column}) + 1 FROM {table}))")
        await target.execute("SET session_replication_role = DEFAULT")
        return aged

    async def restore(url: str) -> str:
        connection = await asyncpg.connect(restored)
        await connection.execute("DROP SCHEMA IF EXISTS mainspring CASCADE")
        await connection.close()
        await asyncio.to_thread(move, url, restored, tmp_path)
        return restored

    try:
        await walk(new_database, "postgres", age, restore)
    finally:
        await source.close()
        await target.close()
        await drop_database(servers.direct, name)
        await drop_database(servers.direct, other)


async def make_postgres(connection: Any, version: int) -> None:
    """The schema of a version, without functions: they came with a program, not with a migration."""
    await connection.execute(
        "CREATE SCHEMA mainspring; CREATE TABLE mainspring.migrations (version integer PRIMARY KEY, "
        "name text NOT NULL, oldest integer NOT NULL, applied_at bigint NOT NULL)"
    )
    for each in older("postgres", version):
        await connection.execute(each.script.replace("CONCURRENTLY ", ""))
        row = (each.version, each.name, each.oldest)
        await connection.execute("INSERT INTO mainspring.migrations VALUES ($1, $2, $3, 0)", *row)
