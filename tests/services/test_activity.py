"""A worker reports what its own loops do. It does not read the events of the fleet."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest
from stage import USUAL, FaultyStore, JumpingClock, add_job, at_home, ledger, let_pass, make_worker, turning

from mainspring import Mainspring, Retry
from mainspring.core.instants import SECOND
from mainspring.core.model import Event
from mainspring.leases.database import DatabaseLease
from mainspring.services.activity import Activity, Listener, Summary
from mainspring.services.loop import Loop
from mainspring.services.node import Node
from mainspring.services.scheduler.scheduler import SchedulerService
from mainspring.services.worker.worker import WorkerService


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(), store, clock) as app:
        yield app


class Watched:
    """A worker, and what it reports."""

    def __init__(self, app: Mainspring, store: Any, clock: JumpingClock, *, detailed: bool) -> None:
        self.worker: WorkerService = make_worker(app, store, clock, USUAL)
        self.events: list[Event] = []
        self.summaries: list[Summary] = []
        listener = Listener(lambda event, _: self.events.append(event), self.summaries.append, detailed)
        self.activity = Activity(self.worker.row.id, listener, store.now, clock, Random(0))
        self.worker.report_to(self.activity)

    @property
    def loops(self) -> list[Loop]:
        return [*self.worker.loops, self.activity]


def a_worker(app: Mainspring, store: Any, clock: JumpingClock) -> tuple[WorkerService, list[Event]]:
    watched = Watched(app, store, clock, detailed=True)
    return watched.worker, watched.events


async def test_each_start_and_each_end_is_reported_once(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    @app.task
    async def good() -> None: ...

    @app.task(retry=Retry(1))
    async def bad() -> None:
        raise ValueError("no")

    line = FaultyStore(store)
    line.lose_reply("report")
    worker, reported = a_worker(app, line, clock)
    fine, broken = await good.submit(), await bad.submit()
    async with turning(*worker.loops):
        await let_pass(clock, "60s")
    stories = {
        handle.id: [(event.kind, event.attempt) for event in reported if event.run_id == handle.id]
        for handle in (fine, broken)
    }
    assert stories[fine.id] == [("run.running", 1), ("run.succeeded", 1)]
    assert stories[broken.id] == [("run.running", 1), ("run.retrying", 1), ("run.running", 2), ("run.failed", 2)]
    assert {event.worker for event in reported} == {worker.row.id}
    assert line.calls["events_since"] == line.calls["next_position"] == 0


async def test_a_cancelled_run_ends_as_cancelled(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    @app.task
    async def long() -> None:
        await clock.sleep(100)

    worker, reported = a_worker(app, store, clock)
    handle = await long.submit()
    async with turning(*worker.loops):
        await let_pass(clock, "1s")
        await handle.cancel("enough")
        await let_pass(clock, "5s")
    assert [(event.kind, event.reason) for event in reported] == [("run.running", ""), ("run.cancelled", "enough")]


async def test_a_run_that_exceeds_its_timeout_has_failed(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    @app.task(retry=Retry(1))
    async def long() -> None:
        await clock.sleep(100)

    watched = Watched(app, store, clock, detailed=False)
    handle = await long.submit()
    async with turning(*watched.loops):
        for _ in range(2):
            await let_pass(clock, "20s")
            watched.worker.runner.stop(handle.id, "timed_out")  # As its timer does, which has a clock of its own.
            await let_pass(clock, "1s")
        watched.activity.summarize()
    assert [(event.kind, event.attempt) for event in watched.events] == [("run.failed", 2)]
    assert watched.summaries[0][3:] == (2, 0, 1, 1, 0)


async def test_an_unwatched_worker_reports_failures_and_a_summary_a_minute(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    @app.task
    async def good() -> None: ...

    @app.task(retry=Retry(1))
    async def bad() -> None:
        raise ValueError("no")

    @app.task
    async def long() -> None:
        await clock.sleep(100)

    watched = Watched(app, store, clock, detailed=False)
    await good.submit_many([{}] * 20)
    broken = await bad.submit()
    await long.submit()
    async with turning(*watched.loops):
        await let_pass(clock, "50s")
        assert [(event.kind, event.run_id, event.attempt) for event in watched.events] == [("run.failed", broken.id, 2)]
        assert watched.summaries == [], "a minute has not passed"
        await let_pass(clock, "11s")
        (summary,) = watched.summaries
        assert summary[1:] == (watched.worker.row.id, 60, 23, 20, 1, 1, 1)
        await let_pass(clock, "120s")
        assert [each[3:] for each in watched.summaries[1:]] == [(0, 1, 0, 0, 0)], "a minute without work is no line"


async def test_a_result_that_the_store_refused_is_not_counted(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    @app.task
    async def short() -> None: ...

    line = FaultyStore(store)
    line.hold_request("report")
    watched = Watched(app, line, clock, detailed=False)
    await short.submit()
    await watched.worker.claimer.turn()
    await let_pass(clock, "1s")
    reporting = asyncio.create_task(watched.worker.reporter.turn())
    await let_pass(clock, "20s")
    assert (await store.recover(10 * SECOND, 10)).lost == 1
    line.let_through()
    await reporting
    watched.activity.summarize()
    (summary,) = watched.summaries
    assert (summary.claimed, summary.succeeded, watched.worker.reporter.stale) == (1, 0, 1)


@pytest.mark.parametrize("detailed", [True, False])
async def test_a_node_that_schedules_reports_its_firings(
    store: Any, app: Mainspring, clock: JumpingClock, detailed: bool
) -> None:
    """With an overlap that the store forbids, and an instant that was missed while no node ran."""

    @app.task
    async def work() -> None:
        await clock.sleep(15)

    events: list[Event] = []
    await add_job(app, "report", "10s", overlap="forbid", misfire="skip")
    clock.advance("35s")
    scheduler = SchedulerService(store, DatabaseLease(store), "node", USUAL, clock, Random(0))
    listener = Listener(lambda event, _: events.append(event), lambda _: None, detailed)
    node = Node(store, scheduler, make_worker(app, store, clock, USUAL), listener=listener)
    await node.start()
    await let_pass(clock, "26s")
    stopping = asyncio.create_task(node.stop(0.0))
    await let_pass(clock, "10s")
    await stopping
    kinds = [event.kind for event in events if event.kind.startswith("firing.")]
    rows = await ledger(store, await store.get_job("default", "report"))
    written = [f"firing.{row.outcome if row.run_id is None else 'fired'}" for row in rows]
    assert {"firing.missed", "firing.fired", "firing.skipped"} <= set(written)
    assert kinds == (written if detailed else [kind for kind in written if kind == "firing.missed"])
