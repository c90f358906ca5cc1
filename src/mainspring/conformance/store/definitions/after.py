"""Jobs that fire after other jobs."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.conformance.store.samples import (
    a_job,
    failure,
    finish_all,
    fire_due,
    new_events,
    seen,
    success,
    take,
    trigger,
)
from mainspring.core.instants import SECOND
from mainspring.core.model import Claim, Firing, Job, JobPolicy, Report
from mainspring.core.schedules.triggers import AfterTrigger, OnFailure, When
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
    """A second later a job fires by hand, its runs end like this, and the planner looks at what is due."""
    await finish_all(store, clock)
    clock.advance(SECOND)
    firing = await trigger(store, clock, name, f"{name} at {clock.now()}")
    await store.report([word(claim) for claim in await take(store)])
    await fire_due(store, clock)
    return firing


async def outcomes(store: Store, job: Job) -> list[str]:
    """The ledger of a job, oldest first."""
    return [row.outcome for row in reversed(await store.list_firings(job.id))]


class AfterSuite:
    """An `after` job fires when every upstream has a success that it has not used yet."""

    async def test_a_job_fires_when_all_before_it_have_succeeded(self, store: Store, clock: ManualClock) -> None:
        job = await pipeline(store, clock, "extract", "load")
        await end(store, clock, "extract")
        assert await outcomes(store, job) == []
        assert "dependency.ready" not in [event.kind for event in await new_events(store)]
        await end(store, clock, "load")
        ready = [event for event in await new_events(store) if event.kind == "dependency.ready"]
        assert [(event.job_id, event.job, event.run_id) for event in ready] == [(job.id, "report", None)]
        (row,) = await store.list_firings(job.id)
        assert (row.kind, row.outcome) == ("after", "fired")
        run = await seen(store, row.run_id or "")
        assert (run.state, run.due_at <= clock.now()) == ("pending", True)

    async def test_a_success_is_used_once(self, store: Store, clock: ManualClock) -> None:
        job = await pipeline(store, clock, "extract", "load")
        await end(store, clock, "extract")
        await end(store, clock, "load")
        await end(store, clock, "extract")
        await end(store, clock, "extract")
        assert await outcomes(store, job) == ["succeeded"]
        await end(store, clock, "load")
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
        used = {edge.upstream: edge.consumed_at for edge in await store.list_edges(job.id)}
        assert used == {"extract": first.fire_at, "load": second.fire_at}

    async def test_what_ended_before_the_job_was_made_does_not_count(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "extract"))
        await end(store, clock, "extract")
        clock.advance(SECOND)
        job = await store.create_job(a_job(clock, "report", AfterTrigger(("extract",))))
        await fire_due(store, clock)
        assert await outcomes(store, job) == []
        await end(store, clock, "extract")
        assert await outcomes(store, job) == ["fired"]

    async def test_a_failed_upstream_leaves_a_skipped_record_that_names_it(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await pipeline(store, clock, "extract", "load")
        await end(store, clock, "extract")
        await end(store, clock, "load", failure)
        (row,) = await store.list_firings(job.id)
        assert (row.outcome, row.run_id, row.finished_at) == ("skipped", None, clock.now())
        assert "load" in row.reason
        assert "failed" in row.reason
        assert await take(store) == []

    async def test_a_success_beside_a_failure_is_still_there_for_the_next(
        self, store: Store, clock: ManualClock
    ) -> None:
        job = await pipeline(store, clock, "extract", "load")
        await end(store, clock, "extract")
        await end(store, clock, "load", failure)
        await end(store, clock, "load")
        assert await outcomes(store, job) == ["skipped", "fired"]

    async def test_what_a_failed_upstream_means_is_chosen_by_the_job(self, store: Store, clock: ManualClock) -> None:
        strict = await pipeline(store, clock, "extract", on_failure="fail")
        lenient = await store.create_job(a_job(clock, "cleanup", AfterTrigger(("extract",), on_failure="run")))
        await end(store, clock, "extract", failure)
        assert await outcomes(store, strict) == ["failed"]
        assert await outcomes(store, lenient) == ["fired"]

    async def test_any_finished_fires_after_each_that_ends(self, store: Store, clock: ManualClock) -> None:
        job = await pipeline(store, clock, "extract", "load", when="any_finished")
        await end(store, clock, "load", failure)
        assert await outcomes(store, job) == ["fired"]
        await end(store, clock, "extract")
        assert await outcomes(store, job) == ["succeeded", "fired"]
        await end(store, clock, "load")
        assert await outcomes(store, job) == ["succeeded", "succeeded", "fired"]

    async def test_a_firing_has_ended_when_all_of_its_runs_have(self, store: Store, clock: ManualClock) -> None:
        await store.create_job(a_job(clock, "extract", policy=JobPolicy(completions=3)))
        job = await store.create_job(a_job(clock, "report", AfterTrigger(("extract",))))
        clock.advance(SECOND)
        await trigger(store, clock, "extract", "1")
        claims = await take(store)
        await store.report([failure(claims[0]), success(claims[1])])
        await fire_due(store, clock)
        assert await outcomes(store, job) == []
        await store.report([success(claims[2])])
        await fire_due(store, clock)
        assert await outcomes(store, job) == ["skipped"]
        await end(store, clock, "extract")
        assert await outcomes(store, job) == ["skipped", "fired"]

    async def test_an_older_firing_that_ends_later_is_not_news(self, store: Store, clock: ManualClock) -> None:
        job = await pipeline(store, clock, "extract", "load")
        clock.advance(SECOND)
        await trigger(store, clock, "extract", "older")
        (older,) = await take(store)
        await end(store, clock, "extract")
        await store.report([failure(older)])
        await fire_due(store, clock)
        assert await outcomes(store, job) == []
        await end(store, clock, "load")
        assert await outcomes(store, job) == ["fired"]

    async def test_a_chain_of_jobs_runs_through(self, store: Store, clock: ManualClock) -> None:
        report = await pipeline(store, clock, "extract")
        mail = await store.create_job(a_job(clock, "mail", AfterTrigger(("report",))))
        await end(store, clock, "extract")
        assert (await outcomes(store, report), await outcomes(store, mail)) == (["fired"], [])
        await finish_all(store, clock)
        await fire_due(store, clock)
        assert (await outcomes(store, report), await outcomes(store, mail)) == (["succeeded"], ["fired"])

    async def test_a_skipped_firing_is_an_ended_one_for_jobs_that_wait(self, store: Store, clock: ManualClock) -> None:
        report = await pipeline(store, clock, "extract")
        mail = await store.create_job(a_job(clock, "mail", AfterTrigger(("report",))))
        alarm = await store.create_job(a_job(clock, "alarm", AfterTrigger(("report",), on_failure="run")))
        await end(store, clock, "extract", failure)
        assert await outcomes(store, report) == await outcomes(store, mail) == ["skipped"]
        assert await outcomes(store, alarm) == ["fired"]

    async def test_a_planner_that_was_away_finds_what_became_due(self, store: Store, clock: ManualClock) -> None:
        job = await pipeline(store, clock, "extract")
        for request in ("1", "2", "3"):
            clock.advance(SECOND)
            await trigger(store, clock, "extract", request)
            await store.report([success(claim) for claim in await take(store)])
        await fire_due(store, clock)
        assert await outcomes(store, job) == ["fired"]
        assert len(await take(store)) == 1
