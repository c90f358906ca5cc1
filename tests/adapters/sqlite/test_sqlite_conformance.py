"""The SQLite store under the store port's conformance suite: on its own threads, inline, and shared by two programs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from mainspring.conformance import StoreConformance
from mainspring.conformance.store.samples import TTL, a_job, a_run, a_worker, gated, success
from mainspring.core.instants import HOUR
from mainspring.core.planning import plans as planning
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


class TestThreaded(StoreConformance):
    """As a program uses it."""

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(str(tmp_path / "mainspring.db"), clock, durable=False)
        yield store
        await store.close()


class TestInline(StoreConformance):
    """As the simulator uses it."""

    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[SqliteStore]:
        store = SqliteStore(str(tmp_path / "mainspring.db"), clock, durable=False, inline=True)
        yield store
        await store.close()


class TestTwoProgramsOnOneFile:
    """Connections that share nothing but the file."""

    @pytest.fixture
    async def stores(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[list[SqliteStore]]:
        stores = [SqliteStore(str(tmp_path / "mainspring.db"), clock, durable=False) for _ in range(2)]
        yield stores
        for store in stores:
            await store.close()

    async def test_each_run_is_claimed_once_and_no_gate_is_over_full(
        self, stores: list[SqliteStore], clock: ManualClock
    ) -> None:
        runs = [gated(clock, "g", capacity=3) if n % 2 else a_run(clock) for n in range(60)]
        await stores[0].submit(runs)
        started: Counter[str] = Counter()
        fullest = 0

        async def work(store: SqliteStore, name: str) -> None:
            nonlocal fullest
            while sum(started.values()) < len(runs):
                claims = await store.claim(a_worker(name), 4, TTL, "strict")
                started.update(claim.run_id for claim in claims)
                fullest = max(fullest, (await store.gate_holders("default", "g"))[0])
                await store.report([success(claim) for claim in claims])

        workers = (work(store, f"worker-{n}-{k}") for n, store in enumerate(stores) for k in range(2))
        await asyncio.wait_for(asyncio.gather(*workers), 30)
        assert started == Counter(run.id for run in runs)
        assert fullest <= 3

    async def test_one_of_two_planners_fires(self, stores: list[SqliteStore], clock: ManualClock) -> None:
        job = await stores[0].create_job(a_job(clock, "hourly", EveryTrigger(HOUR)))
        clock.advance(HOUR)
        plan = planning.plan(job, clock.now(), {})
        answers = await asyncio.gather(*(store.fire([plan], None) for store in stores for _ in range(5)))
        assert sum(fired.applied for (fired,) in answers) == 1
        assert len(await stores[1].list_firings(job.id)) == 1

    async def test_one_of_two_nodes_has_the_lease(self, stores: list[SqliteStore]) -> None:
        asked = (store.acquire("scheduler", f"node-{n}", TTL) for n, store in enumerate(stores * 5))
        assert sum(hold is not None for hold in await asyncio.gather(*asked)) == 1


def test_no_guarantee_of_one_part_hides_one_of_another() -> None:
    names = Counter(name for part in StoreConformance.__mro__ for name in vars(part) if name.startswith("test_"))
    assert [name for name, count in names.items() if count > 1] == []
