"""All loops of a process in virtual time: started together, stopped in an order that loses nothing, in bounded time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import pytest
from stage import (
    START,
    USUAL,
    FaultyStore,
    JumpingClock,
    LocalSink,
    add_job,
    at_home,
    fired_at,
    let_others_run,
    let_pass,
    make_worker,
    until,
)

from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.core.load.leadership import LEASE
from mainspring.core.model import EventBatch
from mainspring.leases.database import DatabaseLease
from mainspring.services.chores.chores import Chores
from mainspring.services.node import Node
from mainspring.services.scheduler.scheduler import SchedulerService
from mainspring.settings import Settings
from mainspring.sink import Sink
from mainspring.stores.sqlite.store import SqliteStore

STEPS_S = 20
"""More than all the steps of stopping may take together where the store does not answer."""


def make_node(
    app: Mainspring,
    store: Any,
    clock: JumpingClock,
    name: str = "node",
    *,
    sinks: Sequence[Sink] = (),
    using: Settings = USUAL,
    work: bool = True,
) -> Node:
    random = Random(name)
    scheduler = SchedulerService(store, DatabaseLease(store), name, using, clock, random)
    chores = Chores(store, name, using, clock, random, leads=scheduler.leads, sinks=sinks, alerts=None)
    return Node(store, scheduler, make_worker(app, store, clock, using, name=name) if work else None, chores)


@asynccontextmanager
async def started(*nodes: Node) -> AsyncIterator[None]:
    """Nodes that run, until they end without a word."""
    for node in nodes:
        await node.start()
    try:
        yield
    finally:
        for node in nodes:
            await kill(node)


async def kill(node: Node) -> None:
    """End a node without a word."""
    node.supervisor.release()
    for task in node.supervisor.tasks:
        task.cancel()
    await asyncio.gather(*node.supervisor.tasks, return_exceptions=True)


def leaders(*nodes: Node) -> list[bool]:
    return [node.scheduler is not None and node.scheduler.leads() for node in nodes]


@pytest.fixture
async def stores(tmp_path: Path, clock: JumpingClock) -> AsyncIterator[list[SqliteStore]]:
    stores = [SqliteStore(str(tmp_path / "shared.db"), clock, durable=False, inline=True) for _ in range(2)]
    yield stores
    for store in stores:
        await store.close()


def worked_app(ran: list[int]) -> Mainspring:
    app = Mainspring()

    @app.task(name="work")
    async def work() -> None:
        ran.append(1)

    return app


async def test_a_job_fires_runs_and_leaves_events(store: Any, clock: JumpingClock) -> None:
    kinds: list[str] = []

    class Listening(LocalSink):
        async def deliver(self, batches: Sequence[EventBatch]) -> None:
            kinds.extend(event.kind for batch in batches for event in batch.events)

    ran: list[int] = []
    with at_home(worked_app(ran), store, clock) as app:
        job = await add_job(app, "job", "10s")
        node = make_node(app, store, clock, sinks=[Listening()])
        async with started(node):
            await let_pass(clock, "31s")
            stopping = asyncio.create_task(node.stop())
            await let_pass(clock, "1s")
            await stopping
    assert await fired_at(store, job) == [10, 20, 30]
    assert len(ran) == 3
    assert kinds.count("run.succeeded") == 3
    assert kinds[-1] == "worker.stopped"


async def test_a_hint_wakes_every_loop_that_may_have_something_to_do(store: Any, clock: JumpingClock) -> None:
    ran: list[int] = []
    with at_home(worked_app(ran), store, clock) as app:
        node = make_node(app, store, clock)
        async with started(node):
            await let_pass(clock, "5s")
            await app.submit("work")
            await let_others_run()
            assert ran == [1], "not a microsecond has passed"


class TestTwoNodes:
    async def test_one_leads_and_both_work(self, stores: list[SqliteStore], clock: JumpingClock) -> None:
        ran: list[int] = []
        app = worked_app(ran)
        nodes = [make_node(app, store, clock, f"node-{n}") for n, store in enumerate(stores)]
        with at_home(app, stores[0], clock):
            job = await add_job(app, "job", "1s")
            async with started(*nodes):
                await let_pass(clock, "60500ms")
                assert leaders(*nodes).count(True) == 1
        assert await fired_at(stores[0], job) == list(range(1, 61))
        assert len(ran) == 60

    async def test_the_other_leads_at_once_when_the_leader_stops_and_nothing_is_lost_or_doubled(
        self, stores: list[SqliteStore], clock: JumpingClock
    ) -> None:
        ran: list[int] = []
        app = worked_app(ran)
        one, other = (make_node(app, store, clock, f"node-{n}") for n, store in enumerate(stores))
        with at_home(app, stores[0], clock):
            job = await add_job(app, "job", "1s")
            async with started(one):
                await let_pass(clock, "5500ms")
                async with started(other):
                    await let_pass(clock, "1s")
                    assert leaders(one, other) == [True, False]
                    stopping = asyncio.create_task(one.stop())
                    await let_pass(clock, USUAL.lease_renew)
                    assert leaders(one, other) == [False, True]
                    await let_pass(clock, "10s")
                    assert stopping.done()
                    await until(lambda: len(ran) >= 16)
        assert await fired_at(stores[0], job) == list(range(1, 17))
        assert len(ran) == 16

    async def test_the_other_leads_within_two_seconds_when_the_leader_dies(
        self, stores: list[SqliteStore], clock: JumpingClock
    ) -> None:
        app = worked_app([])
        one, other = (make_node(app, store, clock, f"node-{n}", work=False) for n, store in enumerate(stores))
        with at_home(app, stores[0], clock):
            job = await add_job(app, "job", "1s")
            async with started(one):
                await let_pass(clock, "1s")
                async with started(other):
                    await let_pass(clock, "4500ms")
                    assert leaders(one, other) == [True, False]
                    await kill(one)
                    await let_pass(clock, "2s")
                    assert leaders(other) == [True]
                    await let_pass(clock, "3s")
        assert await fired_at(stores[0], job) == list(range(1, 11))

    async def test_in_a_cluster_both_plan(self, stores: list[SqliteStore], clock: JumpingClock) -> None:
        app, using = worked_app([]), Settings(coordination="cluster")
        nodes = [make_node(app, store, clock, f"node-{n}", using=using) for n, store in enumerate(stores)]
        with at_home(app, stores[0], clock):
            job = await add_job(app, "job", "1s")
            async with started(nodes[1]):
                async with started(nodes[0]):
                    await let_pass(clock, "5500ms")
                await let_pass(clock, "5s")
        assert await fired_at(stores[0], job) == list(range(1, 11))


async def test_a_leader_whose_term_was_overtaken_by_a_node_that_slept_fires_on(store: Any, clock: JumpingClock) -> None:
    """It holds the lease, so no other process would."""
    app = worked_app([])
    node = make_node(app, store, clock, work=False)
    with at_home(app, store, clock):
        job = await add_job(app, "job", "1s")
        async with started(node):
            await let_pass(clock, "2500ms")
            await store.begin_term(LEASE, "a node that slept through its lease")
            await let_pass(clock, "5s")
    assert await fired_at(store, job) == list(range(1, 8))
    before = await store.list_firings(job.id, before=START + 3 * SECOND)
    assert all(row.created_at <= row.fire_at for row in before)


class TestStopping:
    @pytest.mark.parametrize("fault", ["cut", "hold"])
    async def test_it_is_bounded_where_the_store_does_not_answer(
        self, store: Any, clock: JumpingClock, fault: str
    ) -> None:
        app, line = Mainspring(), FaultyStore(store)

        @app.task
        async def work() -> None:
            await clock.sleep(1_000)

        with at_home(app, store, clock):
            await work.submit()
            node = make_node(app, line, clock)
            async with started(node):
                await let_pass(clock, "5s")
                line.is_cut = fault == "cut"
                for method in dir(store):
                    if not method.startswith("_") and method not in ("now", "surely_now", "on_change", "close"):
                        line.hold_request(method, 1_000)
                stopping = asyncio.create_task(node.stop(2.0))
                await let_pass(clock, STEPS_S * SECOND)
                async with asyncio.timeout(20):
                    await stopping
        assert all(task.done() for task in node.supervisor.tasks)

    async def test_a_sink_that_fails_does_not_keep_it_from_ending(self, store: Any, clock: JumpingClock) -> None:
        class Broken(LocalSink):
            async def deliver(self, batches: Sequence[EventBatch]) -> None:
                raise ConnectionError("the sink is down")

        app = Mainspring()
        node = make_node(app, store, clock, sinks=[Broken()])
        async with started(node):
            await let_pass(clock, "1s")
            stopping = asyncio.create_task(node.stop())
            await let_pass(clock, "5s")
            await stopping
        assert [row.state for row in await store.list_workers("default")] == ["stopped"]

    async def test_it_no_longer_listens_to_the_store(self, store: Any, clock: JumpingClock) -> None:
        app = Mainspring()
        node = make_node(app, store, clock)
        async with started(node):
            await let_pass(clock, "1s")
            stopping = asyncio.create_task(node.stop())
            await let_pass(clock, "5s")
            await stopping
        assert store._db._listeners == []

    async def test_it_may_be_asked_twice(self, store: Any, clock: JumpingClock) -> None:
        """Chaos seed 200138: by an upgrade, and by the end of all while that was under way."""
        node = make_node(Mainspring(), store, clock)
        async with started(node):
            await let_pass(clock, "1s")
            both = [asyncio.create_task(node.stop()) for _ in range(2)]
            await let_pass(clock, f"{STEPS_S}s")
            assert [task.done() and task.exception() for task in both] == [None, None]

    async def test_a_node_that_only_works_stops_as_well(self, store: Any, clock: JumpingClock) -> None:
        app = Mainspring()
        node = Node(store, None, make_worker(app, store, clock, USUAL))
        async with started(node):
            await let_pass(clock, "1s")
            stopping = asyncio.create_task(node.stop())
            await let_pass(clock, "5s")
            await stopping
        assert all(task.done() for task in node.supervisor.tasks)
