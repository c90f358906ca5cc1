"""Unique keys: a submission joins the run that waits under its key."""

from __future__ import annotations

import asyncio

from mainspring.conformance.store.refusal import refused
from mainspring.conformance.store.samples import (
    a_run,
    another_try,
    finish,
    seen,
    states,
    submit,
    success,
    take,
    take_one,
    unfinished,
)
from mainspring.core.instants import DAY, SECOND
from mainspring.core.model import NewRun
from mainspring.errors import Conflict
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

SUBMITTERS, ROUNDS = 8, 15


def unique(clock: ManualClock, key: str = "k", **changes: object) -> NewRun:
    """A run that stands alone under its key while it waits."""
    return a_run(clock, idempotency_key=f"\x1fencode\x1f{key}", unique=True, **changes)


class UniqueSuite:
    """Under a unique key at most one run waits to start."""

    async def test_a_submission_joins_the_run_that_waits(self, store: Store, clock: ManualClock) -> None:
        first = unique(clock, due_at=clock.now() + SECOND, priority=3)
        await submit(store, first)
        assert await submit(store, unique(clock, priority=7)) == [first.id]
        assert [run.id for run in await unfinished(store)] == [first.id]
        assert (await seen(store, first)).priority == 3

    async def test_a_submission_joins_no_run_that_has_started(self, store: Store, clock: ManualClock) -> None:
        first, second, third = unique(clock), unique(clock, args='{"n":2}'), unique(clock)
        await submit(store, first)
        claim = await take_one(store)
        assert await submit(store, second) == [second.id]
        await store.report([success(claim)])
        assert await submit(store, unique(clock, args='{"n":2}')) == [second.id]
        await finish(store, second)
        assert await submit(store, third) == [third.id]
        assert await states(store, first, second, third) == ["succeeded", "succeeded", "pending"]

    async def test_a_run_that_waits_for_its_retry_or_for_another_is_joined(
        self, store: Store, clock: ManualClock
    ) -> None:
        retried = unique(clock)
        await submit(store, retried)
        await finish(store, retried, another_try)
        assert await submit(store, unique(clock)) == [retried.id]
        upstream = a_run(clock)
        blocked = unique(clock, "other", after=(upstream.id,))
        await submit(store, upstream, blocked)
        assert await submit(store, unique(clock, "other")) == [blocked.id]
        await store.request_cancel("default", blocked.id, "enough")
        again = unique(clock, "other")
        assert await submit(store, again) == [again.id]

    async def test_other_arguments_are_refused_while_a_run_waits(self, store: Store, clock: ManualClock) -> None:
        first = unique(clock, args='{"n":1}')
        await submit(store, first)
        with refused(Conflict) as refusal:
            await submit(store, a_run(clock), unique(clock, args='{"n":2}'))
        assert first.id in str(refusal.error)
        assert "with other arguments" in str(refusal.error)
        with refused(Conflict):
            await submit(store, unique(clock, "new", args='{"n":1}'), unique(clock, "new", args='{"n":2}'))
        assert [run.id for run in await unfinished(store)] == [first.id]

    async def test_a_unique_key_holds_within_one_batch_and_namespace(self, store: Store, clock: ManualClock) -> None:
        first, other = unique(clock), unique(clock, "other")
        foreign = unique(clock, namespace="tenant-a")
        assert await submit(store, first, unique(clock), other, foreign) == [first.id, first.id, other.id, foreign.id]

    async def test_a_repeated_submission_is_answered_with_its_own_run(self, store: Store, clock: ManualClock) -> None:
        run = unique(clock)
        await submit(store, run)
        await finish(store, run)
        assert await submit(store, run) == [run.id]
        assert await unfinished(store) == []

    async def test_a_unique_key_holds_as_long_as_its_run_waits(self, store: Store, clock: ManualClock) -> None:
        upstream = a_run(clock, due_at=clock.now() + 400 * DAY)
        first, ended = unique(clock, after=(upstream.id,)), unique(clock, "ended")
        await submit(store, upstream, first, ended)
        await finish(store, ended)
        clock.advance(30 * DAY)
        for _ in range(3):
            await store.clean(DAY, 3 * DAY, DAY, 100)
        assert await submit(store, unique(clock)) == [first.id]

    async def test_submitters_and_workers_race(self, store: Store, clock: ManualClock) -> None:
        """What is answered starts after it was asked for, and of one key no two runs wait at once."""
        moments = iter(range(1_000_000))
        started: dict[str, int] = {}
        asked: list[tuple[int, str]] = []
        running = True

        async def keep_submitting() -> None:
            for _ in range(ROUNDS):
                moment = next(moments)
                (run_id,) = await store.submit([unique(clock)])
                asked.append((moment, run_id))

        async def keep_working() -> None:
            while running or await unfinished(store):
                claims = await take(store)
                assert len(claims) <= 1
                for claim in claims:
                    assert claim.run_id not in started
                    started[claim.run_id] = next(moments)
                await store.report([success(claim) for claim in claims])
                await asyncio.sleep(0)

        worker = asyncio.create_task(keep_working())
        await asyncio.gather(*(keep_submitting() for _ in range(SUBMITTERS)))
        running = False
        await asyncio.wait_for(worker, 60)
        assert len(asked) == SUBMITTERS * ROUNDS
        assert all(started[run_id] > moment for moment, run_id in asked)
        assert len(started) < len(asked)
