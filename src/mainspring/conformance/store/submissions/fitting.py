"""What workers announce of their tasks, runs that are given back changed, and tasks that no worker knows."""

from __future__ import annotations

from typing import Any

from mainspring.conformance.store.samples import (
    a_job,
    a_run,
    a_worker,
    fire,
    gated,
    new_events,
    options,
    register,
    seen,
    submit,
    success,
    take,
    take_one,
)
from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.model import Amendment, Claim, Gate, JobPolicy, RunOptions, TaskNotice
from mainspring.core.planning.plans import NO_WORKER
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

EVERY_MINUTE = EveryTrigger(MINUTE)


def notice(name: str = "encode", **changes: Any) -> TaskNotice:
    """What a worker knows of a task."""
    return TaskNotice(name=name, **changes)


def amended(claim: Claim, **changes: Any) -> Amendment:
    """A claim that is given back."""
    given: dict[str, Any] = {"reason": "for a reason", "options": claim.options, **changes}
    return Amendment(claim.run_id, claim.token, **given)


class FittingSuite:
    """What a worker's code knows decides what it is given, and how it is executed."""

    async def test_what_workers_announce_of_a_task_is_returned_most_recent_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        old = notice(names=("film",), required=("film",), signature="encode(film)", module="films")
        new = notice(names=("film", "é"), rest=True, limit=2, priority=1, queue="q", options=RunOptions(retry=Retry(7)))
        await register(store, clock, "worker-1", notices=(old, notice("decode")), app="films")
        clock.advance(SECOND)
        await register(store, clock, "worker-2", notices=(new,))
        await register(store, clock, "worker-3", notices=(notice("decode"),))
        await register(store, clock, "worker-4", notices=(new,), namespace="tenant-a")
        found = await store.announced("default", "encode")
        assert [(worker.id, worker.app, worker.notices) for worker in found] == [
            ("worker-2", "default", (new,)),
            ("worker-1", "films", (old,)),
        ]
        assert await store.announced("default", "nothing") == []
        await register(store, clock, "worker-2", notices=(old,), state="draining")
        assert [worker.state for worker in await store.announced("default", "encode")] == ["draining", "active"]

    async def test_an_amended_run_waits_again_with_what_was_changed(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock)
        await submit(store, run)
        claim = await take_one(store)
        changed = options(timeout=HOUR)
        amendment = amended(claim, options=changed, delay=MINUTE, priority=2, reason="too old")
        assert await store.amend([amendment]) == 1
        stored = await seen(store, run)
        assert (stored.state, stored.reason, stored.attempt, stored.worker) == ("pending", "too old", 0, None)
        assert (stored.options, stored.priority, stored.due_at) == (changed, 2, clock.now() + MINUTE)
        assert await take(store) == []
        clock.advance(MINUTE)
        again = await take_one(store)
        assert (again.options, again.attempt, again.token) == (changed, 0, claim.token + 1)
        assert "run.handed_back" in [event.kind for event in await new_events(store)]

    async def test_an_amended_run_obeys_its_new_limit(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(3)]
        await submit(store, *runs)
        claims = await take(store)
        gate = Gate("task:encode", 1)
        assert await store.amend([amended(claim, gate=gate) for claim in claims]) == 3
        first = await take_one(store)
        assert await take(store) == []
        await store.report([success(first)])
        assert (await take_one(store)).run_id != first.run_id
        assert await store.gate_holders("default", "task:encode") == (1, 1)

    async def test_a_run_that_has_a_gate_leaves_it_when_it_is_amended(self, store: Store, clock: ManualClock) -> None:
        first, second = gated(clock, "g"), gated(clock, "g")
        await submit(store, first, second)
        claim = await take_one(store)
        await store.amend([amended(claim, delay=HOUR, gate=Gate("task:encode", 5))])
        assert (await take_one(store)).run_id == second.id
        clock.advance(HOUR)
        assert await take(store) == []

    async def test_only_the_holder_of_a_claim_amends_it_and_a_wish_to_cancel_goes_first(
        self, store: Store, clock: ManualClock
    ) -> None:
        run, gone = a_run(clock), a_run(clock)
        await submit(store, run, gone)
        claims = {claim.run_id: claim for claim in await take(store)}
        await store.request_cancel("default", gone.id, "enough")
        late = Amendment(run.id, claims[run.id].token - 1, "late", "{}")
        assert await store.amend([late, amended(claims[gone.id])]) == 1
        assert (await seen(store, run)).state == "running"
        assert (await seen(store, gone)).state == "cancelled"
        assert await store.amend([amended(claims[run.id]), amended(claims[run.id])]) == 1

    async def test_where_no_worker_knows_a_task_one_run_waits_and_further_firings_are_skipped(
        self, store: Store, clock: ManualClock
    ) -> None:
        await register(store, clock, "worker-1", tasks=("decode",))
        job = await store.create_job(a_job(clock, "orphan", EVERY_MINUTE, task="gone"))
        for _ in range(3):
            clock.advance(MINUTE)
            await store.renew(a_worker("worker-1"), [], MINUTE)
            await fire(store, clock, "orphan")
        rows = await store.list_firings(job.id)
        assert [(row.outcome, row.reason) for row in rows] == [
            ("skipped", NO_WORKER),
            ("skipped", NO_WORKER),
            ("fired", ""),
        ]
        assert await store.count_runs("default") == {"pending": 1}
        moved = await store.get_job("default", "orphan")
        assert moved.next_fire_at == clock.now() + MINUTE

    async def test_a_task_is_known_while_its_workers_may_be_being_replaced_or_are_all_down(
        self, store: Store, clock: ManualClock
    ) -> None:
        await register(store, clock, "worker-1", tasks=("encode",))
        await register(store, clock, "worker-1", tasks=("encode",), state="stopped")
        await register(store, clock, "worker-2", tasks=("decode",))
        job = await store.create_job(a_job(clock, "minutely", EVERY_MINUTE, policy=JobPolicy(misfire="all")))
        for _ in range(3):
            clock.advance(MINUTE)
            await store.renew(a_worker("worker-2"), [], MINUTE)
            await fire(store, clock, "minutely")
        assert {row.outcome for row in await store.list_firings(job.id)} == {"fired"}
        clock.advance(2 * HOUR)
        before = await store.count_runs("default")
        await fire(store, clock, "minutely")
        assert (await store.count_runs("default"))["pending"] > before["pending"], "no worker at all was heard of"
        await store.renew(a_worker("worker-2"), [], MINUTE)
        clock.advance(MINUTE)
        await store.renew(a_worker("worker-2"), [], MINUTE)
        clock.advance(20 * SECOND)
        await fire(store, clock, "minutely")
        newest = (await store.list_firings(job.id))[0]
        assert (newest.outcome, newest.reason) == ("skipped", NO_WORKER)
