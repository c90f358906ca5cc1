"""Reaper and cleaner: what a dead worker held is found by the others; what was kept long enough is deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from stage import (
    USUAL,
    FaultyStore,
    JumpingClock,
    add_job,
    at_home,
    let_pass,
    make_planner,
    make_worker,
    turning,
    working,
)

from mainspring import Mainspring
from mainspring.core.instants import DAY, MINUTE, SECOND
from mainspring.core.states import SUCCEEDED
from mainspring.services.chores import cleaner as cleaner_module
from mainspring.services.chores import reaper as reaper_module
from mainspring.services.chores.chores import Chores
from mainspring.services.chores.cleaner import Cleaner
from mainspring.services.chores.reaper import Reaper
from mainspring.store import RunFilter
from mainspring.stores.sqlite.store import SqliteStore
from sdk_work import row_of


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(), store, clock) as app:
        yield app


def make_reaper(store: Any, clock: JumpingClock) -> Reaper:
    return Reaper(store, USUAL, clock, Random(0))


def make_cleaner(store: Any, clock: JumpingClock, *, leads: bool = True, **keep: int) -> Cleaner:
    return Cleaner(store, lambda: leads, msgspec.structs.replace(USUAL, **keep), clock, Random(0))


class TestReaper:
    async def test_the_runs_of_a_dead_worker_are_executed_by_another(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        @app.task
        async def work() -> None:
            await clock.sleep(3)

        handles = await work.submit_many([{}] * 3)
        async with turning(make_reaper(store, clock)):
            async with working(app, store, clock, USUAL, name="doomed"):
                await let_pass(clock, "1s")
            assert {(await row_of(handle)).worker for handle in handles} == {"doomed"}
            async with working(app, store, clock, USUAL, name="survivor"):
                await let_pass(clock, "30s")
        for handle in handles:
            run = await row_of(handle)
            outcomes = [(each.worker, each.outcome) for each in await store.list_attempts(run.id)]
            assert outcomes == [("doomed", "lost"), ("survivor", "succeeded")]
            assert (run.state, run.losses) == ("succeeded", 1)

    async def test_a_run_that_kills_its_workers_ends_and_says_so(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        @app.task(max_losses=2)
        async def work() -> None:
            await clock.sleep(1_000)

        handle = await work.submit()
        async with turning(make_reaper(store, clock)):
            for number in range(5):
                async with working(app, store, clock, USUAL, name=f"worker-{number}"):
                    await let_pass(clock, "1s")
                await let_pass(clock, "15s")
        run = await row_of(handle)
        assert (run.state, run.losses) == ("failed", 3)
        assert run.reason == "its worker was lost 3 times, last worker-2; it may be what kills them"

    @pytest.fixture
    async def stores(self, tmp_path: Path, clock: JumpingClock) -> AsyncIterator[list[SqliteStore]]:
        stores = [SqliteStore(str(tmp_path / "shared.db"), clock, durable=False, inline=True) for _ in range(2)]
        yield stores
        for store in stores:
            await store.close()

    @pytest.mark.parametrize("left", [0, 1])
    async def test_whichever_node_is_left_recovers_and_several_recover_once(
        self, stores: list[SqliteStore], clock: JumpingClock, left: int
    ) -> None:
        with at_home(Mainspring(), stores[0], clock) as app:

            @app.task
            async def work() -> None: ...

            handle = await work.submit()
            row = make_worker(app, stores[0], clock).row
            await stores[0].register(row)
            await stores[0].claim(row, 1, 10 * SECOND, "strict")
            async with turning(*(make_reaper(store, clock) for store in stores)):
                await let_pass(clock, "5s")
            async with turning(make_reaper(stores[left], clock)):
                await let_pass(clock, "10s")
            run = await row_of(handle)
            assert (run.state, run.losses) == ("pending", 1)
            assert [worker.state for worker in await stores[0].list_workers("default")] == ["dead"]

    async def test_a_run_that_was_not_started_in_time_is_skipped(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        handle = await app.submit("nobody knows it", {}, expires="5s")
        async with turning(make_reaper(store, clock)):
            await let_pass(clock, "4s")
            assert (await row_of(handle)).state == "pending"
            await let_pass(clock, "3s")
        run = await row_of(handle)
        assert (run.state, run.reason.startswith("not started by")) == ("skipped", True)

    async def test_a_run_that_no_worker_takes_fails_at_its_total_timeout(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        handle = await app.submit("nobody knows it", {}, total_timeout="40s")
        async with turning(make_reaper(store, clock)):
            await let_pass(clock, "39s")
            assert (await row_of(handle)).state == "pending"
            await let_pass(clock, "3s")
        run = await row_of(handle)
        assert (run.state, run.reason) == ("failed", "not started within its total timeout of 40s")

    async def test_more_than_one_pass_can_take_are_recovered_without_a_pause(
        self, store: Any, app: Mainspring, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(reaper_module, "LIMIT", 10)

        @app.task
        async def work() -> None: ...

        await work.submit_many([{}] * 95)
        await store.claim(make_worker(app, store, clock).row, 95, SECOND, "strict")
        clock.advance("2s")
        async with turning(make_reaper(store, clock)):
            await let_pass(clock, "0s")
        assert (await store.count_runs("default")).get("pending") == 95

    async def test_it_outlives_an_outage(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        line = FaultyStore(store)
        handle = await app.submit("nobody knows it", {}, expires="5s")
        async with turning(make_reaper(line, clock)):
            line.is_cut = True
            await let_pass(clock, "1m")
            line.is_cut = False
            await let_pass(clock, "6s")
        assert (await row_of(handle)).state == "skipped"


class TestCleaner:
    async def test_what_was_kept_long_enough_goes(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        @app.task
        async def work() -> None: ...

        async def finish_one() -> str:
            handle = await work.submit()
            await let_pass(clock, "1s")
            return handle.id

        async with working(app, store, clock, USUAL):
            old = await finish_one()
            clock.advance("2d")
            new = await finish_one()
        async with turning(make_cleaner(store, clock, keep_runs=DAY)):
            await let_pass(clock, "1s")
        assert [run.id for run in await store.list_runs(RunFilter())] == [new]
        assert await store.list_attempts(old) == []
        assert len(await store.list_attempts(new)) == 1

    async def test_a_job_keeps_only_its_limit_of_runs(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        @app.task(name="work")
        async def work() -> None: ...

        job = await add_job(app, "job", "10s", keep_succeeded=2)
        async with turning(make_planner(store, clock)), working(app, store, clock, USUAL):
            await let_pass(clock, "55s")
        async with turning(make_cleaner(store, clock)):
            await let_pass(clock, "1s")
        runs = await store.list_runs(RunFilter(job="job"))
        assert [(run.fire_at - job.created_at) // SECOND for run in runs] == [50, 40]
        assert len(await store.list_firings(job.id)) == 5, "the ledger is kept longer"

    async def test_a_limit_holds_within_seconds_also_after_a_quiet_time(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        @app.task(name="work")
        async def work() -> None: ...

        await add_job(app, "job", "1s", keep_succeeded=2)
        ended = RunFilter(states=(SUCCEEDED,), job="job")  # One may still wait for a worker.
        line = FaultyStore(store)
        chores = Chores(line, "scheduler", USUAL, clock, Random(0), leads=lambda: True)
        async with turning(*chores.loops):
            await let_pass(clock, "30m")
            before = line.calls["clean"]
            while line.calls["clean"] == before:  # It has just looked, so it looks again by itself as late as it may.
                await let_pass(clock, "1s")
            async with turning(make_planner(store, clock)), working(app, store, clock, USUAL):
                await let_pass(clock, "4500ms")
            assert len(await store.list_runs(ended)) > 2
            await let_pass(clock, "16s")
            assert len(await store.list_runs(ended)) == 2
            before = line.calls["clean"]
            await let_pass(clock, "10m")
            assert line.calls["clean"] - before <= 11, "it asks little of a store in which nothing happens"

    async def test_it_takes_little_at_a_time_until_all_is_gone(
        self, store: Any, app: Mainspring, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(cleaner_module, "LIMIT", 10)

        @app.task
        async def work() -> None: ...

        handles = await work.submit_many([{}] * 95)
        for handle in handles:
            await handle.cancel()
        clock.advance("2d")
        line = FaultyStore(store)
        async with turning(make_cleaner(line, clock, keep_runs=DAY, keep_events=DAY)):
            await let_pass(clock, "100ms")
            assert (await store.count_runs("default")).get("cancelled") == 85
            await let_pass(clock, "10s")
        assert await store.count_runs("default") == {}
        assert line.calls["clean"] >= 10

    async def test_only_the_leader_cleans(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        line = FaultyStore(store)
        async with turning(make_cleaner(line, clock, leads=False)):
            await let_pass(clock, 10 * MINUTE)
        assert line.calls["clean"] == 0
