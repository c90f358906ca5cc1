"""The planner's writes: exactly one record per due instant."""

from __future__ import annotations

import asyncio

import msgspec

from mainspring.conformance.store.definitions.after import AfterSuite
from mainspring.conformance.store.definitions.overlap import OverlapSuite
from mainspring.conformance.store.refusal import refused
from mainspring.conformance.store.samples import a_job, finish_all, fire, new_events, seen, take
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND
from mainspring.core.model import Job, JobPolicy, KeptOptions, RunOptions
from mainspring.core.planning import plans as planning
from mainspring.core.planning.plans import Plan
from mainspring.core.schedules.triggers import AtTrigger, EveryTrigger
from mainspring.core.states import FINAL
from mainspring.errors import TermPassed
from mainspring.store import RunFilter, Store
from mainspring.testing.clock import ManualClock

HOURLY = EveryTrigger(HOUR)


async def due(store: Store, clock: ManualClock, name: str = "hourly", **changes: object) -> tuple[Job, Plan]:
    """A job whose first instant has come, and the plan for it."""
    job = await store.create_job(a_job(clock, name, HOURLY, **changes))
    clock.set(max(clock.now(), job.created_at + HOUR))
    return job, planning.plan(job, clock.now(), {})


class PlanSuite(OverlapSuite, AfterSuite):
    """A plan takes effect once, whole, and only on the job that it was made from."""

    async def test_a_firing_is_recorded_with_its_run_and_the_job_moves_on(
        self, store: Store, clock: ManualClock
    ) -> None:
        job, plan = await due(store, clock, policy=JobPolicy(start_deadline=MINUTE))
        instant = clock.now()
        clock.advance(SECOND)
        (fired,) = await store.fire([plan], None)
        assert (fired.job_id, fired.applied, fired.runs) == (job.id, True, 1)
        moved = await store.get_job("default", "hourly")
        assert fired.job == moved
        assert (moved.next_fire_at, moved.last_fire_at, moved.fired) == (instant + HOUR, instant, 1)
        (row,) = await store.list_firings(job.id)
        assert (row.fire_at, row.kind, row.outcome, row.finished_at) == (instant, "scheduled", "fired", None)
        run = await seen(store, row.run_id or "")
        assert (run.state, run.job_id, run.job, run.fire_at) == ("pending", job.id, "hourly", instant)
        assert (run.due_at, run.expires_at) == (instant, instant + MINUTE)

    async def test_the_run_of_a_firing_knows_when_its_total_timeout_ends(
        self, store: Store, clock: ManualClock
    ) -> None:
        job, plan = await due(store, clock, options=RunOptions(total_timeout=MINUTE, max_losses=7))
        instant = clock.now()
        clock.advance(SECOND)
        assert (await store.fire([plan], None))[0].runs == 1
        (row,) = await store.list_firings(job.id)
        kept = msgspec.json.decode((await seen(store, row.run_id or "")).options, type=RunOptions)
        assert kept == RunOptions(total_timeout=MINUTE, give_up_at=instant + MINUTE, max_losses=7)
        assert (await store.get_job("default", "hourly")).options.give_up_at is None

    async def test_the_run_of_a_firing_keeps_the_context_that_its_plan_gave_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        job, plan = await due(store, clock)
        (firing,) = plan.firings
        options = msgspec.json.encode(KeptOptions(context={"traceparent": "00-1-2-01"})).decode()
        runs = tuple(msgspec.structs.replace(run, options=options) for run in firing.runs)
        traced = msgspec.structs.replace(plan, firings=(msgspec.structs.replace(firing, runs=runs),))
        assert (await store.fire([traced], None))[0].runs == 1
        (row,) = await store.list_firings(job.id)
        kept = msgspec.json.decode((await seen(store, row.run_id or "")).options, type=KeptOptions)
        assert kept.context == {"traceparent": "00-1-2-01"}

    async def test_what_is_fired_before_its_instant_is_due_at_it_and_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await store.create_job(a_job(clock, "hourly", HOURLY))
        instant = job.created_at + HOUR
        clock.set(instant - SECOND)
        ahead = planning.plan(job, instant, {})
        (fired,) = await store.fire([planning.written_at(ahead, clock.now())], None)
        assert fired.applied
        assert (await store.get_job("default", "hourly")).next_fire_at == instant + HOUR
        assert await take(store) == []
        clock.set(instant)
        (again,) = await store.fire([ahead], None)
        assert not again.applied
        assert [claim.due_at for claim in await take(store)] == [instant]

    async def test_a_pause_keeps_what_was_fired_before_its_instant_from_running(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await store.create_job(a_job(clock, "hourly", HOURLY))
        instant = job.created_at + HOUR
        clock.set(instant - SECOND)
        await store.fire([planning.written_at(planning.plan(job, instant, {}), clock.now())], None)
        await store.pause_jobs("default", ["hourly"], paused=True, reason="audit")
        clock.set(instant)
        assert await take(store) == []
        (row,) = await store.list_firings(job.id)
        assert (row.fire_at, row.outcome, row.reason) == (instant, "skipped", "paused: audit")

    async def test_a_pause_leaves_runs_of_instants_that_have_come(self, store: Store, clock: ManualClock) -> None:
        _, plan = await due(store, clock)
        await store.fire([plan], None)
        await store.pause_jobs("default", ["hourly"], paused=True, reason="audit")
        assert len(await take(store)) == 1

    async def test_the_record_ends_as_its_run_ends(self, store: Store, clock: ManualClock) -> None:
        job, plan = await due(store, clock)
        await store.fire([plan], None)
        clock.advance(SECOND)
        await finish_all(store, clock)
        (row,) = await store.list_firings(job.id)
        assert (row.outcome, row.finished_at) == ("succeeded", clock.now())

    async def test_a_plan_applied_twice_takes_effect_once(self, store: Store, clock: ManualClock) -> None:
        job, plan = await due(store, clock)
        await store.fire([plan], None)
        (again,) = await store.fire([plan], None)
        assert (again.applied, again.runs) == (False, 0)
        assert again.job == await store.get_job("default", "hourly")
        assert len(await store.list_firings(job.id)) == 1
        assert len(await take(store)) == 1
        assert (await store.get_job("default", "hourly")).fired == 1

    async def test_of_many_callers_that_fire_at_once_one_does(self, store: Store, clock: ManualClock) -> None:
        job, plan = await due(store, clock)
        answers = await asyncio.gather(*(store.fire([plan], None) for _ in range(10)))
        assert sum(fired.applied for (fired,) in answers) == 1
        assert len(await store.list_firings(job.id)) == 1
        assert len(await take(store)) == 1

    async def test_an_instant_that_comes_twice_has_one_record_and_one_run(
        self, store: Store, clock: ManualClock
    ) -> None:
        job, plan = await due(store, clock)
        instant = clock.now()
        await store.fire([plan], None)
        await finish_all(store, clock)
        clock.advance(SECOND)
        await store.clean(0, DAY, DAY, 100)  # The run is forgotten; the ledger remembers.
        clock.set(instant - MINUTE)  # The wall clock is turned back, and an edit plans from there.
        stored = await store.get_job("default", "hourly")
        edited = msgspec.structs.replace(stored, trigger=EveryTrigger(HOUR, anchor=job.created_at))
        await store.edit_job(edited, stored.version)
        clock.set(instant + SECOND)
        await fire(store, clock, "hourly")
        assert [row.fire_at for row in await store.list_firings(job.id)] == [instant]
        assert await store.list_runs(RunFilter()) == []
        after = await store.get_job("default", "hourly")
        assert (after.next_fire_at, after.fired) == (instant + HOUR, 1)

    async def test_a_plan_for_a_job_that_was_edited_is_not_applied(self, store: Store, clock: ManualClock) -> None:
        job, plan = await due(store, clock)
        edited = await store.edit_job(msgspec.structs.replace(job, args='{"x":1}'), job.version)
        (fired,) = await store.fire([plan], None)
        assert (fired.applied, fired.job) == (False, edited)
        assert await store.list_firings(job.id) == []
        assert (await fire(store, clock, "hourly")).applied

    async def test_a_plan_for_a_job_that_was_paused_or_removed_is_not_applied(
        self, store: Store, clock: ManualClock
    ) -> None:
        paused, first = await due(store, clock, "paused")
        removed, _ = await due(store, clock, "removed")
        clock.advance(HOUR)
        second = planning.plan(removed, clock.now(), {})
        await store.pause_jobs("default", ["paused"], paused=True, reason="audit")
        await store.remove_job("default", "removed")
        answers = await store.fire([first, second], None)
        assert [(fired.job_id, fired.applied, fired.job) for fired in answers] == [
            (paused.id, False, None),
            (removed.id, False, None),
        ]
        assert await store.list_firings(paused.id) == await store.list_firings(removed.id) == []
        assert await store.list_runs(RunFilter()) == []

    async def test_one_plan_that_is_too_late_does_not_stop_the_others(self, store: Store, clock: ManualClock) -> None:
        jobs = [await store.create_job(a_job(clock, name, HOURLY)) for name in ("a", "b", "c")]
        clock.advance(HOUR)
        plans = [planning.plan(job, clock.now(), {}) for job in jobs]
        await store.fire([plans[1]], None)
        answers = await store.fire(plans, None)
        assert [(fired.job_id, fired.applied) for fired in answers] == [
            (jobs[0].id, True),
            (jobs[1].id, False),
            (jobs[2].id, True),
        ]
        assert len(await take(store)) == 3

    async def test_a_stale_leader_cannot_fire(self, store: Store, clock: ManualClock) -> None:
        old = await store.begin_term("scheduler", "node-1")
        new = await store.begin_term("scheduler", "node-2")
        jobs = [await store.create_job(a_job(clock, name, HOURLY)) for name in ("a", "b")]
        clock.advance(HOUR)
        plans = [planning.plan(job, clock.now(), {}) for job in jobs]
        await new_events(store)
        with refused(TermPassed):
            await store.fire(plans, old)
        assert await store.list_jobs("default") == jobs
        assert await store.list_firings(jobs[0].id) == []
        assert (await take(store), await new_events(store)) == ([], [])
        assert all(fired.applied for fired in await store.fire(plans, new))

    async def test_terms_of_other_names_do_not_pass_ours(self, store: Store, clock: ManualClock) -> None:
        ours = await store.begin_term("scheduler:1", "node-1")
        await store.begin_term("scheduler:2", "node-2")
        await store.begin_term("scheduler:2", "node-3")
        _, plan = await due(store, clock)
        assert [fired.applied for fired in await store.fire([plan], ours)] == [True]

    async def test_there_is_a_record_per_region_and_index(self, store: Store, clock: ManualClock) -> None:
        job, plan = await due(store, clock, policy=JobPolicy(regions=("eu", "us"), completions=2))
        (fired,) = await store.fire([plan], None)
        assert fired.runs == 4
        rows = await store.list_firings(job.id)
        assert sorted((row.region, row.idx) for row in rows) == [("eu", 0), ("eu", 1), ("us", 0), ("us", 1)]
        for row in rows:
            run = await seen(store, row.run_id or "")
            assert (run.region, run.idx) == (row.region, row.idx)
        assert (await store.get_job("default", "hourly")).fired == 1

    async def test_missed_instants_are_recorded_with_their_reasons(self, store: Store, clock: ManualClock) -> None:
        job, _ = await due(store, clock, policy=JobPolicy(misfire="once"))
        clock.advance(2 * HOUR + MINUTE)
        assert (await fire(store, clock, "hourly")).runs == 1
        rows = await store.list_firings(job.id)
        assert [(row.outcome, row.fire_at) for row in rows] == [
            ("fired", job.created_at + 3 * HOUR),
            ("missed", job.created_at + 2 * HOUR),
            ("missed", job.created_at + HOUR),
        ]
        assert ["misfire=once" in row.reason for row in rows] == [False, True, True]
        assert [row.run_id is None for row in rows] == [False, True, True]

    async def test_a_stretch_of_missed_instants_is_one_record(self, store: Store, clock: ManualClock) -> None:
        job, _ = await due(store, clock, policy=JobPolicy(misfire="skip"))
        clock.advance(199 * HOUR + MINUTE)
        await fire(store, clock, "hourly")
        rows = await store.list_firings(job.id, limit=1_000)
        stretch = rows[-1]
        assert (stretch.outcome, stretch.count, stretch.fire_at) == ("missed", 100, job.created_at + HOUR)
        assert stretch.last_at == job.created_at + 100 * HOUR
        assert sum(row.count for row in rows) == 200

    async def test_a_job_that_will_not_fire_again_is_not_due(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "once", AtTrigger(clock.now() + MINUTE)))
        clock.advance(MINUTE)
        (fired,) = [await fire(store, clock, "once")]
        assert fired.job is not None
        assert fired.job.next_fire_at is None
        assert await store.due_jobs(clock.now() + 1_000 * HOUR, 100) == []

    async def test_due_jobs_come_earliest_first(self, store: Store, clock: ManualClock) -> None:
        for name, minutes in (("a", 30), ("c", 10), ("b", 20), ("d", 40)):
            await store.create_job(a_job(clock, name, EveryTrigger(minutes * MINUTE)))
        await store.create_job(a_job(clock, "manual"))
        await store.pause_jobs("default", ["b"], paused=True, reason="audit")
        until = clock.now() + 30 * MINUTE
        assert [job.name for job in await store.due_jobs(until, 100)] == ["c", "a"]
        assert [job.name for job in await store.due_jobs(until - 1, 100)] == ["c"]
        assert [job.name for job in await store.due_jobs(until + HOUR, 2)] == ["c", "a"]

    async def test_where_more_is_due_than_is_asked_for_namespaces_share_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        for number in range(9):
            await store.create_job(a_job(clock, f"large-{number}", EveryTrigger(MINUTE + number), namespace="large"))
        await store.create_job(a_job(clock, "small", EveryTrigger(HOUR), namespace="small"))
        await store.create_job(a_job(clock, "tiny", EveryTrigger(2 * HOUR), namespace="tiny"))
        until = clock.now() + 3 * HOUR
        found = [job.name for job in await store.due_jobs(until, 9)]
        assert found == ["large-0", "large-1", "large-2", "small", "tiny"]
        assert [job.name for job in await store.due_jobs(until, 2)] == ["large-0", "small"]
        assert len(await store.due_jobs(until, 12)) == 11

    async def test_of_very_many_changes_one_more_than_asked_for_is_returned(
        self, store: Store, clock: ManualClock
    ) -> None:
        since, _ = await store.changed_jobs(0)
        for number in range(5):
            await store.create_job(a_job(clock, f"job-{number}", HOURLY))
        newest, changed = await store.changed_jobs(since, 3)
        assert len(changed) == 4
        assert await store.changed_jobs(newest, 3) == (newest, [])
        assert len((await store.changed_jobs(since, 5))[1]) == 5

    async def test_changes_of_jobs_are_numbered(self, store: Store, clock: ManualClock) -> None:
        since, _ = await store.changed_jobs(0)
        jobs = [await store.create_job(a_job(clock, name, HOURLY)) for name in ("b", "c", "a")]
        created, changed = await store.changed_jobs(since)
        assert sorted(job.name for job in changed) == ["a", "b", "c"]
        assert await store.changed_jobs(created) == (created, [])
        edited = await store.edit_job(msgspec.structs.replace(jobs[0], priority=1), 1)
        (paused,) = await store.pause_jobs("default", ["c"], paused=True, reason="audit")
        newest, changed = await store.changed_jobs(created)
        assert newest > created
        assert sorted(changed, key=lambda job: job.name) == [edited, paused]
        (resumed,) = await store.pause_jobs("default", ["c"], paused=False, reason="")
        assert (await store.changed_jobs(newest))[1] == [resumed]

    async def test_a_firing_is_no_change_of_the_job(self, store: Store, clock: ManualClock) -> None:
        _, plan = await due(store, clock)
        number, _ = await store.changed_jobs(0)
        await store.fire([plan], None)
        assert await store.changed_jobs(number) == (number, [])

    async def test_a_run_that_is_spread_is_due_later_than_its_instant(self, store: Store, clock: ManualClock) -> None:
        job, plan = await due(store, clock, policy=JobPolicy(jitter=10 * MINUTE))
        instant = clock.now()
        await store.fire([plan], None)
        (run,) = await store.list_runs(RunFilter())
        assert run.due_at == instant + planning.jitter_of(job) > instant
        assert run.fire_at == instant
        assert await take(store) == []

    async def test_a_firing_without_work_left_is_reported_in_its_ledger(self, store: Store, clock: ManualClock) -> None:
        job, plan = await due(store, clock)
        await store.fire([plan], None)
        (row,) = await store.list_firings(job.id)
        await store.request_cancel("default", row.run_id or "", "not needed")
        (row,) = await store.list_firings(job.id)
        assert (row.outcome, row.finished_at) == ("cancelled", clock.now())
        assert {run.state for run in await store.list_runs(RunFilter())} <= FINAL
