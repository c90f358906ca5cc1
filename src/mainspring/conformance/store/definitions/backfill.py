"""Backfill: past instants that came to nothing are made up for, and what has run is not run again."""

from __future__ import annotations

import asyncio

import msgspec

from mainspring.conformance.store.refusal import refused
from mainspring.conformance.store.samples import a_job, finish_all, fire, take
from mainspring.core.instants import DAY, HOUR, MINUTE, Instant
from mainspring.core.model import Job, JobPolicy
from mainspring.core.planning import plans as planning
from mainspring.core.planning.backfill import Backfill, plan_backfill
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.errors import Conflict
from mainspring.store import RunFilter, Store
from mainspring.testing.clock import ManualClock


def hours_before(clock: ManualClock, job: Job, hours: int) -> Backfill:
    """Those of the last hours."""
    now = clock.now()
    return plan_backfill(job, now - hours * HOUR + 1, now, 1_000, now, {})


async def hourly(store: Store, clock: ManualClock, **changes: object) -> Job:
    """A job that is due each hour, since long before it was made."""
    trigger = EveryTrigger(HOUR, clock.now() - 100 * HOUR)
    return await store.create_job(a_job(clock, "hourly", trigger, **changes))


async def ledger(store: Store, job: Job) -> dict[Instant, tuple[str, str]]:
    """Kind and outcome of each row, by instant."""
    return {row.fire_at: (row.kind, row.outcome) for row in await store.list_firings(job.id, limit=1_000)}


class BackfillSuite:
    """What an instant came to is decided once: by itself, or later by hand."""

    async def test_past_instants_are_fired_and_due_now(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock, policy=JobPolicy(start_deadline=MINUTE))
        planned = hours_before(clock, job, 3)
        made = await store.backfill(job, planned.firings)
        assert made == [run.id for firing in planned.firings for run in firing.runs]
        assert await ledger(store, job) == {firing.fire_at: ("backfill", "fired") for firing in planned.firings}
        runs = [await store.get_run("default", run_id) for run_id in made]
        assert {(run.state, run.due_at, run.expires_at) for run in runs} == {("pending", clock.now(), None)}
        assert [run.fire_at for run in runs] == [firing.fire_at for firing in planned.firings]
        await finish_all(store, clock)
        assert {outcome for _, outcome in (await ledger(store, job)).values()} == {"succeeded"}
        after = await store.get_job("default", "hourly")
        assert (after.fired, after.next_fire_at) == (job.fired, job.next_fire_at)

    async def test_the_same_backfill_again_makes_nothing(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock)
        planned = hours_before(clock, job, 3)
        made = await asyncio.gather(*(store.backfill(job, planned.firings) for _ in range(5)))
        assert sorted(map(len, made)) == [0, 0, 0, 0, 3]
        await finish_all(store, clock)
        assert await store.backfill(job, planned.firings) == []
        assert len(await store.list_runs(RunFilter("default"))) == 3

    async def test_an_instant_that_fired_by_itself_is_not_fired_again(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock)
        clock.set((job.next_fire_at or 0) + 1)
        await fire(store, clock, "hourly")
        job = await store.get_job("default", "hourly")
        planned = hours_before(clock, job, 2)
        assert len(planned.firings) == 2
        (made,) = await store.backfill(job, planned.firings)
        assert made == planned.firings[0].runs[0].id
        kinds = await ledger(store, job)
        assert kinds[planned.firings[1].fire_at] == ("scheduled", "fired")

    async def test_a_backfilled_instant_is_not_fired_by_itself_afterwards(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await hourly(store, clock)
        clock.set((job.next_fire_at or 0) + 1)
        (made,) = await store.backfill(job, hours_before(clock, job, 1).firings)
        (fired,) = await store.fire([planning.plan(job, clock.now(), {})], None)
        assert (fired.applied, fired.runs) == (True, 0)
        assert [run.id for run in await store.list_runs(RunFilter("default"))] == [made]

    async def test_missed_instants_are_made_up_for(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock, policy=JobPolicy(misfire="skip"))
        clock.advance(5 * HOUR + MINUTE)
        await fire(store, clock, "hourly")
        missed = [instant for instant, row in (await ledger(store, job)).items() if row == ("scheduled", "missed")]
        assert missed
        job = await store.get_job("default", "hourly")
        await store.backfill(job, hours_before(clock, job, 5).firings)
        rows = await ledger(store, job)
        assert {rows[instant] for instant in missed} == {("backfill", "fired")}

    async def test_of_a_stretch_of_missed_instants_only_those_asked_for_are_taken_out(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await hourly(store, clock, policy=JobPolicy(misfire="skip"))
        first = job.next_fire_at or 0
        clock.advance(10 * DAY)
        await fire(store, clock, "hourly")
        (stretch,) = [row for row in await store.list_firings(job.id, limit=1_000) if row.count != 1]
        assert stretch.fire_at == first
        job = await store.get_job("default", "hourly")
        made = await store.backfill(job, plan_backfill(job, first, first, 1, clock.now(), {}).firings)
        assert len(made) == 1
        rows = {row.fire_at: row for row in await store.list_firings(job.id, limit=1_000)}
        assert (rows[first].kind, rows[first].outcome, rows[first].count) == ("backfill", "fired", 1)
        left = rows[first + 1]
        assert (left.outcome, left.last_at, left.count) == ("missed", stretch.last_at, stretch.count - 1)

    async def test_runs_that_must_not_overlap_wait_for_each_other(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock, policy=JobPolicy(overlap="forbid"))
        made = await store.backfill(job, hours_before(clock, job, 3).firings)
        assert [len(await take(store)) for _ in range(2)] == [1, 0]
        states = [(await store.get_run("default", run_id)).state for run_id in made]
        assert states == ["running", "blocked", "blocked"]
        clock.advance(HOUR)
        await finish_all(store, clock)
        assert {(await store.get_run("default", run_id)).state for run_id in made} == {"succeeded"}

    async def test_a_job_that_changed_meanwhile_is_planned_anew(self, store: Store, clock: ManualClock) -> None:
        job = await hourly(store, clock)
        planned = hours_before(clock, job, 2)
        await store.edit_job(msgspec.structs.replace(job, args='{"size":"4K"}'), job.version)
        with refused(Conflict):
            await store.backfill(job, planned.firings)
        assert await ledger(store, job) == {}
