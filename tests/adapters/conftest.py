"""What tests of adapters share: assertions of a conformance suite that show their values, and servers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest
from postgres_server import (
    PATIENT,
    Servers,
    create_database,
    create_shared,
    drop_database,
    emptying,
    find_servers,
    in_database,
)
from redis_server import Start

from mainspring.stores.postgres.store import PostgresStore
from mainspring.testing.clock import ManualClock
from mainspring.testing.servers.redis import RedisServer

pytest.register_assert_rewrite("mainspring.conformance")


@pytest.fixture
def clock() -> ManualClock:
    """A clock that only the test moves."""
    return ManualClock()


@pytest.fixture(scope="session")
def servers() -> Iterator[Servers]:
    """PostgreSQL and PgBouncer."""
    direct, pooled = find_servers()
    database = asyncio.run(create_shared(direct))
    yield Servers(direct, pooled, database)
    asyncio.run(drop_database(direct, database))


@pytest.fixture(scope="session")
def empty(servers: Servers) -> Iterator[Callable[[], None]]:
    """Deletes all rows of the database that the tests of this session share."""
    with emptying(in_database(servers.direct, servers.database)) as delete:
        yield delete


@pytest.fixture
def postgres_url(servers: Servers, empty: Callable[[], None]) -> Iterator[str]:
    """The URL of a migrated database without any rows."""
    yield in_database(servers.direct, servers.database)
    empty()


@pytest.fixture
def pooled_url(servers: Servers, postgres_url: str) -> str:
    """The same database through PgBouncer in transaction mode."""
    return in_database(servers.pooled, servers.database)


@pytest.fixture
async def new_database(servers: Servers) -> AsyncIterator[str]:
    """The URL of a new database."""
    name = await create_database(servers.direct)
    yield in_database(servers.direct, name)
    await drop_database(servers.direct, name)


@pytest.fixture
async def postgres(postgres_url: str, clock: ManualClock) -> AsyncIterator[PostgresStore]:
    """An empty store that lives in the time of `clock`."""
    store = await PostgresStore.open(postgres_url, clock, given_time=True, limits=PATIENT)
    yield store
    await store.close()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that the tests of a module share."""
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Redis servers that a test may harm."""
    running: list[RedisServer] = []

    def begin(*options: str) -> RedisServer:
        running.append(RedisServer(tmp_path, *options).start())
        return running[-1]

    yield begin
    for server in running:
        server.kill()
