"""Layers around a store pass every method of the port on, count the errors of each, and keep to the port's types."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
from stage import FaultyStore, JumpingClock

from mainspring.api.load.guard import Guard
from mainspring.api.load.guarded_store import GuardedStore
from mainspring.conformance.store.samples import a_run, a_worker, another_try, options, submit
from mainspring.core.instants import MINUTE, SECOND
from mainspring.errors import StoreUnavailable
from mainspring.services.store_layers import MeasuredStore, StoreLayer
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.stores.sqlite.store import SqliteStore

PORT = sorted(
    name
    for part in Store.__mro__
    if part.__module__ in ("mainspring.store", "mainspring.insight")
    for name, member in vars(part).items()
    if not name.startswith("_") and (inspect.isfunction(member) or isinstance(member, property))
)
ASYNC = [name for name in PORT if any(inspect.iscoroutinefunction(vars(part).get(name)) for part in Store.__mro__)]


async def test_a_layer_binds_every_member_of_the_port_and_nothing_else(store: SqliteStore) -> None:
    assert len(PORT) > 70
    bound = {name for name in vars(StoreLayer(store)) if not name.startswith("_")}
    assert bound == set(PORT)
    assert all(getattr(StoreLayer(store), name) is not None for name in ASYNC)


async def test_a_layer_that_does_something_with_each_call_sees_every_call(store: SqliteStore) -> None:
    class Seen(StoreLayer):
        def _pass(self, call: Any) -> Any:
            return call.__name__

    assert {name for name, bound in vars(Seen(store)).items() if isinstance(bound, str)} == set(ASYNC)


@pytest.mark.parametrize("name", [name for name in ASYNC if name not in ("submit", "claim_these")])
async def test_the_errors_of_every_method_are_counted_and_reach_the_guard(
    name: str, store: SqliteStore, clock: JumpingClock
) -> None:
    class Gone(SqliteStore):
        pass

    async def fail(*args: object, **words: object) -> None:
        raise StoreUnavailable("gone")

    fail.__name__ = name
    setattr(Gone, name, staticmethod(fail))
    gone, guard = Gone(":memory:", clock, inline=True), Guard(Settings(), clock)
    measured = MeasuredStore(gone)
    guarded = GuardedStore(measured, guard)
    parameters = inspect.signature(getattr(SqliteStore, name)).parameters.values()
    needed = [None for each in parameters if each.default is each.empty and each.name != "self"]
    for _ in range(20):
        with pytest.raises(StoreUnavailable):
            await getattr(guarded, name)(*needed)
    assert guard.breaker.state == "open"
    assert 0 < measured.metrics.counts["store_errors", name] < 20
    await SqliteStore.close(gone)


async def test_what_a_measured_store_counts_is_counted_once_however_it_is_layered(
    store: SqliteStore, clock: JumpingClock
) -> None:
    counted = MeasuredStore(store)
    guarded = GuardedStore(counted, Guard(Settings(), clock))
    await submit(guarded, a_run(clock), a_run(clock))
    assert guarded.metrics is counted.metrics is store.metrics
    assert counted.metrics.counts["submissions", ""] == 2


async def test_runs_that_fail_with_their_workers_and_retries_are_counted(
    store: SqliteStore, clock: JumpingClock
) -> None:
    counted = MeasuredStore(store)
    await submit(counted, a_run(clock, options=options(max_losses=0)), a_run(clock))
    _, failing = await counted.claim(a_worker(), 2, SECOND, "strict")
    assert await counted.report([another_try(failing)]) == ["accepted"]
    clock.advance(2 * SECOND)
    await counted.recover(MINUTE, 10)
    counts = counted.metrics.counts
    assert (counts["runs_lost", ""], counts["runs_finished", "failed"], counts["retries", ""]) == (1, 1, 1)


async def test_a_layer_passes_on_what_a_store_loses(store: SqliteStore, clock: JumpingClock) -> None:
    faulty: Any = FaultyStore(store)
    counted = MeasuredStore(faulty)
    faulty.lose_reply("submit")
    run = a_run(clock)
    with pytest.raises(StoreUnavailable):
        await counted.submit([run])
    assert counted.metrics.counts["store_errors", "submit"] == 1
    assert await counted.submit([run]) == [run.id]


async def test_submissions_under_a_key_seen_before_are_counted_as_duplicates(
    store: SqliteStore, clock: JumpingClock
) -> None:
    measured = MeasuredStore(store)
    for _ in range(3):
        await measured.submit([a_run(clock, idempotency_key="once"), a_run(clock)])
    assert measured.metrics.counts["duplicates", "submission"] == 2
