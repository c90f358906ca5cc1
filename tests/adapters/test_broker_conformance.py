"""Every broker under the suite of its port, beside both stores."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from redis import Redis

from mainspring.adapter import AdapterContext
from mainspring.brokers.redis import RedisBroker
from mainspring.conformance import BrokerConformance
from mainspring.conformance.broker import Elapse
from mainspring.core.instants import MILLISECOND, Duration
from mainspring.stores.postgres.store import PostgresStore
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock
from mainspring.testing.servers.redis import RedisServer

LATER = """
for _, key in ipairs(redis.call('KEYS', '*:taken')) do
  for _, member in ipairs(redis.call('ZRANGE', key, 0, -1)) do
    redis.call('ZINCRBY', key, -ARGV[1], member)
  end
end
"""


@pytest.fixture
async def sqlite(clock: ManualClock, tmp_path: Path) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "test.db"), clock)
    yield store
    await store.close()


@pytest.fixture
async def redis(server: RedisServer) -> AsyncIterator[RedisBroker]:
    with Redis(port=server.port) as client:
        client.flushall()
    broker = RedisBroker(f"{server.url}?timeout=20s", AdapterContext())
    yield broker
    await broker.close()


@pytest.fixture
def elapse(request: pytest.FixtureRequest, clock: ManualClock) -> Elapse:
    async def pass_on(duration: Duration) -> None:
        clock.advance(duration)
        if "redis" in request.fixturenames:
            with Redis(port=request.getfixturevalue("server").port) as client:
                client.eval(LATER, 0, duration // MILLISECOND)

    return pass_on


class TestRedisOnSqlite(BrokerConformance):
    @pytest.fixture
    def store(self, sqlite: SqliteStore) -> SqliteStore:
        return sqlite

    @pytest.fixture
    def broker(self, redis: RedisBroker) -> RedisBroker:
        return redis


class TestRedisOnPostgres(BrokerConformance):
    @pytest.fixture
    def store(self, postgres: PostgresStore) -> PostgresStore:
        return postgres

    @pytest.fixture
    def broker(self, redis: RedisBroker) -> RedisBroker:
        return redis
