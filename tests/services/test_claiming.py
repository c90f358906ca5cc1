"""What a worker takes: no more than it can start soon, what is due when it is due, and what was lost before alone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from stage import (
    USUAL,
    FaultyStore,
    JumpingClock,
    Watched,
    at_home,
    let_others_run,
    let_pass,
    make_worker,
    recover,
    turning,
    working,
)

from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.core.runs.pacing import MOST_AHEAD
from sdk_work import row_of


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(), store, clock) as app:
        yield app


class TestLostRuns:
    async def test_one_that_was_lost_twice_runs_alone(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        together: list[set[int]] = []
        running: set[int] = set()

        @app.task
        async def work(number: int) -> None:
            running.add(number)
            together.append(set(running))
            await clock.sleep(1)
            running.discard(number)

        await work.submit(0)
        for _ in range(2):
            (lost,) = await store.claim(make_worker(app, store, clock, name="dead").row, 1, SECOND, "strict")
            clock.advance("20s")
            assert await recover(store) == 1
        await work.submit_many([{"number": number} for number in (1, 2, 3)])
        async with working(app, store, clock, USUAL):
            await let_pass(clock, "20s")
        assert {0} in together
        assert all(seen == {0} or 0 not in seen for seen in together)
        run = await store.get_run("default", lost.run_id)
        assert (run.state, run.losses, run.attempt) == ("succeeded", 2, 3)

    async def test_those_that_were_lost_before_follow_each_other_without_a_pause(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        work = Watched(app, clock, 0.01)
        await work.task.submit_many([{}] * 10)
        await store.claim(make_worker(app, store, clock, name="dead").row, 10, SECOND, "strict")
        clock.advance("20s")
        assert await recover(store) == 10
        worker = make_worker(app, store, clock, USUAL)
        async with turning(*worker.loops):  # It is not notified of changes.
            await let_pass(clock, "500ms")
        assert [word for word, _ in work.story].count("finished") == 10

    async def test_a_lost_answer_to_a_claim_delays_the_runs_but_loses_none(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        line, work = FaultyStore(store), Watched(app, clock, 1)
        line.lose_reply("claim")
        handles = await work.task.submit_many([{}, {}])
        async with working(app, line, clock, USUAL):
            for _ in range(20):
                await let_pass(clock, "1s")
                await recover(store)
        assert [(await row_of(handle)).state for handle in handles] == ["succeeded"] * 2


class TestRoom:
    async def test_a_full_worker_claims_no_more(self, store: Any, clock: JumpingClock) -> None:
        with at_home(Mainspring(concurrency=2), store, clock) as app:
            work = Watched(app, clock, 1_000)
            handles, line = await work.task.submit_many([{}] * 5), FaultyStore(store)
            async with working(app, line, clock, app.settings):
                await let_pass(clock, "30s")
                states = [(await row_of(handle)).state for handle in handles]
        assert sorted(states) == ["pending"] * 3 + ["running"] * 2
        assert line.calls["claim"] == 1, "nor does it ask"

    async def test_what_was_claimed_ahead_goes_back_when_it_turns_out_that_it_cannot_start_soon(
        self, store: Any, clock: JumpingClock
    ) -> None:
        with at_home(Mainspring(concurrency=2), store, clock) as app:
            work = Watched(app, clock, 1_000)
            handles = await work.task.submit_many([{}] * 50)
            async with working(app, store, clock, app.settings) as worker:
                worker.claims.run_s = 0.001  # A moment ago, runs were short.
                await let_others_run()
                assert len(worker.claims) == 50
                await let_pass(clock, "5s")
                assert len(worker.claims) == 2
            runs = [await row_of(handle) for handle in handles]
        assert sorted(run.state for run in runs) == ["pending"] * 48 + ["running"] * 2
        assert {run.attempt for run in runs} == {0}


async def test_a_worker_looks_for_what_comes_due(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    work = Watched(app, clock, 0)
    for delay in ("300ms", "2500ms", "7s"):
        await work.task.options(delay=delay).submit()
    async with working(app, store, clock, USUAL):
        await let_pass(clock, "8s")
    assert [at for word, at in work.story if word == "started"] == pytest.approx([0.3, 2.5, 7.0])


class TestAhead:
    """What is due in a moment is claimed before, and starts at its instant."""

    async def test_it_is_claimed_before_and_starts_when_it_is_due(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        work = Watched(app, clock, 0)
        handle = await work.task.options(delay="2s").submit()
        async with working(app, store, clock, USUAL):
            await let_pass(clock, "1999ms")
            assert (await row_of(handle)).state == "running"
            assert work.story == []
            await let_pass(clock, "2ms")
        assert [at for word, at in work.story if word == "started"] == pytest.approx([2.0], abs=0.001)
        assert all(at >= 2.0 for _, at in work.story)

    @pytest.mark.parametrize(("length_s", "claimed"), [(None, 2), (0.01, 22), (100, 2)])
    async def test_a_worker_that_has_not_run_anything_goes_by_what_others_ran(
        self, store: Any, clock: JumpingClock, length_s: float | None, claimed: int
    ) -> None:
        with at_home(Mainspring(concurrency=2), store, clock) as app:
            work = Watched(app, clock, length_s or 0)
            if length_s is not None:
                await work.task.submit()
                async with working(app, store, clock, app.settings, name="other"):
                    await let_pass(clock, "101s")
            await work.task.options(delay="2s").submit_many([{}] * 50)
            async with working(app, store, clock, app.settings) as worker:
                await let_pass(clock, "1999ms")
                assert len(worker.claims) == claimed

    async def test_it_takes_no_place_before_it_is_due(self, store: Any, clock: JumpingClock) -> None:
        with at_home(Mainspring(concurrency=1), store, clock) as app:
            soon, now = Watched(app, clock, 0), []

            @app.task(name="urgent")
            async def urgent() -> None:
                now.append(clock.monotonic())

            await soon.task.options(delay="400ms").submit()
            async with working(app, store, clock, app.settings) as worker:
                await let_pass(clock, "100ms")
                assert len(worker.claims) == 1
                await urgent.submit()
                await let_pass(clock, "100ms")
                assert now == pytest.approx([0.1], abs=0.01)
                assert soon.story == []
                await let_pass(clock, "300ms")
        assert [word for word, _ in soon.story] == ["started", "finished"]

    async def test_it_goes_back_when_the_worker_drains_and_is_due_when_it_was(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        work = Watched(app, clock, 0)
        handle = await work.task.options(delay="400ms").submit()
        due_at = (await row_of(handle)).due_at
        async with working(app, store, clock, USUAL) as worker:
            await let_pass(clock, "100ms")
            draining = asyncio.ensure_future(worker.drain(1.0))
            await let_pass(clock, "100ms")
            await draining
            run = await row_of(handle)
        assert (run.state, run.due_at, run.attempt) == ("pending", due_at, 0)
        assert work.story == []

    async def test_what_comes_due_meanwhile_is_not_hoarded(self, store: Any, clock: JumpingClock) -> None:
        with at_home(Mainspring(concurrency=2), store, clock) as app:
            work, line = Watched(app, clock, 1_000), FaultyStore(store)
            await work.task.options(delay="400ms").submit()
            line.hold_request("next_due")
            async with working(app, line, clock, app.settings) as worker:
                worker.claims.run_s = 1e-6
                await let_others_run()
                await work.task.submit_many([{}] * 2_500)  # After it was seen that nothing is due.
                line.let_through()
                await let_others_run(300)
                assert 2 <= len(worker.claims) <= 2 + MOST_AHEAD + 1

    async def test_one_that_is_cancelled_does_not_start(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        work = Watched(app, clock, 0)
        handle = await work.task.options(delay="400ms").submit()
        async with working(app, store, clock, USUAL):
            await let_pass(clock, "50ms")
            await handle.cancel("not needed")
            await let_pass(clock, "1s")
            assert (await row_of(handle)).state == "cancelled"
        assert work.story == []


class TestWhileThereIsNothing:
    async def test_it_asks_one_thing_a_second(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        @app.task
        async def work() -> None: ...

        line = FaultyStore(store)
        async with working(app, line, clock, USUAL):
            await let_pass(clock, "5s")
            line.calls.clear()
            await let_pass(clock, "30s")
        assert 29 <= line.calls["look"] <= 31
        line.calls.pop("look")
        assert set(line.calls) == {"renew"}, "its heartbeat, where a look is none"

    async def test_a_run_without_a_hint_starts_within_a_second(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        started: list[int] = []

        @app.task
        async def work() -> None:
            started.append(clock.now())

        worker = make_worker(app, FaultyStore(store), clock, USUAL)
        async with turning(*worker.loops):
            await let_pass(clock, "5s")
            submitted_at = clock.now()
            await work.submit()
            await let_pass(clock, "2s")
        assert started
        assert started[0] - submitted_at <= SECOND
