"""A worker's claims: kept while it works, given up in time when it cannot keep them, never acted on afterwards."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import chores
import msgspec
import pytest
from stage import (
    FAST,
    USUAL,
    FaultyStore,
    JumpingClock,
    Watched,
    at_home,
    let_others_run,
    let_pass,
    make_worker,
    recover,
    until,
    working,
)
from test_executing import is_alive

from mainspring import Mainspring
from mainspring.clock import SystemClock
from mainspring.core.instants import SECOND
from mainspring.core.model import Report
from mainspring.stores.sqlite.store import SqliteStore
from sdk_work import row_of

TTL_S = USUAL.claim_ttl / SECOND


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(), store, clock) as app:
        yield app


class TestKeeping:
    async def test_claims_of_long_runs_are_renewed(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        work = Watched(app, clock, 300)
        handle = await work.task.submit()
        async with working(app, store, clock, USUAL):
            for _ in range(299):
                await let_pass(clock, "1s")
                assert await recover(store) == 0
            await let_pass(clock, "2s")
        run = await row_of(handle)
        assert (run.state, run.attempt, run.losses) == ("succeeded", 1, 0)

    async def test_they_are_kept_until_the_store_has_acknowledged_the_report(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        line = FaultyStore(store)
        line.hold_request("report")
        handle = await Watched(app, clock, 1).task.submit()
        async with working(app, line, clock, USUAL):
            for _ in range(60):
                await let_pass(clock, "1s")
                assert await recover(store) == 0
            line.let_through()
            await let_others_run()
        assert (await row_of(handle)).state == "succeeded"

    @pytest.mark.parametrize("lost", ["lose_request", "lose_reply"])
    async def test_a_few_lost_renewals_cost_nothing(
        self, store: Any, app: Mainspring, clock: JumpingClock, lost: str
    ) -> None:
        line, work = FaultyStore(store), Watched(app, clock, 100)
        handle = await work.task.submit()
        async with working(app, line, clock, USUAL):
            for _ in range(11):
                getattr(line, lost)("renew", 4)
                await let_pass(clock, "10s")
                assert await recover(store) == 0
        assert (await row_of(handle)).state == "succeeded"
        assert [word for word, _ in work.story] == ["started", "finished"]

    async def test_a_worker_without_work_is_still_heard_of(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        async with working(app, store, clock, USUAL):
            await let_pass(clock, "5m")
            (worker,) = await store.list_workers("default")
            assert clock.now() - worker.heartbeat_at <= USUAL.claim_renew


class TestFencing:
    @pytest.mark.parametrize("fault", ["cut", "hold"])
    async def test_work_whose_claim_cannot_be_renewed_is_stopped_before_anyone_else_may_have_it(
        self, store: Any, app: Mainspring, clock: JumpingClock, fault: str
    ) -> None:
        line, work = FaultyStore(store), Watched(app, clock, 100)
        await work.task.submit()
        async with working(app, line, clock, USUAL) as worker:
            await let_pass(clock, "7s")
            renewed_at = 6.0
            line.is_cut = fault == "cut"
            line.hold_request("renew", 100)
            await let_pass(clock, "20s")
            (_, (word, stopped_at)) = work.story
            assert word == "stopped"
            assert stopped_at < renewed_at + TTL_S
            assert stopped_at == pytest.approx(renewed_at + TTL_S * 0.9, abs=0.1), "and not earlier than it must be"
            assert len(worker.claims) == 0

    async def test_a_claim_that_was_never_renewed_counts_from_when_it_was_asked_for(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        line, work = FaultyStore(store), Watched(app, clock, 100)
        await work.task.submit()
        line.hold_reply("claim")
        async with working(app, line, clock, USUAL):
            await let_pass(clock, "2s")
            line.let_through()
            await let_others_run()
            line.is_cut = True
            await let_pass(clock, "20s")
        assert work.story[0] == ("started", 2.0)
        what, after_s = work.story[1]
        assert what == "stopped"
        assert after_s == pytest.approx(TTL_S * 0.9, abs=0.1)

    async def test_a_store_that_answers_nothing_does_not_keep_the_worker_from_fencing(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        line, work = FaultyStore(store), Watched(app, clock, 100)
        await work.task.submit()
        async with working(app, line, clock, USUAL) as worker:
            await let_pass(clock, "7s")
            for method in ("renew", "cancels", "claim", "report", "next_due"):
                line.hold_request(method, 100)
            worker.wake()
            await let_pass(clock, "10s")
        assert work.story[1][1] < 6 + TTL_S

    async def test_a_late_result_is_refused(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        line = FaultyStore(store)
        line.hold_request("report")
        handle = await Watched(app, clock, 1).task.submit()
        worker = make_worker(app, line, clock, USUAL)
        await worker.claimer.turn()
        await let_pass(clock, "1s")
        reporting = asyncio.create_task(worker.reporter.turn())
        await let_pass(clock, "20s")
        assert await recover(store) == 1
        (claim,) = await store.claim(make_worker(app, store, clock, USUAL, name="other").row, 1, SECOND, "strict")
        line.let_through()
        await reporting
        run = await row_of(handle)
        assert (run.state, run.token, worker.reporter.stale) == ("running", 2, 1)
        assert await store.report([Report(claim.run_id, claim.token, "succeeded", "succeeded")]) == ["accepted"]

    async def test_work_whose_claim_has_passed_to_another_is_stopped(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        """As after a pause of the whole process, or a jump of the store's clock."""
        work = Watched(app, clock, 100)
        handle = await work.task.submit()
        worker = make_worker(app, store, clock, USUAL)
        await worker.heartbeat.turn()
        await worker.claimer.turn()
        await let_others_run()
        clock.jump("1h")
        assert await recover(store) == 1
        await store.claim(make_worker(app, store, clock, USUAL, name="other").row, 1, SECOND, "strict")
        await let_pass(clock, USUAL.claim_renew)
        await worker.heartbeat.turn()
        await let_others_run()
        assert [word for word, _ in work.story] == ["started", "stopped"]
        assert (await row_of(handle)).worker == "other"

    async def test_a_claim_that_ran_out_and_was_given_to_the_same_worker_anew_stops_the_old_work(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        work = Watched(app, clock, 100)
        handle = await work.task.submit()
        worker = make_worker(app, store, clock, USUAL)
        await worker.claimer.turn()
        await let_others_run()
        clock.advance("30s")  # The process was held up; the claimer is the first to go on.
        assert await recover(store) == 1
        await worker.claimer.turn()
        await let_others_run()
        assert [word for word, _ in work.story] == ["started", "stopped", "started"]
        await let_pass(clock, "101s")
        await worker.reporter.turn()
        run = await row_of(handle)
        assert (run.state, run.token) == ("succeeded", 2)
        assert not worker.claims.solitary
        assert worker.runner.busy == 0

    async def test_a_jump_of_the_wall_clock_alone_fences_nothing(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        work = Watched(app, clock, 10)
        handle = await work.task.submit()
        async with working(app, store, clock, USUAL):
            await let_pass(clock, "1s")
            clock.jump("1h")
            await let_pass(clock, "2s")
            clock.set(clock.now() - 7200 * SECOND)
            await let_pass(clock, "10s")
        assert (await row_of(handle)).state == "succeeded"

    async def test_a_process_is_killed_without_grace(self, tmp_path: Path) -> None:
        store, file = SqliteStore(":memory:", SystemClock(), inline=True), tmp_path / "pids"
        line = FaultyStore(store)
        settings = msgspec.structs.replace(FAST, claim_ttl=2 * SECOND)  # It takes a while to start one.
        with at_home(chores.app, store, SystemClock()):
            async with working(chores.app, line, SystemClock(), settings) as worker:
                await chores.hang_with_family.submit(str(file))
                await until(lambda: file.exists() and len(file.read_text().split()) == 2)
                pids = [int(pid) for pid in file.read_text().split()]
                line.is_cut, cut_at = True, time.monotonic()
                await until(lambda: not any(is_alive(pid) for pid in pids))
                assert time.monotonic() - cut_at < 3.0
                await until(lambda: not worker.runner.busy)
        await store.close()


class TestWorkThatCannotBeStopped:
    """Where it lost its claim, the process has to end."""

    @pytest.fixture
    async def line(self) -> AsyncIterator[FaultyStore]:
        store = SqliteStore(":memory:", SystemClock(), inline=True)
        yield FaultyStore(store)
        await store.close()

    async def test_a_function_in_a_thread(self, line: FaultyStore) -> None:
        app, going_on, ends = Mainspring(), threading.Event(), []

        @app.task
        def work() -> None:
            going_on.wait(10)

        with at_home(app, line, SystemClock()):
            async with working(app, line, SystemClock(), on_unstoppable=lambda: ends.append(1)) as worker:
                handle = await work.submit()
                await until(lambda: worker.runner.busy)
                line.is_cut = True
                await until(lambda: ends)
                going_on.set()
                line.is_cut = False
                assert (await row_of(handle)).attempt == 0
        assert ends == [1]

    async def test_an_async_function_that_swallows_its_cancellation(self, line: FaultyStore) -> None:
        ends: list[int] = []
        with at_home(chores.app, line, SystemClock()):
            async with working(chores.app, line, SystemClock(), on_unstoppable=lambda: ends.append(1)) as worker:
                await chores.swallow_cancellation.submit(3, [1, 0.2, 0.2])
                await until(lambda: worker.runner.busy)
                line.is_cut = True
                await until(lambda: ends)

    async def test_not_where_the_work_ended_as_it_should(self, line: FaultyStore) -> None:
        app, ends = Mainspring(), []

        @app.task
        async def work() -> None:
            await asyncio.sleep(60)

        with at_home(app, line, SystemClock()):
            async with working(app, line, SystemClock(), on_unstoppable=lambda: ends.append(1)) as worker:
                await work.submit()
                await until(lambda: worker.runner.busy)
                line.is_cut = True
                await until(lambda: not worker.runner.busy)
                await until(lambda: not worker._endings)
        assert ends == []


async def test_what_ends_while_its_claim_is_renewed_is_not_taken_for_lost(
    store: Any, app: Mainspring, clock: JumpingClock, caplog: pytest.LogCaptureFixture
) -> None:
    line = FaultyStore(store)
    handle = await Watched(app, clock, 4).task.submit()
    async with working(app, line, clock, USUAL):
        await let_pass(clock, "2s")
        line.hold_request("renew")
        await let_pass(clock, "3s")
        assert (await row_of(handle)).state == "succeeded"
        line.let_through()
        await let_pass(clock, "1s")
    assert "stopping run" not in caplog.text
