"""What a firing does while runs of earlier ones have not ended."""

from __future__ import annotations

import msgspec

from mainspring.conformance.store.samples import (
    TTL,
    a_job,
    a_worker,
    failure,
    finish_all,
    fire,
    seen,
    success,
    take,
    take_one,
    trigger,
)
from mainspring.core.instants import HOUR, MINUTE
from mainspring.core.model import Claim, Firing, Job, JobPolicy, Overlap
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

WORKER = a_worker(regions=("default", "eu", "us"))


async def hourly(store: Store, clock: ManualClock, overlap: Overlap, **changes: object) -> Job:
    """A job that fires every hour under this policy."""
    policy = msgspec.structs.replace(JobPolicy(overlap=overlap), **changes)
    return await store.create_job(a_job(clock, "hourly", EveryTrigger(HOUR), policy=policy))


async def next_hour(store: Store, clock: ManualClock, job: Job) -> list[Firing]:
    """An hour passes and the job fires: the records of that instant."""
    instant = (await store.get_job("default", job.name)).next_fire_at
    assert instant is not None
    clock.set(instant)
    assert (await fire(store, clock, job.name)).applied
    return [row for row in await store.list_firings(job.id) if row.fire_at == instant]


async def keep(store: Store, claim: Claim) -> None:
    """Hold a claim for days."""
    await store.renew(WORKER, [(claim.run_id, claim.token)], 100 * HOUR)


class OverlapSuite:
    """Allow, forbid, queue, replace: counted over every unfinished run of the job and region."""

    async def test_allow_lets_runs_of_several_instants_run_together(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock, "allow")
        await next_hour(store, clock, job)
        await next_hour(store, clock, job)
        assert len(await take(store)) == 2

    async def test_forbid_skips_an_instant_while_an_earlier_run_has_not_ended(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await hourly(store, clock, "forbid")
        (first,) = await next_hour(store, clock, job)
        (second,) = await next_hour(store, clock, job)
        assert (second.outcome, second.run_id, second.finished_at) == ("skipped", None, clock.now())
        assert (first.run_id or "") in second.reason
        claim = await take_one(store)
        await keep(store, claim)
        assert [row.outcome for row in await next_hour(store, clock, job)] == ["skipped"]
        await store.report([success(claim)])
        assert [row.outcome for row in await next_hour(store, clock, job)] == ["fired"]

    async def test_forbid_counts_each_region_by_itself(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock, "forbid", regions=("eu", "us"))
        await next_hour(store, clock, job)
        await store.report([success(await take_one(store, a_worker(regions=("eu",))))])
        rows = await next_hour(store, clock, job)
        assert {row.region: row.outcome for row in rows} == {"eu": "fired", "us": "skipped"}

    async def test_forbid_lets_all_indices_of_one_instant_run_together(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock, "forbid", completions=3)
        assert [row.outcome for row in await next_hour(store, clock, job)] == ["fired"] * 3
        assert [row.outcome for row in await next_hour(store, clock, job)] == ["skipped"] * 3

    async def test_forbid_holds_among_instants_that_are_caught_up_at_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await hourly(store, clock, "forbid", misfire="all")
        clock.advance(3 * HOUR)
        await fire(store, clock, "hourly")
        rows = await store.list_firings(job.id)
        assert [row.outcome for row in rows] == ["skipped", "skipped", "fired"]
        assert len(await take(store)) == 1

    async def test_forbid_counts_a_run_that_was_fired_by_hand(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock, "forbid")
        await trigger(store, clock, "hourly", "by hand")
        assert [row.outcome for row in await next_hour(store, clock, job)] == ["skipped"]

    async def test_forbid_counts_a_run_that_waits_to_be_retried_after_a_loss(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await hourly(store, clock, "forbid")
        await next_hour(store, clock, job)
        await take_one(store)
        clock.advance(TTL + 1)
        await store.recover(HOUR, 100)
        assert [row.outcome for row in await next_hour(store, clock, job)] == ["skipped"]

    async def test_queue_runs_every_instant_one_after_the_other(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock, "queue")
        fired = [row.run_id or "" for _ in range(3) for row in await next_hour(store, clock, job)]
        assert [(await seen(store, run_id)).state for run_id in fired] == ["pending", "blocked", "blocked"]
        served = []
        for _ in fired:
            claims = await take(store)
            served += [claim.run_id for claim in claims]
            await store.report([failure(claim) for claim in claims])
        assert served == fired

    async def test_replace_cancels_what_has_not_started(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock, "replace")
        (first,) = await next_hour(store, clock, job)
        (second,) = await next_hour(store, clock, job)
        old = await seen(store, first.run_id or "")
        assert (old.state, bool(old.reason)) == ("cancelled", True)
        assert [claim.run_id for claim in await take(store)] == [second.run_id]

    async def test_replace_asks_what_runs_to_stop_and_waits_until_it_has(
        self, store: Store, clock: ManualClock
    ) -> None:
        for report in (failure, success):
            job = await store.create_job(
                a_job(clock, report.__name__, EveryTrigger(HOUR), policy=JobPolicy(overlap="replace"))
            )
            (first,) = await next_hour(store, clock, job)
            claim = await take_one(store)
            await keep(store, claim)
            (second,) = await next_hour(store, clock, job)
            assert claim.run_id == first.run_id
            assert list(await store.cancels([claim.run_id])) == [claim.run_id]
            assert (await seen(store, second.run_id or "")).state == "blocked"
            await store.report([report(claim)])
            assert [claim.run_id for claim in await take(store)] == [second.run_id]
            await store.pause_jobs("default", [job.name], paused=True, reason="done")

    async def test_of_several_replacements_only_the_newest_runs(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock, "replace")
        await next_hour(store, clock, job)
        claim = await take_one(store)
        await keep(store, claim)
        (second,) = await next_hour(store, clock, job)
        (third,) = await next_hour(store, clock, job)
        assert (await seen(store, second.run_id or "")).state == "cancelled"
        assert (await seen(store, third.run_id or "")).state == "blocked"
        await store.report([failure(claim)])
        assert [claim.run_id for claim in await take(store)] == [third.run_id]

    async def test_replace_among_instants_that_are_caught_up_at_once_leaves_the_newest(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await hourly(store, clock, "replace", misfire="all")
        clock.advance(3 * HOUR + MINUTE)
        await fire(store, clock, "hourly")
        rows = await store.list_firings(job.id)
        assert [row.outcome for row in rows] == ["fired", "cancelled", "cancelled"]
        assert [claim.run_id for claim in await take(store)] == [rows[0].run_id]

    async def test_a_limit_holds_for_the_runs_of_a_job(self, store: Store, clock: ManualClock) -> None:
        job = await store.create_job(a_job(clock, "hourly", EveryTrigger(HOUR), limit=2))
        for _ in range(4):
            await next_hour(store, clock, job)
        assert len(await take(store)) == 2

    async def test_parallelism_holds_for_the_indices_of_one_instant(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock, "allow", completions=5, parallelism=2)
        await next_hour(store, clock, job)
        assert len(await take(store)) == 2
        await next_hour(store, clock, job)
        assert len(await take(store)) == 2
        clock.advance(TTL + 1)
        await store.recover(1_000 * HOUR, 100)
        await finish_all(store, clock)
        assert {row.outcome for row in await store.list_firings(job.id)} == {"succeeded"}
