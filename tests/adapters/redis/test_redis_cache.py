"""The cache on Redis: an older word never takes the place of a newer, and what may be incomplete does not count."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from itertools import permutations
from pathlib import Path

import pytest
from redis import Redis

from mainspring.adapter import AdapterContext
from mainspring.cache import Mark
from mainspring.caches.redis import MARK, RedisStatusCache
from mainspring.core.instants import HOUR, MINUTE
from mainspring.core.runs.status import Posting, RunStatus, WorkerStatus
from mainspring.errors import CacheUnavailable
from mainspring.testing.servers.redis import RedisServer

SUBJECT = "job_status:r1"
HERE = Mark("epoch-1", 10)


@pytest.fixture
def client(server: RedisServer) -> Iterator[Redis]:
    with Redis(port=server.port, decode_responses=True) as client:
        client.flushall()
        yield client


@pytest.fixture
async def cache(server: RedisServer, client: Redis) -> AsyncIterator[RedisStatusCache]:
    cache = RedisStatusCache(f"{server.url}?timeout=20s", AdapterContext())
    yield cache
    await cache.close()


def said(word: str, position: int, kept: int = HOUR) -> Posting:
    status = RunStatus("r1", "default", "running", word, 0, "w", None, "encode", position) if word else None
    return Posting(SUBJECT, position, kept, status)


async def reported(cache: RedisStatusCache) -> str | None:
    _, status = await cache.read(SUBJECT)
    return status.reason if isinstance(status, RunStatus) else None


async def test_what_was_posted_is_found_as_it_was(cache: RedisStatusCache) -> None:
    await cache.advance(None, HERE)
    worker = WorkerStatus("box:1", "tenant", "draining", 7)
    await cache.write(HERE.epoch, [said("Ü 'quoted' 🎬\n", 3), Posting("worker_status:box:1", 4, MINUTE, worker)])
    assert await reported(cache) == "Ü 'quoted' 🎬\n"
    assert await cache.read("worker_status:box:1") == (HERE, worker)
    assert await cache.read("job_status:nobody") == (HERE, None)


async def test_each_is_kept_for_its_time(cache: RedisStatusCache, client: Redis) -> None:
    await cache.write("e", [said("a", 1), Posting("worker_status:w", 1, 5 * MINUTE, None)])
    assert 3_500 < client.ttl(SUBJECT) <= 3_600
    assert 250 < client.ttl("worker_status:w") <= 300


@pytest.mark.parametrize("order", list(permutations((1, 2, 3))))
async def test_in_whatever_order_words_come_the_newest_stays(cache: RedisStatusCache, order: tuple[int, ...]) -> None:
    await cache.advance(None, HERE)
    for position in order:
        await cache.write(HERE.epoch, [said(f"word {position}", position)])
    assert await reported(cache) == "word 3"


async def test_of_many_callers_that_post_at_once_the_newest_stays(cache: RedisStatusCache) -> None:
    await cache.advance(None, HERE)
    await asyncio.gather(*(cache.write(HERE.epoch, [said(f"{n}", n)]) for n in [*range(50, 0, -1), *range(50, 100)]))
    assert await reported(cache) == "99"


async def test_a_change_that_is_not_reported_completely_hides_what_was_known_before_and_is_filled_in(
    cache: RedisStatusCache,
) -> None:
    await cache.advance(None, HERE)
    await cache.write(HERE.epoch, [said("old", 4)])
    await cache.write(HERE.epoch, [said("", 6)])
    assert await reported(cache) is None
    await cache.write(HERE.epoch, [said("asked before it", 5)])
    assert await reported(cache) is None
    await cache.write(HERE.epoch, [said("asked after it", 6)])
    assert await reported(cache) == "asked after it"
    await cache.write(HERE.epoch, [said("", 6)])
    assert await reported(cache) == "asked after it", "the same event again is no news"


async def test_what_belongs_to_another_epoch_does_not_count(cache: RedisStatusCache) -> None:
    await cache.advance(None, HERE)
    await cache.write("epoch-0", [said("stale", 99)])
    assert await reported(cache) is None
    await cache.write(HERE.epoch, [said("good", 1)])
    assert await reported(cache) == "good"


async def test_only_a_feeder_that_knows_the_mark_moves_it(cache: RedisStatusCache) -> None:
    assert await cache.advance(None, HERE) == HERE
    assert await cache.advance(None, Mark("other", 3)) == HERE
    assert await cache.advance(HERE, Mark("epoch-1", 12, late=True)) == Mark("epoch-1", 12, late=True)
    assert await cache.advance(HERE, Mark("epoch-1", 11)) == Mark("epoch-1", 12, late=True)
    assert (await cache.read(SUBJECT))[0] == Mark("epoch-1", 12, late=True)


async def test_a_mark_that_nobody_moves_goes_away_and_all_with_it(cache: RedisStatusCache, client: Redis) -> None:
    await cache.advance(None, HERE)
    await cache.write(HERE.epoch, [said("good", 1)])
    assert 0 < client.pttl(MARK) <= 3_000
    client.pexpire(MARK, 1)
    await asyncio.sleep(0.01)
    assert await cache.read(SUBJECT) == (None, None)
    assert await cache.advance(HERE, Mark("epoch-1", 12)) is None


async def test_a_cache_that_was_emptied_knows_nothing(cache: RedisStatusCache, client: Redis) -> None:
    await cache.advance(None, HERE)
    await cache.write(HERE.epoch, [said("good", 1)])
    client.flushall()
    assert await cache.read(SUBJECT) == (None, None)
    assert await cache.advance(HERE, HERE) is None


async def test_more_than_fit_into_one_script_are_all_posted(cache: RedisStatusCache, client: Redis) -> None:
    await cache.write("e", [Posting(f"job_status:{n}", n, HOUR, None) for n in range(1_001)])
    assert client.dbsize() == 1_001


async def test_a_redis_that_is_away_is_said_to_be(tmp_path: Path) -> None:
    server = RedisServer(tmp_path).start()
    server.kill()
    cache = RedisStatusCache(server.url, AdapterContext())
    with pytest.raises(CacheUnavailable, match=f"127.0.0.1:{server.port}"):
        await cache.read(SUBJECT)
    await cache.close()
