"""A worker says what it does, from its own loops; the fleet's events are not its business."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from stage import USUAL, FaultyStore, JumpingClock, at_home, let_pass, make_worker, turning

from mainspring import Mainspring, Retry
from mainspring.core.model import Event
from mainspring.services.worker.worker import Worker


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(), store, clock) as app:
        yield app


def a_worker(app: Mainspring, store: Any, clock: JumpingClock) -> tuple[Worker, list[Event]]:
    worker, told = make_worker(app, store, clock, USUAL), []
    worker.tell(lambda event, args: told.append(event))
    return worker, told


async def test_each_start_and_each_end_is_told_once(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    @app.task
    async def good() -> None: ...

    @app.task(retry=Retry(1))
    async def bad() -> None:
        raise ValueError("no")

    line = FaultyStore(store)
    line.lose_reply("report")
    worker, told = a_worker(app, line, clock)
    fine, broken = await good.submit(), await bad.submit()
    async with turning(*worker.loops):
        await let_pass(clock, "60s")
    stories = {
        handle.id: [(event.kind, event.attempt) for event in told if event.run_id == handle.id]
        for handle in (fine, broken)
    }
    assert stories[fine.id] == [("run.running", 1), ("run.succeeded", 1)]
    assert stories[broken.id] == [("run.running", 1), ("run.retrying", 1), ("run.running", 2), ("run.failed", 2)]
    assert {event.worker for event in told} == {worker.row.id}
    assert line.calls["events_since"] == line.calls["next_position"] == 0


async def test_a_run_that_somebody_cancels_ends_so(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    @app.task
    async def long() -> None:
        await clock.sleep(100)

    worker, told = a_worker(app, store, clock)
    handle = await long.submit()
    async with turning(*worker.loops):
        await let_pass(clock, "1s")
        await handle.cancel("enough")
        await let_pass(clock, "5s")
    assert [(event.kind, event.reason) for event in told] == [("run.running", ""), ("run.cancelled", "enough")]
