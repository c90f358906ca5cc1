"""A worker that cannot execute what it claims leaves it to others, and tries again after a while."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from stage import USUAL, JumpingClock, at_home, let_pass, make_worker, turning

from mainspring import Mainspring, Retry
from mainspring.core.instants import SECOND
from mainspring.executor import AttemptContext, Outcome
from mainspring.store import RunFilter

QUICK = msgspec.structs.replace(USUAL, breaker_least=4, breaker_pause=2 * SECOND, concurrency=10)


class Broken:
    """An executor that cannot start anything, until it is mended."""

    def __init__(self) -> None:
        self.mended = False
        self.tried = 0

    async def run(self, attempt: AttemptContext) -> Outcome:
        self.tried += 1
        if not self.mended:
            raise OSError("a planted fault: no more processes")
        return Outcome("succeeded", "null")


async def test_runs_are_held_for_retry_while_they_cannot_be_executed(
    store: Any, clock: JumpingClock, caplog: pytest.LogCaptureFixture
) -> None:
    app, executor = Mainspring(), Broken()

    @app.task(retry=Retry(0))
    async def work() -> None: ...

    with at_home(app, store, clock):
        worker = make_worker(app, store, clock, QUICK)
        worker.runner._executor_of = lambda _: executor
        await worker.register()
        await work.submit_many([{}] * 200)
        async with turning(*worker.loops):
            await let_pass(clock, "1s")
            tried = executor.tried
            assert tried <= 20, "it does not go through the whole queue"
            await let_pass(clock, "500ms")
            assert executor.tried == tried, "nothing is claimed while the breaker is open"
            assert "claims none" in caplog.text
            waiting = await store.list_runs(RunFilter("default", states=("pending",), limit=1_000))
            assert len(waiting) >= 190, "they wait, and have used up no attempt"
            assert {run.attempt for run in waiting} == {0}
            await let_pass(clock, "20s")
            assert executor.tried <= tried + 3 * 10, "probes only"
            executor.mended = True
            await let_pass(clock, "60s")
        failed = await store.list_runs(RunFilter("default", states=("failed",), limit=1_000))
        done = await store.list_runs(RunFilter("default", states=("succeeded",), limit=1_000))
    assert len(failed) <= 4, "those that failed before it was clear that it is the worker's fault"
    assert len(done) + len(failed) == 200


async def test_tasks_that_fail_by_themselves_do_not_open_it(store: Any, clock: JumpingClock) -> None:
    app = Mainspring()

    @app.task(retry=Retry(0))
    async def wrong() -> None:
        raise ValueError("no")

    with at_home(app, store, clock):
        worker = make_worker(app, store, clock, QUICK)
        await worker.register()
        await wrong.submit_many([{}] * 50)
        async with turning(*worker.loops):
            await let_pass(clock, "2s")
        assert len(await store.list_runs(RunFilter("default", states=("failed",), limit=100))) == 50
