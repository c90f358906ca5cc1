"""Jobs that fire after other jobs."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.conformance.store_samples import (
    a_job,
    failure,
    finish_all,
    fire,
    seen,
    success,
    take,
    trigger,
)
from mainspring.core.instants import SECOND
from mainspring.core.model import Claim, Firing, Job, JobPolicy, Report
from mainspring.core.triggers import AfterTrigger
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

Word = Callable[[Claim], Report]


async def pipeline(
    store: Store, clock: ManualClock, *upstreams: str, when: When = "all_succeeded", on_failure: OnFailure = "skip"
) -> Job:
    """The job `report`, which fires after these."""
    for name in upstreams:
        await store.create_job(a_job(clock, name))
    return await store.create_job(a_job(clock, "report", AfterTrigger(upstreams, when, on_failure)))


async def end(store: Store, clock: ManualClock, name: str, word: Word = success) -> Firing:
    """Fire a job by hand, a second later, and let its runs end like this."""
    clock.advance(SECOND)
    firing = await trigger(store, clock, name, f"{name} at {clock.now()}")
    await store.report([word(claim) for claim in await take(store)])
    return firing


async def is_due(store: Store, clock: ManualClock, name: str = "report") -> bool:
    """Whether the planner would find the job due."""
    return name in [job.name for job in await store.due_jobs(clock.now(), 100)]


async def outcomes(store: Store, job: Job) -> list[str]:
    """The ledger of a job, oldest first."""
    return [row.outcome for row in reversed(await store.list_firings(job.id))]


class AfterSuite:
    """An `after` job fires when every upstream has a success that it has not used yet."""

    async def test_a_job_is_due_when_all_before_it_have_succeeded(self, store: Store, clock: ManualClock) -> None:
        job = await pipeline(store, clock, "extract", "load")
        assert not await is_due(store, clock)
        await end(store, clock, "extract")
        assert not await is_due(store, clock)
        await end(store, clock, "load")
        assert await is_due(store, clock)
        assert (await fire(store, clock, "report")).runs == 1
        assert not await is_due(store, clock)
        (row,) = await store.list_firings(job.id)
        assert (row.kind, row.outcome) == ("after", "fired")
        assert (await seen(store, row.run_id or "")).state == "pending"

    async def test_a_success_is_used_once(self, store: Store, clock: ManualClock) -> None:
        job = await pipeline(store, clock, "extract", "load")
        await end(store, clock, "extract")
        await end(store, clock, "load")
        await fire(store, clock, "report")
        await finish_all(store, clock)
        await end(store, clock, "extract")
        await end(store, clock, "extract")
        assert not await is_due(store, clock)
        await end(store, clock, "load")
        assert await is_due(store, clock)
        await fire(store, clock, "report")
        assert await outcomes(store, job) == ["succeeded", "fired"]

    async def test_the_edges_remember_what_was_used(self, store: Store, clock: ManualClock) -> None:
        job = await pipeline(store, clock, "extract", "load")
        edges = await store.list_edges(job.id)
        assert {(edge.job_id, edge.upstream, edge.consumed_at, edge.latest_at) for edge in edges} == {
            (job.id, "extract", 0, 0),
            (job.id, "load", 0, 0),
        }
        first = await end(store, clock, "extract")
        latest = {edge.upstream: (edge.latest_at, edge.latest_outcome) for edge in await store.list_edges(job.id)}
        assert latest["extract"] == (first.fire_at, "succeeded")
        second = await end(store, clock, "load")
        await fire(store, clock, "report")
        used = {edge.upstream: edge.consumed_at for edge in await store.list_edges(job.id)}
        assert used == {"extract": first.fire_at, "load": second.fire_at}

    async def test_what_ended_before_the_job_was_made_does_not_count(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "extract"))
        await end(store, clock, "extract")
        clock.advance(SECOND)
        await store.create_job(a_job(clock, "report", AfterTrigger(("extract",))))
        assert not await is_due(store, clock)
        await end(store, clock, "extract")
        assert await is_due(store, clock)

    async def test_a_failed_upstream_leaves_a_skipped_record_that_names_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await pipeline(store, clock, "extract", "load")
        await end(store, clock, "extract")
        await end(store, clock, "load", failure)
        assert not await is_due(store, clock)
        (row,) = await store.list_firings(job.id)
        assert (row.outcome, row.run_id, row.finished_at) == ("skipped", None, clock.now())
        assert "load" in row.reason
        assert "failed" in row.reason

    async def test_a_success_beside_a_failure_is_still_there_for_the_next(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await pipeline(store, clock, "extract", "load")
        await end(store, clock, "extract")
        await end(store, clock, "load", failure)
        await end(store, clock, "load")
        assert await is_due(store, clock)
        await fire(store, clock, "report")
        assert await outcomes(store, job) == ["skipped", "fired"]

    async def test_what_a_failed_upstream_means_is_chosen_by_the_job(self, store: Store, clock: ManualClock) -> None:
        strict = await pipeline(store, clock, "extract", on_failure="fail")
        lenient = await store.create_job(a_job(clock, "cleanup", AfterTrigger(("extract",), on_failure="run")))
        await end(store, clock, "extract", failure)
        assert await outcomes(store, strict) == ["failed"]
        assert await is_due(store, clock, "cleanup")
        await fire(store, clock, "cleanup")
        assert await outcomes(store, lenient) == ["fired"]

    async def test_any_finished_fires_after_each_that_ends(self, store: Store, clock: ManualClock) -> None:
        await pipeline(store, clock, "extract", "load", when="any_finished")
        for name, word in (("load", failure), ("extract", success), ("load", success)):
            await end(store, clock, name, word)
            assert await is_due(store, clock)
            await fire(store, clock, "report")
            assert not await is_due(store, clock)
            await finish_all(store, clock)

    async def test_a_firing_has_ended_when_all_of_its_runs_have(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "extract", policy=JobPolicy(completions=3)))
        job = await store.create_job(a_job(clock, "report", AfterTrigger(("extract",))))
        clock.advance(SECOND)
        await trigger(store, clock, "extract", "1")
        claims = await take(store)
        await store.report([success(claim) for claim in claims[:2]])
        assert not await is_due(store, clock)
        await store.report([success(claims[2])])
        assert await is_due(store, clock)
        await fire(store, clock, "report")
        await finish_all(store, clock)
        await trigger(store, clock, "extract", "2")
        claims = await take(store)
        await store.report([failure(claims[0]), success(claims[1]), success(claims[2])])
        assert not await is_due(store, clock)
        assert await outcomes(store, job) == ["succeeded", "skipped"]

    async def test_a_chain_of_jobs_runs_through(self, store: Store, clock: ManualClock) -> None:
        await pipeline(store, clock, "extract")
        mail = await store.create_job(a_job(clock, "mail", AfterTrigger(("report",))))
        await end(store, clock, "extract")
        await fire(store, clock, "report")
        await finish_all(store, clock)
        assert await is_due(store, clock, "mail")
        await fire(store, clock, "mail")
        assert await outcomes(store, mail) == ["fired"]

    async def test_a_skipped_firing_is_an_ended_one_for_whoever_waits(self, store: Store, clock: ManualClock) -> None:
        report = await pipeline(store, clock, "extract")
        mail = await store.create_job(a_job(clock, "mail", AfterTrigger(("report",))))
        alarm = await store.create_job(a_job(clock, "alarm", AfterTrigger(("report",), on_failure="run")))
        await end(store, clock, "extract", failure)
        assert await outcomes(store, report) == await outcomes(store, mail) == ["skipped"]
        await fire(store, clock, "alarm")
        assert await outcomes(store, alarm) == ["fired"]

    async def test_successes_that_come_faster_than_the_planner_fire_it_once(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await pipeline(store, clock, "extract")
        await end(store, clock, "extract")
        await end(store, clock, "extract")
        while await is_due(store, clock):
            assert (await fire(store, clock, "report")).applied
        assert await outcomes(store, job) in (["fired"], ["fired", "fired"])
