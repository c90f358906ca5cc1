"""Chores are done by one process: the leader, or one of the workers while no scheduler runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from stage import USUAL, FaultyStore, JumpingClock, add_job, at_home, let_pass, make_worker

from mainspring import Mainspring
from mainspring.leases.database import DatabaseLease
from mainspring.services.chores.chores import Chores
from mainspring.services.node import Node
from mainspring.services.scheduler.scheduler import SchedulerService
from mainspring.stores.sqlite.store import SqliteStore


@pytest.fixture
async def stores(tmp_path: Path, clock: JumpingClock) -> AsyncIterator[list[SqliteStore]]:
    stores = [SqliteStore(str(tmp_path / "shared.db"), clock, durable=False, inline=True) for _ in range(3)]
    yield stores
    for store in stores:
        await store.close()


def make_app(clock: JumpingClock, ran: list[str], name: str) -> Mainspring:
    app = Mainspring()

    @app.task
    async def slow() -> None:
        ran.append(name)
        await clock.sleep(1_000_000 if len(ran) == 1 else 1)

    return app


def make_lone_worker(store: Any, clock: JumpingClock, ran: list[str], name: str, *, chores: bool = True) -> Node:
    worker = make_worker(make_app(clock, ran, name), store, clock, USUAL, name=name)
    return Node(store, None, worker, Chores(store, name, USUAL, clock, Random(name)) if chores else None)


def make_scheduler(store: Any, clock: JumpingClock) -> Node:
    scheduler = SchedulerService(store, DatabaseLease(store), "scheduler", USUAL, clock, Random(0))
    return Node(store, scheduler, None, Chores(store, "scheduler", USUAL, clock, Random(0), leads=scheduler.leads))


async def kill(node: Node) -> None:
    node.supervisor.release()
    for task in node.supervisor.tasks:
        task.cancel()
    await asyncio.gather(*node.supervisor.tasks, return_exceptions=True)


@asynccontextmanager
async def started(*nodes: Node) -> AsyncIterator[None]:
    async with AsyncExitStack() as stack:
        for node in nodes:
            stack.push_async_callback(kill, node)
            await node.start()
        yield


def on_duty(*nodes: Node) -> int:
    return sum(node.chores is not None and node.chores.on_duty() for node in nodes)


@pytest.mark.parametrize("chores", [True, False])
async def test_the_runs_of_a_killed_worker_are_recovered_without_a_scheduler(
    stores: list[SqliteStore], clock: JumpingClock, chores: bool
) -> None:
    """Without chores, as it was before, the run stays `running` for ever."""
    ran: list[str] = []
    one, other = (
        make_lone_worker(store, clock, ran, f"worker-{n}", chores=chores) for n, store in enumerate(stores[:2])
    )
    app = make_app(clock, [], "submitter")
    with at_home(app, stores[2], clock):
        async with started(one, other):
            handle = await app.tasks["slow"].submit()
            await let_pass(clock, "8s")
            first = one if ran == ["worker-0"] else other
            await kill(first)
            await let_pass(clock, "60s")
            run = await stores[2].get_run("default", handle.id)
    assert (run.state, len(ran)) == (("succeeded", 2) if chores else ("running", 1))


async def test_one_of_several_workers_does_the_chores(stores: list[SqliteStore], clock: JumpingClock) -> None:
    nodes = [make_lone_worker(store, clock, [], f"worker-{n}") for n, store in enumerate(stores)]
    async with started(*nodes):
        await let_pass(clock, "15s")
        assert on_duty(*nodes) == 1
        (busy,) = [node for node in nodes if on_duty(node)]
        stopping = asyncio.create_task(busy.stop(0.0))
        await let_pass(clock, "10s")
        await stopping
        assert on_duty(*[node for node in nodes if node is not busy]) == 1, "a node that stops hands it over at once"


async def test_events_are_numbered_so_that_workers_can_show_them(
    stores: list[SqliteStore], clock: JumpingClock
) -> None:
    async with started(make_lone_worker(stores[0], clock, [], "worker")):
        await let_pass(clock, "15s")
        batches = await stores[1].events_since(0, 10)
    assert [event.kind for batch in batches for event in batch.events] == ["worker.started"]


async def test_a_scheduler_that_comes_takes_over(stores: list[SqliteStore], clock: JumpingClock) -> None:
    worker, scheduler = make_lone_worker(stores[0], clock, [], "worker"), make_scheduler(stores[1], clock)
    async with started(worker):
        await let_pass(clock, "15s")
        assert on_duty(worker) == 1
        async with started(scheduler):
            await let_pass(clock, "6s")
            assert on_duty(worker) == 0
            assert await stores[2].holders("chores") == []
        await let_pass(clock, "30s")
        assert on_duty(worker) == 1, "and when it is gone, the worker goes on"


async def test_beside_a_scheduler_a_worker_asks_one_question_now_and_then(
    stores: list[SqliteStore], clock: JumpingClock
) -> None:
    line = FaultyStore(stores[0])
    async with started(make_scheduler(stores[1], clock)):
        await let_pass(clock, "2s")
        async with started(make_lone_worker(line, clock, [], "worker")):
            await let_pass(clock, "10s")
            before = Counter(line.calls)
            await let_pass(clock, "60s")
    calls = line.calls - before
    assert 12 <= calls["holders"] <= 25
    assert {name for name in calls if name in ("recover", "clean", "number_events", "events_since", "acquire")} == set()


async def test_it_warns_that_jobs_are_not_fired(
    stores: list[SqliteStore], clock: JumpingClock, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(clock, [], "submitter")
    async with started(make_lone_worker(stores[0], clock, [], "worker")):
        await let_pass(clock, "30s")
        assert "no scheduler runs" not in caplog.text, "there are no jobs"
        with at_home(app, stores[1], clock):
            await add_job(app, "report", "1h")
        await let_pass(clock, "15s")
        assert "no scheduler runs, so no job fires (the next one would be report)" in caplog.text
        await let_pass(clock, "5m")
    assert caplog.text.count("no job fires") == 1


async def test_of_two_schedulers_only_the_leader_recovers_runs(stores: list[SqliteStore], clock: JumpingClock) -> None:
    lines = [FaultyStore(store) for store in stores[:2]]
    nodes = [make_scheduler(line, clock) for line in lines]
    async with started(*nodes):
        await let_pass(clock, "2s")
        assert on_duty(*nodes) == 1
        before = [line.calls["recover"] for line in lines]
        await let_pass(clock, "30s")
        calls = [line.calls["recover"] - past for line, past in zip(lines, before, strict=True)]
        leading = [node.scheduler is not None and node.scheduler.leads() for node in nodes]
        assert [count > 0 for count in calls] == leading
        await kill(nodes[leading.index(True)])
        await let_pass(clock, "5s")
        assert on_duty(nodes[leading.index(False)]) == 1, "the other takes over soon after the leader has died"
