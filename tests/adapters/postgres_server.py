"""A server for tests: where it is, and databases on it.

`make services` starts one and `make test` names it in MAINSPRING_TEST_POSTGRES, which makes a missing server a failure.
Elsewhere tests take the one that runs from `make services`, or are skipped.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit, urlunsplit

import asyncpg
import psycopg
import pytest

from mainspring.stores.postgres.server.connection import prepare
from mainspring.stores.postgres.server.database import Limits

URLS = Path(__file__).parent.parent.parent / ".services" / "urls"
DIRECT, POOLED = "MAINSPRING_TEST_POSTGRES", "MAINSPRING_TEST_PGBOUNCER"
PATIENT = Limits(call_s=60.0, schedule_s=60.0)
"""Deadlines of a store whose tests are about something else: a loaded machine takes longer than the usual ones."""


_EMPTY = """
DO $$ DECLARE name text; BEGIN
  SET LOCAL lock_timeout = '5s';
  FOR name IN SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE n.nspname = 'mainspring' AND c.relkind IN ('r', 'p') AND NOT c.relispartition
                AND c.relname NOT IN ('migrations', 'functions')
              ORDER BY c.relname = 'tallies'  -- What is deleted is counted there.
  LOOP
    IF name = 'counters' THEN
      DELETE FROM mainspring.counters AS c WHERE c.name LIKE 'heard:%';
      UPDATE mainspring.counters SET value = 0;
    ELSE EXECUTE format('DELETE FROM mainspring.%I', name);
    END IF;
  END LOOP;
END $$
"""


class Servers(NamedTuple):
    """Where PostgreSQL and PgBouncer are, and the name of the database that the tests of this session share."""

    direct: str
    pooled: str
    database: str


def find_servers() -> tuple[str, str]:
    """The URLs of the running servers; the test fails without them."""
    known = dict(os.environ)
    if DIRECT not in known and URLS.exists():
        known |= dict(line.split("=", 1) for line in URLS.read_text().splitlines())
    if DIRECT not in known:
        pytest.fail("no PostgreSQL: `make services` starts one")
    try:
        asyncio.run(on_server(known[DIRECT], lambda connection: connection.fetchval("SELECT 1")))
    except OSError as error:
        pytest.fail(f"{known[DIRECT]} does not answer, `make services` starts it: {error}")
    return known[DIRECT], known[POOLED]


def in_database(url: str, name: str) -> str:
    """The URL of a database of the same server."""
    return urlunsplit(urlsplit(url)._replace(path=f"/{name}"))


async def on_server(url: str, work: Callable[[Any], Awaitable[Any]]) -> Any:
    """Do something on a connection to the server's own database."""
    connection = await asyncpg.connect(in_database(url, "postgres"))
    try:
        return await work(connection)
    finally:
        await connection.close()


async def create_database(url: str) -> str:
    """A new and empty database; its name."""
    name = f"mainspring_{secrets.token_hex(6)}"
    await on_server(url, lambda connection: connection.execute(f"CREATE DATABASE {name}"))
    return name


async def drop_database(url: str, name: str) -> None:
    """Remove a database, with its connections."""
    await on_server(url, lambda connection: connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)"))


async def create_shared(url: str) -> str:
    """A migrated database for the tests of a session."""
    name = await create_database(url)
    await prepare(in_database(url, name), 0)
    return name


@contextmanager
def emptying(url: str) -> Iterator[Callable[[], None]]:
    """What deletes all that a test left. A database of its own for each test would take half a second; a connection of
    its own for each time, ten times as long as deleting."""
    with psycopg.connect(url, autocommit=True) as connection:

        def empty() -> None:
            connection.execute(_EMPTY)

        yield empty


def literal(value: object) -> str:
    """A value as SQL."""
    match value:
        case None:
            return "NULL"
        case int() | float():
            return str(value)
        case []:
            return "'{}'"
        case list():
            return f"ARRAY[{', '.join(map(literal, value))}]"
    return "'" + str(value).replace("'", "''") + "'"
