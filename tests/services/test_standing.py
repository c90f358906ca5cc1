"""A worker that has nothing to do starts what is submitted in its own process without having to look for it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from stage import USUAL, JumpingClock, at_home, ended, let_others_run, let_pass, make_worker, until, working

from mainspring import Mainspring
from mainspring.wiring import build_runtime

PATIENCE_S = 20
TWO_PLACES = msgspec.structs.replace(USUAL, concurrency=2)


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(concurrency=2), store, clock) as app:
        yield app


def ticker(app: Mainspring, clock: JumpingClock) -> Any:
    @app.task
    async def tick(seconds: float = 0) -> str:
        if seconds:
            await clock.sleep(seconds)
        return "tick"

    return tick


async def test_what_is_submitted_to_an_idle_worker_is_begun_before_the_submission_returns(
    app: Mainspring, store: Any, clock: JumpingClock
) -> None:
    tick = ticker(app, clock)
    async with working(app, store, clock, USUAL) as worker:
        for _ in range(3):
            await let_pass(clock, "20ms")  # Until it has looked for more, and found nothing.
            handle = await tick.submit()
            assert worker.runner.busy == 1
            await let_pass(clock, "20ms")
            run = await ended(handle)
            assert (run.state, run.attempt, run.losses) == ("succeeded", 1, 0)


async def test_a_claim_that_was_made_so_is_kept_and_reported_as_any(
    app: Mainspring, store: Any, clock: JumpingClock
) -> None:
    tick = ticker(app, clock)
    async with working(app, store, clock, USUAL) as worker:
        await let_pass(clock, "1ms")
        handle = await tick.submit(600)
        await let_others_run()
        assert worker.claims.pairs() == [(handle.id, 1)]
        await let_pass(clock, "5m")
        assert (await store.get_run("default", handle.id)).state == "running", "its claim was renewed"
        await let_pass(clock, "6m")
        assert (await ended(handle)).state == "succeeded"


async def test_a_worker_that_has_a_place_left_begins_at_once_too(
    app: Mainspring, store: Any, clock: JumpingClock
) -> None:
    tick = ticker(app, clock)
    async with working(app, store, clock, USUAL) as worker:
        await let_pass(clock, "1ms")
        first = await tick.submit(60)
        await let_pass(clock, "2s")
        second = await tick.submit()
        assert worker.runner.busy == 2
        await let_pass(clock, "1s")
        assert (await ended(second)).state == "succeeded"
        await let_pass(clock, "61s")
        assert (await ended(first)).state == "succeeded"


async def test_a_worker_whose_places_are_taken_is_given_nothing(
    app: Mainspring, store: Any, clock: JumpingClock
) -> None:
    tick = ticker(app, clock)
    async with working(app, store, clock, TWO_PLACES) as worker:
        for _ in range(2):
            await let_pass(clock, "2s")
            await tick.submit(60)
        await let_pass(clock, "2s")
        third = await tick.submit()
        await let_pass(clock, "1s")
        assert worker.runner.busy == 2
        assert (await store.get_run("default", third.id)).state == "pending", "another worker may have a slot"
        await let_pass(clock, "61s")
        assert (await ended(third)).state == "succeeded"


async def test_what_was_given_to_a_loop_that_does_not_turn_is_kept_all_the_same(
    app: Mainspring, store: Any, clock: JumpingClock
) -> None:
    """Its claim is renewed from another thread, while a function blocks the loop on which it is to run."""
    tick = ticker(app, clock)
    worker = make_worker(app, store, clock, USUAL)
    worker._task_loop = stuck = asyncio.new_event_loop()
    handle = await tick.submit()
    (claim,) = await store.claim(worker.row, 1, USUAL.claim_ttl, "strict")
    worker.claimer._take_here([claim], clock.monotonic())
    await until(lambda: worker.claims.pairs() == [(handle.id, 1)])
    stuck.close()


async def test_a_worker_that_drains_is_given_nothing(app: Mainspring, store: Any, clock: JumpingClock) -> None:
    tick = ticker(app, clock)
    async with working(app, store, clock, USUAL) as worker:
        await let_pass(clock, "1ms")
        worker.claimer.stop()
        handle = await tick.submit()
        await let_pass(clock, "2s")
    assert (await store.get_run("default", handle.id)).state == "pending"


async def test_a_claim_that_comes_too_late_is_given_back(app: Mainspring, store: Any, clock: JumpingClock) -> None:
    tick = ticker(app, clock)
    worker = make_worker(app, store, clock, USUAL)
    handle = await tick.submit()
    (claim,) = await store.claim(worker.row, 1, USUAL.claim_ttl, "strict")
    sent_at = clock.monotonic()
    clock.advance("1h")  # The process was stopped right after its commit.
    worker.claimer._take_here([claim], sent_at)
    await let_others_run()
    assert list(worker.runner.returned) == [(handle.id, 1)]
    assert not worker.claims.pairs()


async def test_a_submission_in_another_thread_is_served_too(tmp_path: Path) -> None:
    app = Mainspring(f"sqlite:///{tmp_path}/one.db")
    threads: list[threading.Thread] = []

    @app.task
    async def note() -> None:
        threads.append(threading.current_thread())

    def has_grown(count: int) -> bool:
        return len(threads) >= count

    async with app:
        runtime = build_runtime(app, app.settings, schedule=True, work=True)
        await runtime.start()
        try:
            for number in range(1, 30):
                await asyncio.to_thread(app.sync, note.submit)
                await until(partial(has_grown, number))
        finally:
            await runtime.stop(5)
    assert set(threads) == {threading.current_thread()}, "async functions run on the loop of the app"
