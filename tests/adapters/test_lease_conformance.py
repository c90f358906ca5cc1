"""Every lease under the suite of its port: the databases', Redis', and Redlock's."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from redis import Redis

from mainspring.adapter import AdapterContext
from mainspring.conformance.lease import Elapse, LeaseConformance
from mainspring.core.instants import MILLISECOND, Duration
from mainspring.leases.database import DatabaseLease
from mainspring.leases.redis import RedisLease
from mainspring.leases.redlock import RedlockLease
from mainspring.stores.postgres.store import PostgresStore
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock
from mainspring.testing.servers.redis import RedisServer

LATER = """
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if left >= 0 and left <= tonumber(ARGV[1]) then redis.call('DEL', key)
  elseif left >= 0 then redis.call('PEXPIRE', key, left - ARGV[1]) end
end
"""


def elapse_on(*servers: RedisServer) -> Elapse:
    """Let keys be older than they are: real time would take as long as it takes."""

    async def elapse(duration: Duration) -> None:
        for server in servers:
            with Redis(port=server.port) as client:
                client.eval(LATER, 0, duration // MILLISECOND)

    return elapse


@pytest.fixture(scope="module")
def trio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[RedisServer]]:
    folder: Path = tmp_path_factory.mktemp("redis")
    running = [RedisServer(folder).start() for _ in range(3)]
    yield running
    for server in running:
        server.kill()


@pytest.fixture
def three(trio: list[RedisServer]) -> list[RedisServer]:
    for server in trio:
        with Redis(port=server.port) as client:
            client.flushall()
    return trio


class TestSqlite(LeaseConformance):
    @pytest.fixture
    async def lease(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[DatabaseLease]:
        store = SqliteStore(str(tmp_path / "test.db"), clock)
        yield DatabaseLease(store)
        await store.close()

    @pytest.fixture
    def elapse(self, clock: ManualClock) -> Elapse:
        return elapse_by(clock)


class TestPostgres(LeaseConformance):
    @pytest.fixture
    def lease(self, postgres: PostgresStore) -> DatabaseLease:
        return DatabaseLease(postgres)

    @pytest.fixture
    def elapse(self, clock: ManualClock) -> Elapse:
        return elapse_by(clock)


class TestRedis(LeaseConformance):
    @pytest.fixture
    async def lease(self, three: list[RedisServer]) -> AsyncIterator[RedisLease]:
        lease = RedisLease(three[0].url + "?timeout=20s", AdapterContext())
        yield lease
        await lease.close()

    @pytest.fixture
    def elapse(self, three: list[RedisServer]) -> Elapse:
        return elapse_on(three[0])


class TestRedlock(LeaseConformance):
    @pytest.fixture
    async def lease(self, three: list[RedisServer]) -> AsyncIterator[RedlockLease]:
        hosts = ",".join(f"127.0.0.1:{server.port}" for server in three)
        lease = RedlockLease(f"redlock://{hosts}?timeout=20s", AdapterContext())
        yield lease
        await lease.close()

    @pytest.fixture
    def elapse(self, three: list[RedisServer]) -> Elapse:
        return elapse_on(*three)


def elapse_by(clock: ManualClock) -> Elapse:
    async def elapse(duration: Duration) -> None:
        clock.advance(duration)

    return elapse
