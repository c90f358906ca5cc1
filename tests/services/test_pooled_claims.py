"""A worker with pools: urgent runs begin beside a flood of others, and low ones beside a flood of urgent ones, by the
claims of the store and by the deliveries of a broker."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from memory_broker import MemoryBroker, MemorySubscription
from stage import START, JumpingClock, at_home, let_pass, make_worker, recover, turning, working

from mainspring import Mainspring
from mainspring.adapter import AdapterContext
from mainspring.broker import Delivery
from mainspring.core.instants import SECOND
from mainspring.core.model import Worker
from mainspring.core.runs.priority import PRIORITIES
from mainspring.services.worker.broker_source import BrokerSource
from mainspring.services.worker.claimer import ClaimSource
from mainspring.settings import Settings, load_settings
from mainspring.store import RunFilter, Store
from mainspring.stores.sqlite.store import SqliteStore

Source = Callable[[Store], ClaimSource]


def with_pools(*pools: str, ordering: str = "strict") -> Settings:
    return load_settings({"pools": list(pools), "ordering": ordering}, {}, {}, None)


class Dispatched(MemoryBroker):
    """A broker that receives what is due whenever a worker asks."""

    def __init__(self, store: Store, clock: JumpingClock) -> None:
        super().__init__("memory://", AdapterContext(clock=clock))
        self._store = store

    async def subscribe(self, worker: Worker, on_arrival: Callable[[], None]) -> MemorySubscription:
        store, broker = self._store, self

        class Dispatching(MemorySubscription):
            async def receive(self, limit: int, priorities: Sequence[int] = PRIORITIES) -> list[Delivery]:
                await broker.publish((await store.due_runs(1_000))[0])
                return await super().receive(limit, priorities)

        return Dispatching(self, worker, on_arrival)


def subscribed(store: Store, broker: MemoryBroker, clock: JumpingClock) -> BrokerSource:
    source = BrokerSource(store, broker, clock, "worker-1")
    source.start(Worker(id="worker-1"), lambda: None)
    return source


@pytest.fixture(params=["store", "broker"])
def source(request: pytest.FixtureRequest, clock: JumpingClock) -> Source:
    if request.param == "store":
        return lambda store: store
    return lambda store: subscribed(store, Dispatched(store, clock), clock)


class Work:
    """Runs of any priority that go on until they are let go."""

    def __init__(self, store: Store, clock: JumpingClock) -> None:
        self.store, self.clock = store, clock
        self.app = Mainspring()
        self.length_s = 1_000.0

        @self.app.task
        async def work() -> None:
            await clock.sleep(self.length_s)

        self.work = work

    async def submit(self, priority: int, count: int, **words: Any) -> None:
        await self.work.options(priority=priority, **words).submit_many([{}] * count)

    async def running(self) -> dict[int, int]:
        runs = await self.store.list_runs(RunFilter(states=("running",), limit=10_000))
        return dict(Counter(run.priority for run in runs))


@pytest.fixture
def work(store: SqliteStore, clock: JumpingClock) -> Iterator[Work]:
    made = Work(store, clock)
    with at_home(made.app, store, clock):
        yield made


async def test_a_flood_of_low_runs_leaves_places_where_an_urgent_one_begins_at_once(
    store: SqliteStore, work: Work, clock: JumpingClock, source: Source
) -> None:
    await work.submit(3, 100)
    async with working(work.app, store, clock, with_pools("1=8", "2=4", "3=2"), source=source(store)):
        await let_pass(clock, "3s")
        assert await work.running() == {3: 2 + 6 + 3}, "a quarter of each higher pool is kept"
        await work.submit(1, 2)
        await let_pass(clock, "20ms")
        assert await work.running() == {3: 11, 1: 2}


async def test_a_flood_of_urgent_runs_leaves_the_places_of_the_others(
    store: SqliteStore, work: Work, clock: JumpingClock, source: Source
) -> None:
    await work.submit(1, 100)
    await work.submit(2, 100)
    await work.submit(7, 100)
    async with working(work.app, store, clock, with_pools("1=8", "2=4", "3=2"), source=source(store)):
        await let_pass(clock, "3s")
        assert await work.running() == {1: 8, 2: 4, 7: 2}


async def test_places_that_were_lent_go_back_as_soon_as_they_are_free(
    store: SqliteStore, work: Work, clock: JumpingClock, source: Source
) -> None:
    work.length_s = 5.0
    await work.submit(3, 100)
    async with working(work.app, store, clock, with_pools("1=8", "3=2"), source=source(store)):
        await let_pass(clock, "3s")
        assert await work.running() == {3: 8}
        work.length_s = 1_000.0
        await work.submit(1, 100)
        await let_pass(clock, "30s")
        assert await work.running() == {1: 8, 3: 2}


async def test_what_comes_due_begins_when_it_is(
    store: SqliteStore, work: Work, clock: JumpingClock, source: Source
) -> None:
    await work.submit(1, 3, delay="2500ms")
    await work.submit(9, 3, delay="2500ms")
    async with working(work.app, store, clock, with_pools("1=8", "2=8")):
        await let_pass(clock, "4s")
        runs = await store.list_runs(RunFilter(states=("running",)))
    assert [run.started_at for run in runs] == [START + 2_500_000] * 6


async def test_a_full_pool_does_not_keep_the_worker_from_sleeping(
    store: SqliteStore, work: Work, clock: JumpingClock
) -> None:
    await work.submit(1, 50)
    calls: Counter[str] = Counter()

    class Counted:
        def __getattr__(self, name: str) -> Any:
            calls[name] += 1
            return getattr(store, name)

    async with working(work.app, Counted(), clock, with_pools("1=2", "5=2")):
        await let_pass(clock, "1s")
        calls.clear()
        await let_pass(clock, "30s")
    assert calls["claim"] <= 32, "what has room is looked for once a second, what has none is not"


async def test_a_run_that_was_lost_before_is_alone_in_all_pools(
    store: SqliteStore, work: Work, clock: JumpingClock
) -> None:
    await work.submit(1, 1)
    for _ in range(2):
        assert await store.claim(make_worker(work.app, store, clock, name="dead").row, 1, SECOND, "strict")
        clock.advance("20s")
        assert await recover(store) == 1
    await work.submit(5, 3)
    async with working(work.app, store, clock, with_pools("1=2", "5=2")):
        await let_pass(clock, "2s")
        assert await work.running() == {1: 1}


async def test_a_place_that_is_free_again_is_taken_at_once_without_a_hint(
    store: SqliteStore, work: Work, clock: JumpingClock
) -> None:
    work.length_s = 0.1
    await work.submit(1, 9)
    worker = make_worker(work.app, store, clock, with_pools("1=3", "5=2"))
    async with turning(*worker.loops):
        await let_pass(clock, "600ms")
    assert await store.count_runs("default") == {"succeeded": 9}


async def test_what_a_broker_has_lost_is_found_in_the_store_for_every_pool(
    store: SqliteStore, work: Work, clock: JumpingClock
) -> None:
    await work.submit(1, 1)
    await work.submit(9, 1)
    source = subscribed(store, MemoryBroker("memory://", AdapterContext(clock=clock)), clock)
    async with working(work.app, store, clock, with_pools("1=2", "5=2"), source=source):
        await let_pass(clock, "4s")
        assert await work.running() == {1: 1, 9: 1}
