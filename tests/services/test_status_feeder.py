"""What the feeder puts into the cache is what the store says, whatever happens to runs, workers and the cache."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from random import Random
from typing import Any

import msgspec
import pytest
from redis import Redis
from stage import USUAL, JumpingClock, at_home, let_pass, make_worker, recover, working

from mainspring import Mainspring, Retry
from mainspring.adapter import AdapterContext
from mainspring.cache import Mark
from mainspring.caches.redis import RedisStatusCache
from mainspring.core.instants import SECOND
from mainspring.core.runs.status import (
    Posting,
    Status,
    posting_of_run,
    posting_of_worker,
    subject_of_run,
    subject_of_worker,
)
from mainspring.errors import CacheUnavailable
from mainspring.services.chores.status_feeder import StatusFeeder
from mainspring.store import RunFilter
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.servers.redis import RedisServer
from sdk_work import row_of


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    server = RedisServer(tmp_path_factory.mktemp("redis")).start()
    yield server
    server.kill()


@pytest.fixture
async def cache(server: RedisServer) -> AsyncIterator[RedisStatusCache]:
    with Redis(port=server.port) as client:
        client.flushall()
    cache = RedisStatusCache(f"{server.url}?timeout=20s", AdapterContext())
    yield cache
    await cache.close()


class Posts:
    """A feeder that turns when it is asked to."""

    def __init__(self, store: SqliteStore, cache: Any, clock: JumpingClock) -> None:
        self.store, self.leads = store, True
        self.feeder = StatusFeeder(store, cache, lambda: self.leads, clock, Random(1))

    async def __call__(self) -> None:
        while await self.store.number_events(500):
            pass
        while await self.feeder.turn() == 0.0:
            pass


@pytest.fixture
def app(store: SqliteStore, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(), store, clock) as app:

        @app.task
        async def good() -> None: ...

        @app.task(retry=Retry(1, delay="5s"))
        async def bad() -> None:
            raise ValueError("no")

        @app.task
        async def long() -> None:
            await clock.sleep(1_000)

        yield app


def known(status: Status | None) -> dict[str, object] | None:
    """All but when it was known."""
    return None if status is None else {**msgspec.structs.asdict(status), "as_of": 0}


async def check(store: SqliteStore, cache: RedisStatusCache) -> tuple[int, int]:
    """What the cache says of runs and workers must be what the store says. How many it knows, of how many runs."""
    new_events = 0
    runs = await store.list_runs(RunFilter(limit=1_000))
    for run in runs:
        _, status = await cache.read(subject_of_run(run.id))
        new_events += status is not None
        assert known(status) in (None, known(posting_of_run(run, 0, 0).status))
    for worker in await store.list_workers("default"):
        _, status = await cache.read(subject_of_worker(worker.id))
        assert known(status) in (None, known(posting_of_worker(worker, worker.state, 0, 0).status))
    return new_events, len(runs)


async def test_what_happens_is_on_the_cache_as_the_store_has_it(
    store: SqliteStore, cache: RedisStatusCache, clock: JumpingClock, app: Mainspring
) -> None:
    post = Posts(store, cache, clock)
    await post()
    async with working(app, store, clock, USUAL) as worker:
        await app.submit("good")
        await app.submit("bad")
        handle = await app.submit("long")
        await app.submit("good", delay="1h")
        for _ in range(8):
            await let_pass(clock, "1s")
            await post()
            await check(store, cache)
        _, status = await cache.read(subject_of_run(handle.id))
        assert status is not None
        assert status.state == "running"
        assert getattr((await cache.read(subject_of_worker(worker.row.id)))[1], "state", None) == "active"
        await handle.cancel("enough")
        await let_pass(clock, "5s")
        await post()
        await check(store, cache)
        await worker.register("draining")
        await post()
        assert getattr((await cache.read(subject_of_worker(worker.row.id)))[1], "state", None) == "draining"
    assert (await check(store, cache))[0] >= 1


async def test_a_run_that_was_lost_is_not_running_for_the_cache(
    store: SqliteStore, cache: RedisStatusCache, clock: JumpingClock, app: Mainspring
) -> None:
    post = Posts(store, cache, clock)
    await post()
    handle = await app.submit("good")
    await store.claim(make_worker(app, store, clock, name="dead").row, 1, SECOND, "strict")
    await post()
    _, status = await cache.read(subject_of_run(handle.id))
    assert status is not None
    assert status.state == "running"
    clock.advance("20s")
    assert await recover(store) == 1
    await post()
    assert (await cache.read(subject_of_run(handle.id)))[1] is None


async def overtaken(
    post: Posts, app: Mainspring, store: SqliteStore, cache: RedisStatusCache, clock: JumpingClock
) -> tuple[Mark, Posting]:
    """What the store said of a run before it began, and when that was; meanwhile it has succeeded."""
    await post()
    handle = await app.submit("good")
    await post()
    mark, _ = await cache.read(subject_of_run(handle.id))
    assert mark is not None
    late = posting_of_run(await row_of(handle), mark.position, clock.now())
    async with working(app, store, clock, USUAL):
        await let_pass(clock, "1s")
    await post()
    return mark, late


async def test_an_answer_of_the_store_that_came_late_does_not_hide_what_happened_since(
    store: SqliteStore, cache: RedisStatusCache, clock: JumpingClock, app: Mainspring
) -> None:
    post = Posts(store, cache, clock)
    mark, late = await overtaken(post, app, store, cache, clock)
    await cache.write(mark.epoch, [late])
    _, status = await cache.read(late.subject)
    assert status is not None
    assert status.state == "succeeded"


async def test_neither_does_one_that_comes_after_the_cache_was_emptied(
    store: SqliteStore, cache: RedisStatusCache, clock: JumpingClock, app: Mainspring, server: RedisServer
) -> None:
    post = Posts(store, cache, clock)
    mark, late = await overtaken(post, app, store, cache, clock)
    with Redis(port=server.port) as client:
        client.flushall()
    for _ in range(2):
        clock.advance("1s")
        await post()
    await cache.write(mark.epoch, [late])
    there, status = await cache.read(late.subject)
    assert status is None
    assert there is not None
    assert there.epoch != mark.epoch


async def test_the_next_leader_goes_on_where_the_last_one_was(
    store: SqliteStore, cache: RedisStatusCache, clock: JumpingClock, app: Mainspring
) -> None:
    first, second = Posts(store, cache, clock), Posts(store, cache, clock)
    second.leads = False
    await first()
    before, _ = await cache.read("job_status:x")
    first.leads, second.leads = False, True
    async with working(app, store, clock, USUAL):
        await app.submit("good")
        await let_pass(clock, "1s")
    await first()
    await second()
    assert await check(store, cache) == (1, 1)
    after, _ = await cache.read("job_status:x")
    assert before is not None
    assert after is not None
    assert (after.epoch, after.position > before.position) == (before.epoch, True)


async def test_events_that_are_relayed_late_are_marked_as_such_until_all_are(
    store: SqliteStore, cache: RedisStatusCache, clock: JumpingClock, app: Mainspring
) -> None:
    post = Posts(store, cache, clock)
    await post()
    await app.submit("good")
    clock.advance("10s")
    await post()
    mark, _ = await cache.read("job_status:x")
    assert mark is not None
    assert mark.late
    clock.advance("1s")
    await post()
    mark, _ = await cache.read("job_status:x")
    assert mark is not None
    assert not mark.late


class Away:
    """A cache that can be away, between the feeder and the real one."""

    def __init__(self, cache: RedisStatusCache) -> None:
        self.cache, self.away = cache, False

    async def write(self, epoch: str, postings: Sequence[Posting]) -> None:
        self._answer()
        await self.cache.write(epoch, postings)

    async def advance(self, before: Mark | None, after: Mark) -> Mark | None:
        self._answer()
        return await self.cache.advance(before, after)

    def _answer(self) -> None:
        if self.away:
            raise CacheUnavailable("away")


async def test_a_cache_that_was_away_gets_what_happened_meanwhile(
    store: SqliteStore, cache: RedisStatusCache, clock: JumpingClock, app: Mainspring
) -> None:
    line = Away(cache)
    post = Posts(store, line, clock)
    await post()
    line.away = True
    async with working(app, store, clock, USUAL):
        await app.submit("good")
        for _ in range(6):
            await let_pass(clock, "400ms")
            await post()
    line.away = False
    for _ in range(10):
        clock.advance("1s")
        await post()
    new_events, _ = await check(store, cache)
    assert new_events == 1
    kinds = [event.kind for batch in await store.events_since(0, 1_000) for event in batch.events]
    assert [kind for kind in kinds if kind.startswith("cache.")] == ["cache.lost", "cache.back"]
