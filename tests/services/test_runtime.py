"""A node on a thread of its own, in real time: the whole engine from a submission to its result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from stage import FAST, STEADY, FaultyStore, ended, until

from mainspring import Mainspring, current_run, every
from mainspring.clock import SystemClock
from mainspring.core.instants import SECOND
from mainspring.errors import InvalidInput, StoreUnavailable
from mainspring.services.metric_families import process_families
from mainspring.services.node import Node
from mainspring.services.runtime import Runtime
from mainspring.services.scheduler.scheduler import SchedulerService
from mainspring.services.worker.worker import WorkerService
from mainspring.wiring import build_runtime, describe_worker, find_executors
from sdk_work import row_of, stored_run


def scheduler_of(node: Node) -> SchedulerService:
    assert node.scheduler is not None
    return node.scheduler


def worker_of(node: Node) -> WorkerService:
    assert node.worker is not None
    return node.worker


def make_app(tmp_path: Path) -> Mainspring:
    return Mainspring(f"sqlite:///{tmp_path / 'live.db'}", durable=False)


@asynccontextmanager
async def running(app: Mainspring, *, schedule: bool = True, work: bool = True, **changes: Any) -> AsyncIterator[Node]:
    """With claims that do not run out: where work does not stop in time, the process ends, and that is pytest."""
    using = msgspec.structs.replace(STEADY, store=app.settings.store, **changes)
    runtime = build_runtime(app, using, schedule=schedule, work=work)
    try:
        yield await runtime.start()
    finally:
        await runtime.stop(1.0)


def block(seconds: float) -> None:
    """What no async function should do."""
    threading.Event().wait(seconds)


def node_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "mainspring-node"]


async def test_jobs_and_submissions_run_to_their_end(tmp_path: Path) -> None:
    app, fired = make_app(tmp_path), []

    @app.job(every("100ms"))
    async def tick() -> None:
        fired.append(current_run().fire_at)

    @app.task
    def double(number: int) -> int:
        return 2 * number

    async with app:
        await app.sync_jobs()
        async with running(app):
            handles = await double.submit_many([{"number": number} for number in range(100)])
            assert [await handle.result(30) for handle in handles] == [2 * number for number in range(100)]
            await until(lambda: len(fired) >= 3)
        assert len(set(fired)) == len(fired)
        store = await app.open()
        assert [worker.state for worker in await store.list_workers("default")] == ["stopped"]


async def test_ends_are_counted_by_the_region_of_the_worker(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    @app.task
    async def nothing() -> None: ...

    async with app:
        store = await app.open()

        def labels() -> list[dict[str, str]]:
            families = process_families(store.metrics, store.strain())
            return [
                each.labels
                for family in families
                if family.name == "mainspring_runs_finished"
                for each in family.samples
            ]

        async with running(app, schedule=False, regions=("eu",)):
            await (await nothing.options(region="eu").submit()).result(30)
            await until(lambda: labels() == [{"state": "succeeded", "region": "eu"}])
        async with running(app, schedule=False, regions=("eu", "us")):
            await until(lambda: labels() == [{"state": "succeeded", "region": "several"}])


async def test_a_function_that_blocks_the_users_loop_does_not_cost_its_claim(tmp_path: Path) -> None:
    app, claim_ttl = make_app(tmp_path), 2 * SECOND

    @app.task
    async def rude() -> None:
        block(1.5 * claim_ttl / SECOND)

    async with app, running(app, claim_ttl=claim_ttl):
        run = await ended(await rude.submit())
    assert (run.state, run.attempt, run.losses) == ("succeeded", 1, 0)


async def test_a_function_that_blocks_the_users_loop_beyond_its_claim_ends_the_process(tmp_path: Path) -> None:
    app, ended_by = make_app(tmp_path), threading.Event()
    lines: list[Any] = []

    @app.task
    async def rude() -> None:
        lines[0].is_cut = True
        ended_by.wait(60)
        lines[0].is_cut = False

    async def build(task_loop: asyncio.AbstractEventLoop) -> Node:
        lines.append(FaultyStore(await app.open()))
        row, executors = describe_worker(app, FAST, "rude"), find_executors(app, 1)
        worker = WorkerService(lines[0], row, executors, task_loop, FAST, SystemClock(), Random(0), ended_by.set)
        return Node(lines[0], None, worker)

    async with app:
        runtime = Runtime(build)
        await runtime.start()
        await rude.submit()
        await until(ended_by.is_set)
        await runtime.stop(0.0)


async def test_the_loops_turn_while_the_users_loop_is_blocked(tmp_path: Path) -> None:
    app, lease_ttl = make_app(tmp_path), 2 * SECOND
    async with app, running(app, lease_ttl=lease_ttl) as node:
        await until(scheduler_of(node).leads)
        block(1.5 * lease_ttl / SECOND)
        assert scheduler_of(node).leads()


async def test_of_two_on_one_file_the_other_leads_soon_after_one_stopped(tmp_path: Path) -> None:
    one, other, fired = make_app(tmp_path), make_app(tmp_path), []
    for app in (one, other):

        @app.job(every("50ms"))
        async def tick() -> None:
            fired.append(current_run().fire_at)

    async with one, other:
        await one.sync_jobs()
        async with AsyncExitStack() as stack:
            # What one does not give up, the other would take only after a minute.
            async with running(one, lease_ttl=60 * SECOND) as first:
                await until(scheduler_of(first).leads)
                second = await stack.enter_async_context(running(other, lease_ttl=60 * SECOND))
                await until(lambda: len(fired) > 3)
                assert not scheduler_of(second).leads()
            await until(scheduler_of(second).leads)
            count = len(fired)
            await until(lambda: len(fired) > count + 3)
        store = await one.open()
        job = await store.get_job("default", "tick")
        rows = [row.fire_at for row in (await store.list_firings(job.id, limit=1_000))[::-1]]
    assert {later - earlier for earlier, later in pairwise(rows)} == {50_000}, "none lost, none doubled"
    assert len(set(fired)) == len(fired)


async def test_what_keeps_it_from_starting_is_raised_and_leaves_no_thread(tmp_path: Path) -> None:
    async def build(_: asyncio.AbstractEventLoop) -> Node:
        raise StoreUnavailable("not today")

    before = node_threads()
    with pytest.raises(StoreUnavailable):
        await Runtime(build).start()
    assert node_threads() == before


@pytest.mark.parametrize("fault", ["hold_request", "hold_reply"])
async def test_a_start_that_is_cancelled_while_its_worker_registers_leaves_no_living_worker(
    tmp_path: Path, fault: str
) -> None:
    app, lines, before = make_app(tmp_path), [], node_threads()

    async def build(task_loop: asyncio.AbstractEventLoop) -> Node:
        lines.append(line := FaultyStore(store))
        getattr(line, fault)("register")
        row, executors = describe_worker(app, STEADY, "early"), find_executors(app, 1)
        return Node(line, None, WorkerService(line, row, executors, task_loop, STEADY, SystemClock(), Random(0)))

    async def workers() -> list[str]:
        return [worker.state for worker in await store.list_workers("default")]

    async def has_asked() -> bool:
        asked = bool(lines) and lines[0].calls["register"] == 1
        return asked and (fault == "hold_request" or await workers() == ["active"])

    async with app:
        store = await app.open()
        starting = asyncio.create_task(Runtime(build).start())
        await until(has_asked)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert "active" not in await workers()
    assert node_threads() == before


async def test_a_broker_that_there_is_not_is_refused(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    runtime = build_runtime(app, msgspec.structs.replace(FAST, broker="pigeon://roost"), schedule=True, work=True)
    with pytest.raises(InvalidInput, match="names no kind of broker"):
        await runtime.start()


async def test_a_stop_that_was_interrupted_can_be_hurried(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    @app.task
    async def work() -> None:
        await asyncio.sleep(60)

    async with app:
        runtime = build_runtime(app, STEADY, schedule=True, work=True)
        node = await runtime.start()
        handle = await work.submit()
        await until(lambda: worker_of(node).runner.busy)
        stopping = asyncio.create_task(runtime.stop(30.0))
        await until(lambda: worker_of(node).claimer.stopping)
        stopping.cancel()
        with pytest.raises(asyncio.CancelledError):
            await stopping
        async with asyncio.timeout(20):
            await runtime.stop(0.0)
        assert (await row_of(handle)).state == "pending"


async def test_a_run_that_ends_while_the_node_stops_is_reported_with_all_that_it_wrote(tmp_path: Path) -> None:
    app, stopping = make_app(tmp_path), asyncio.Event()

    @app.task
    async def work() -> str:
        await stopping.wait()
        for number in range(1_000):
            current_run().log(str(number))
        return "done"

    async with app:
        runtime = build_runtime(app, STEADY, schedule=True, work=True)
        node = await runtime.start()
        handle = await work.submit()
        await until(lambda: worker_of(node).runner.busy)
        stop = asyncio.create_task(runtime.stop())
        await until(lambda: worker_of(node).claimer.stopping)
        stopping.set()
        await stop
        run = await stored_run(app, handle.id)
        logged = await (await app.open()).list_logs(run.id, limit=2_000)
    assert (run.state, run.result, len(logged)) == ("succeeded", '"done"', 1_000)
