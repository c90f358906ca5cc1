"""Rate limits on Redis: what the store promises of them, and the store itself where Redis is away."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random

import pytest
from redis import Redis

from mainspring.adapter import AdapterContext
from mainspring.core.instants import HOUR, MINUTE
from mainspring.core.load.rate_limits import Pace, allow
from mainspring.limiters.redis import RedisLimiter
from mainspring.process.metrics import Metrics
from mainspring.services.shared_limits import SharedLimits
from mainspring.services.store_layers import MeasuredStore
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock
from mainspring.testing.servers.redis import RedisServer


@pytest.fixture
async def bare(tmp_path: Path, clock: ManualClock) -> SqliteStore:
    return SqliteStore(str(tmp_path / "test.db"), clock)


def shared(bare: SqliteStore, url: str, clock: ManualClock) -> SharedLimits:
    return SharedLimits(RedisLimiter(url, AdapterContext(clock=clock)), bare, bare, clock)


@pytest.fixture
async def limits(bare: SqliteStore, server: RedisServer, clock: ManualClock) -> AsyncIterator[SharedLimits]:
    with Redis(port=server.port) as client:
        client.flushall()
    limits = shared(bare, server.url + "?timeout=20s", clock)
    yield limits
    await limits.close()
    await bare.close()


async def test_it_reckons_as_core_does(limits: SharedLimits, clock: ManualClock) -> None:
    random = Random(7)
    for amount, period in ((10, MINUTE), (1_000, MINUTE), (7, HOUR)):
        pace, paid_at, name = Pace(amount, period), 0, f"{amount}-{period}"
        for _ in range(100):
            clock.advance(random.randrange(period // amount + 2))
            cost = random.randrange(1, amount + 2)
            expected = allow(paid_at, clock.now(), cost, pace)
            assert await limits.spend(name, cost, pace) == expected
            if expected.granted:
                paid_at = expected.paid_at


async def test_it_is_kept_on_redis_and_not_in_the_store(
    limits: SharedLimits, bare: SqliteStore, server: RedisServer
) -> None:
    pace = Pace(10, MINUTE)
    assert (await limits.spend("ann", 10, pace)).granted
    assert (await bare.spend("ann", 10, pace)).granted
    with Redis(port=server.port) as client:
        assert 0 < int(client.pttl("job_pace:ann")) <= 2 * 60_000 + 1


async def test_where_redis_is_away_the_store_reckons(bare: SqliteStore, clock: ManualClock) -> None:
    limits = shared(bare, "redis://127.0.0.1:1", clock)
    pace = Pace(10, MINUTE)
    assert (await limits.spend("ann", 8, pace)).granted
    assert not (await limits.spend("ann", 8, pace)).granted
    await limits.close()
    await bare.close()


async def test_a_limiter_that_is_away_is_counted_where_the_process_counts(
    bare: SqliteStore, clock: ManualClock
) -> None:
    counted = MeasuredStore(bare, Metrics())
    limits = SharedLimits(RedisLimiter("redis://127.0.0.1:1", AdapterContext(clock=clock)), counted, counted, clock)
    for _ in range(5):
        assert (await limits.spend("ann", 1, Pace(10, MINUTE))).granted
    assert counted.metrics.counts["broker", "lost"] == 1
    await limits.close()
    await bare.close()
