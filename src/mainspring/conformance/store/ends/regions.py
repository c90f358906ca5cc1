"""Runs that leave a region that does not take them."""

from __future__ import annotations

from mainspring.conformance.store.samples import (
    a_job,
    a_run,
    a_worker,
    failure,
    fire,
    fire_due,
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
from mainspring.core.model import JobPolicy, RunOptions, Worker
from mainspring.core.schedules.triggers import AfterTrigger, EveryTrigger
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

EU, US = a_worker("eu-1", regions=("eu",)), a_worker("us-1", regions=("us",))


async def live(store: Store, clock: ManualClock, *workers: Worker) -> None:
    """These workers are heard of now."""
    for each in workers:
        await register(store, clock, each.id, regions=each.regions, concurrency=each.concurrency)


class RegionSuite:
    """`region_failover`: a due run that its region does not take in time goes to another; the ledger keeps its own."""

    async def test_a_run_leaves_its_region_once_it_has_waited(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock, region="asia", options=options(region_failover=5 * SECOND))
        await submit(store, run, a_run(clock, region="asia"))
        await live(store, clock, EU)
        clock.advance(5 * SECOND - 1)
        assert (await store.recover(HOUR, 100)).moved == 0
        clock.advance(1)
        assert (await store.recover(HOUR, 100)).moved == 1
        moved = await seen(store, run)
        assert (moved.region, moved.reason) == (
            "eu", "moved from region asia, which has no live worker for it within 5s, to eu",
        )  # fmt: skip
        assert [event.reason for event in await new_events(store) if event.kind == "run.moved"] == [moved.reason]
        claim = await take_one(store, EU)
        assert claim.run_id == run.id
        await store.report([success(claim)])
        assert '"home_region":"asia"' in (await seen(store, run)).options
        assert await take(store, EU) == []  # The other run waits for its region.

    async def test_it_goes_where_it_may_and_where_a_live_worker_is(self, store: Store, clock: ManualClock) -> None:
        words = {"region_failover": 5 * SECOND}
        named = a_run(clock, region="asia", options=options(**words, failover_regions=("mars", "us", "eu")))
        anywhere = a_run(clock, region="asia", options=options(**words))
        nowhere = a_run(clock, region="asia", options=options(**words, failover_regions=("mars",)))
        await submit(store, nowhere, named, anywhere)
        await live(store, clock, a_worker("mars-1", regions=("mars",)))
        clock.advance(MINUTE)  # The worker on Mars was not heard of since.
        await live(store, clock, US, a_worker("eu-1", regions=("eu",), concurrency=500))
        assert (await store.recover(10 * SECOND, 2)).moved == 2
        assert [(await seen(store, run)).region for run in (named, anywhere, nowhere)] == ["us", "eu", "asia"]
        # It does not go on at once: the new region has as long as the old one had.
        await live(store, clock, a_worker("mars-2", regions=("mars",), concurrency=900))
        assert (await store.recover(HOUR, 100)).moved == 1
        assert [(await seen(store, run)).region for run in (named, anywhere, nowhere)] == ["us", "eu", "mars"]

    async def test_the_ledger_and_overlap_know_it_by_its_own_region(self, store: Store, clock: ManualClock) -> None:
        policy = JobPolicy(regions=("asia", "eu"), overlap="forbid")
        job = a_job(clock, "fan", EveryTrigger(HOUR), policy=policy, options=RunOptions(region_failover=SECOND))
        job = await store.create_job(job)
        clock.advance(HOUR)
        await fire(store, clock, "fan")
        await store.report([success(await take_one(store, EU))])
        clock.advance(SECOND)
        await live(store, clock, EU)
        assert (await store.recover(HOUR, 100)).moved == 1
        clock.advance(HOUR)
        await fire(store, clock, "fan")
        rows = {(row.fire_at, row.region): row.outcome for row in await store.list_firings(job.id, limit=10)}
        first, second = sorted({fire_at for fire_at, _ in rows})
        assert rows[second, "asia"] == "skipped"  # Its last run has not ended, wherever it is.
        assert rows[second, "eu"] == "fired"
        await store.report([success(claim) for claim in await take(store, EU)])
        rows = {(row.fire_at, row.region): row.outcome for row in await store.list_firings(job.id, limit=10)}
        assert (rows[first, "asia"], rows[first, "eu"], rows[second, "eu"]) == ("succeeded",) * 3

    async def test_a_firing_has_the_outcome_of_all_its_regions(self, store: Store, clock: ManualClock) -> None:
        policy = JobPolicy(regions=("asia", "eu"))
        words = RunOptions(region_failover=SECOND)
        await store.create_job(a_job(clock, "fan", EveryTrigger(HOUR), policy=policy, options=words))
        then = await store.create_job(a_job(clock, "then", AfterTrigger(("fan",))))
        for end, outcome in ((success, "fired"), (failure, "skipped")):
            clock.advance(HOUR)
            await fire(store, clock, "fan")
            await store.report([success(await take_one(store, EU))])
            await fire_due(store, clock)
            known = len(await store.list_firings(then.id))
            clock.advance(SECOND)
            await live(store, clock, EU)
            assert (await store.recover(HOUR, 100)).moved == 1
            await store.report([end(claim) for claim in await take(store, EU)])
            await fire_due(store, clock)
            rows = await store.list_firings(then.id)
            assert (len(rows) - known, rows[0].outcome) == (1, outcome)
            await store.report([success(claim) for claim in await take(store)])
