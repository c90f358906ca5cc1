"""Rate limits on Redis: what the store promises of them, and the store itself where Redis is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import cast

import pytest
from redis import Redis

from mainspring.conformance.store.api import ApiSuite
from mainspring.core.instants import HOUR, MINUTE
from mainspring.core.load.rate_limits import Pace, allow
from mainspring.limiters.redis import Paced
from mainspring.store import Store
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.chaos.redis import RedisServer
from mainspring.testing.clock import ManualClock


@pytest.fixture
async def bare(tmp_path: Path, clock: ManualClock) -> SqliteStore:
    return SqliteStore(str(tmp_path / "test.db"), clock)


@pytest.fixture
async def store(bare: SqliteStore, server: RedisServer, clock: ManualClock) -> AsyncIterator[Store]:
    with Redis(port=server.port) as client:
        client.flushall()
    store = cast(Store, Paced(cast(Store, bare), server.url + "?timeout=20s", clock))
    yield store
    await store.close()


class TestOnRedis(ApiSuite):
    """All that the API asks of a store, where limits are kept on Redis. What is kept there, Redis forgets by itself."""

    test_what_the_api_kept_is_cleaned_up_in_time = None


async def test_it_reckons_as_core_does(store: Store, clock: ManualClock) -> None:
    random = Random(7)
    for amount, period in ((10, MINUTE), (1_000, MINUTE), (7, HOUR)):
        pace, paid_at, name = Pace(amount, period), 0, f"{amount}-{period}"
        for _ in range(100):
            clock.advance(random.randrange(period // amount + 2))
            cost = random.randrange(1, amount + 2)
            expected = allow(paid_at, clock.now(), cost, pace)
            assert await store.spend(name, cost, pace) == expected
            if expected.granted:
                paid_at = expected.paid_at


async def test_it_is_kept_on_redis_and_not_in_the_store(store: Store, bare: SqliteStore, server: RedisServer) -> None:
    pace = Pace(10, MINUTE)
    assert (await store.spend("ann", 10, pace)).granted
    assert (await bare.spend("ann", 10, pace)).granted
    with Redis(port=server.port) as client:
        assert 0 < int(client.pttl("job_pace:ann")) <= 2 * 60_000 + 1


async def test_where_redis_is_away_the_store_reckons(bare: SqliteStore, clock: ManualClock) -> None:
    store = cast(Store, Paced(cast(Store, bare), "redis://127.0.0.1:1", clock))
    pace = Pace(10, MINUTE)
    assert (await store.spend("ann", 8, pace)).granted
    assert not (await store.spend("ann", 8, pace)).granted
    await store.close()
