"""Deadlines and service levels by priority."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from stage import STEADY, USUAL, JumpingClock, at_home, ended, working

from mainspring import Mainspring, Retry
from mainspring.clock import SystemClock
from mainspring.conformance.store.samples import TASK, a_run
from mainspring.core.instants import MINUTE, SECOND
from mainspring.core.model import RunOptions, Worker
from mainspring.process.metrics import Metrics
from mainspring.services.store_layers import MeasuredStore
from mainspring.services.worker.runner import with_deadline
from mainspring.stores.sqlite.store import SqliteStore

USING = msgspec.structs.replace(STEADY, deadlines=((1, SECOND // 10), (2, 30 * SECOND)))


@pytest.fixture
async def live() -> AsyncIterator[SqliteStore]:
    """A store in real time."""
    store = SqliteStore(":memory:", SystemClock(), inline=True)
    yield store
    await store.close()


@pytest.mark.parametrize(
    ("words", "state", "reason"),
    [
        ({"priority": 1}, "failed", "TimeoutError: not done within its timeout of 100ms"),
        ({"priority": 2}, "succeeded", ""),
        ({"priority": 5}, "succeeded", ""),
        ({"priority": 1, "timeout": "10m"}, "succeeded", ""),
        ({"priority": 2, "timeout": "50ms"}, "failed", "TimeoutError: not done within its timeout of 50ms"),
    ],
)
async def test_a_run_that_names_no_timeout_has_the_deadline_of_its_priority(
    live: SqliteStore, words: dict[str, Any], state: str, reason: str
) -> None:
    app = Mainspring()

    @app.task(retry=Retry(0))
    async def wait() -> None:
        await asyncio.sleep(60 if state == "failed" else 0.3)

    with at_home(app, live, SystemClock()):
        async with working(app, live, SystemClock(), USING):
            run = await ended(await wait.options(**words).submit())
    assert (run.state, run.reason.partition(";")[0]) == (state, reason)


def test_other_options_stay_as_they_are() -> None:
    options = RunOptions(max_losses=7)
    assert with_deadline(options, 1, {1: MINUTE}) == RunOptions(max_losses=7, timeout=MINUTE)
    assert with_deadline(options, 1, {2: MINUTE}) is options


async def test_what_starts_later_than_its_service_level_is_counted_by_priority(store: Any, clock: JumpingClock) -> None:
    counted = MeasuredStore(store, Metrics(dict(USUAL.service_levels)))
    await store.submit([a_run(clock, priority=priority) for priority in (1, 2, 2, 5)])
    clock.advance(MINUTE)
    await store.submit([a_run(clock, priority=1)])
    clock.advance(SECOND)
    worker = Worker(id="w", tasks=(TASK,))
    claims = await counted.claim(worker, 10, 10 * SECOND, "strict")
    assert len(claims) == 5
    counts = counted.metrics.counts
    assert (counts["starts", "1"], counts["starts_late", "1"]) == (2, 1)
    assert (counts["starts", "2"], counts["starts_late", "2"]) == (2, 0)
    assert ("starts", "5") not in counts, "it has no level"
