"""What pages ask of a whole namespace: jobs in other orders, missed instants, counts."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import msgspec
import pytest

from mainspring.conformance.store.samples import (
    a_job,
    a_run,
    a_worker,
    failure,
    finish,
    fire,
    new_id,
    options,
    submit,
    take,
    take_one,
    trigger,
)
from mainspring.core.answers import DELAYS
from mainspring.core.ids import encode_time
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, Instant
from mainspring.core.model import Claim, Gate, JobPolicy, KeptOptions, Report, Run
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.core.states import BLOCKED, CANCELLED, FAILED, PENDING, RUNNING, SUCCEEDED
from mainspring.errors import NotFound
from mainspring.store import JobOrder, RunFilter, Store
from mainspring.testing.clock import ManualClock


class OverviewSuite:
    """Answers are in order, complete up to their bound, and of one namespace."""

    async def test_jobs_are_listed_by_when_they_fire_and_fired_and_were_paused(
        self, store: Store, clock: ManualClock
    ) -> None:
        for name, hours in (("c", 3), ("a", 2), ("b", 2), ("off", 1)):
            await store.create_job(a_job(clock, name, EveryTrigger(hours * HOUR)))
        await store.create_job(a_job(clock, "by-hand"))
        await store.create_job(a_job(clock, "elsewhere", EveryTrigger(MINUTE), namespace="other"))
        for name in ("off", "by-hand"):
            clock.advance(SECOND)
            await store.pause_jobs("default", [name], paused=True, reason="")
        for name in ("c", "a"):
            clock.advance(SECOND)
            await trigger(store, clock, name, f"now-{name}")

        async def names(order: JobOrder, size: int) -> list[str]:
            found, beyond = list[str](), None
            for _ in range(10):
                page = await store.ordered_jobs("default", order, beyond=beyond, limit=size)
                if not page:
                    break
                found += [job.name for job in page]
                instants = {"next": page[-1].next_fire_at, "last": page[-1].last_fire_at, "paused": page[-1].paused_at}
                beyond = (instants[order] or 0, page[-1].id)
            return found

        for size in (1, 2, 50):
            assert await names("next", size) == ["a", "b", "c"]
            assert await names("last", size) == ["a", "c"]
            assert await names("paused", size) == ["by-hand", "off"]

    async def test_jobs_are_counted_up_to_a_limit(self, store: Store, clock: ManualClock) -> None:
        for name in ("a", "b", "c"):
            await store.create_job(a_job(clock, name))
        await store.create_job(a_job(clock, "other", namespace="other"))
        await store.pause_jobs("default", ["a", "b"], paused=True, reason="")
        assert await store.count_jobs("default", 10) == (3, 2)
        assert await store.count_jobs("default", 1) == (1, 1)
        assert await store.count_jobs("other", 10) == (1, 0)
        assert await store.count_jobs("nobody", 10) == (0, 0)

    async def test_missed_instants_are_found_by_when_they_were_recorded(self, store: Store, clock: ManualClock) -> None:
        policy = JobPolicy(misfire="once")
        await store.create_job(a_job(clock, "other", EveryTrigger(HOUR), namespace="other", policy=policy))
        job = await store.create_job(a_job(clock, "hourly", EveryTrigger(HOUR), policy=policy))
        clock.advance(3 * HOUR + MINUTE)
        await fire(store, clock, "hourly")
        found = await store.missed_firings("default", clock.now() - HOUR, 100)
        assert [(name, row.job_id, row.outcome) for name, row in found] == [("hourly", job.id, "missed")] * 2
        assert await store.missed_firings("other", clock.now() - HOUR, 100) == []
        assert len(await store.missed_firings("default", clock.now() - HOUR, 1)) == 1
        assert await store.missed_firings("default", clock.now() + 1, 100) == []

    async def test_the_firing_of_a_run_is_found_after_the_run_was_removed(
        self, store: Store, clock: ManualClock
    ) -> None:
        for name in ("a", "b", "c"):
            await store.create_job(a_job(clock, name, EveryTrigger(HOUR)))
        clock.advance(HOUR + SECOND)
        for name in ("a", "b", "c"):
            await fire(store, clock, name)
        claims = {claim.job: claim for claim in await take(store)}
        await store.report([failure(claim) for claim in claims.values()])
        run_id = claims["b"].run_id
        assert (await store.firing_of_run("default", run_id, 10) or ("",))[0] == "b"
        clock.advance(5 * DAY)
        await store.clean(2 * DAY, 100 * DAY, DAY, 1_000)
        with pytest.raises(NotFound):
            await store.get_run("default", run_id)
        found = await store.firing_of_run("default", run_id, 10)
        assert found is not None
        assert (found[0], found[1].run_id, found[1].outcome) == ("b", run_id, "failed")
        assert found[1].reason == "ValueError: no"
        assert await store.firing_of_run("other", run_id, 10) is None
        assert await store.firing_of_run("default", run_id, 1) is None, "among the first jobs alone"
        for unknown in (new_id(clock), "not-the-id-of-any-run-here", "z" * 26, ""):
            assert await store.firing_of_run("default", unknown, 10) is None

    async def test_counts_are_the_lengths_of_lists_up_to_a_bound(self, store: Store, clock: ManualClock) -> None:
        for report in (None, None, failure):
            run = a_run(clock, queue="a" if report is None else "default")
            await submit(store, run)
            if report is None:
                await store.request_cancel("default", run.id, "")
            else:
                await finish(store, run, report)
        succeeding = a_run(clock)
        await submit(store, succeeding)
        await finish(store, succeeding)
        clock.advance(HOUR)
        since = encode_time(clock.now())
        await submit(store, *(a_run(clock) for _ in range(4)), a_run(clock, namespace="other"))
        await take_one(store)
        for states in ((), (PENDING,), (RUNNING,), (FAILED,), (SUCCEEDED, PENDING)):
            for limit in (2, 100):
                for first in (None, since):
                    for queue in (None, "a"):
                        where = RunFilter("default", states, limit=limit, queue=queue, since=first)
                        assert await store.count_matching(where) == len(await store.list_runs(where)), where
        assert await store.count_matching(RunFilter("default", (PENDING, RUNNING))) == 4
        filters = [RunFilter("default", (state,), limit=2) for state in (PENDING, RUNNING, FAILED, BLOCKED)]
        assert await store.count_each(filters) == [await store.count_matching(where) for where in filters]
        assert await store.count_each([]) == []
        assert await store.count_matching(RunFilter("default", (FAILED,), since=since)) == 0

    async def test_runs_are_listed_and_counted_by_region_whatever_else_is_asked(
        self, store: Store, clock: ManualClock
    ) -> None:
        for region in ("default", "eu", "us"):
            for number in range(6):
                tagged = options(tags=("even",) if number % 2 == 0 else ())
                job = {"job_id": "job-1", "job": "nightly", "fire_at": clock.now()} if number < 2 else {}
                run = a_run(clock, region=region, queue="ab"[number % 2], options=tagged, **job)
                await submit(store, run)
                if number < 4:
                    await store.request_cancel("default", run.id, "")
                clock.advance(SECOND)
        every = await store.list_runs(RunFilter(limit=100))
        assert len(every) == 18
        for region in ("default", "eu", "us", "nowhere"):
            for states in ((), (PENDING,), (CANCELLED,)):
                for words in ({}, {"tag": "even"}, {"queue": "b"}, {"job": "nightly"}, {"task": every[0].task}):
                    where = msgspec.structs.replace(RunFilter("default", states, region=region), **words)
                    without = msgspec.structs.replace(where, region=None, limit=100)
                    expected = [run.id for run in await store.list_runs(without) if run.region == region]
                    assert [run.id for run in await store.list_runs(where)] == expected, where
                    assert await store.count_matching(where) == len(expected), where

    async def test_runs_are_listed_and_counted_by_key_lateness_and_duration(
        self, store: Store, clock: ManualClock
    ) -> None:
        delays = (0, 2 * MINUTE, 20 * MINUTE, 3 * HOUR, 2 * DAY)
        clock.advance(10 * DAY)
        for number, (late, took) in enumerate(product(delays, delays)):
            due = clock.now() - late - took
            run = a_run(clock, due_at=due, key=f"k{number % 3}", lines=(Gate(f"key:k{number % 3}", 1),))
            await submit(store, run)
            await finish(store, run, _between(due + late, due + late + took))
            clock.advance(SECOND)
        waiting = a_run(clock, key="k1", lines=(Gate("key:k1", 1),))
        overdue = a_run(clock, due_at=clock.now() - HOUR, priority=1)
        await submit(store, waiting, overdue)
        await take_one(store)
        every = await store.list_runs(RunFilter(limit=100))
        assert len(every) == len(delays) ** 2 + 2
        for key in (None, "k1", "missing"):
            for least, length in product((None, *DELAYS), repeat=2):
                for states in ((), (SUCCEEDED,), (RUNNING, PENDING)):
                    where = RunFilter("default", states, key=key, late=least, took=length, limit=100)
                    expected = [run.id for run in every if _fits(run, where)]
                    assert [run.id for run in await store.list_runs(where)] == expected, where
                    assert await store.count_matching(where) == len(expected), where
        assert await store.list_runs(RunFilter("other", late="1m")) == []

    async def test_runs_are_listed_and_counted_by_submitter(self, store: Store, clock: ManualClock) -> None:
        subjects = ("ann", "bob", 'c"\\ä', "")
        for number, subject in enumerate(subjects * 6):
            kept = KeptOptions(
                tags=("even",) * (number % 2 == 0), submitted_by=subject, context={"submitted_by": "eve"}
            )
            run = a_run(clock, options=msgspec.json.encode(kept).decode(), queue="ab"[number % 2], job="nightly")
            await submit(store, run)
            if number % 3 == 0:
                await store.request_cancel("default", run.id, "")
            clock.advance(SECOND)
        await take_one(store, a_worker(queues=("a", "b")))
        every = await store.list_runs(RunFilter(limit=100))
        assert {run.state for run in every} == {PENDING, RUNNING, CANCELLED}
        for subject in ("ann", "bob", 'c"\\ä', "eve", "an"):
            of_subject = {run.id for run in every if _submitter(run) == subject}
            for states in ((), (PENDING,), (RUNNING,), (CANCELLED,)):
                for words in ({}, {"tag": "even"}, {"queue": "b"}, {"job": "nightly"}, {"task": every[0].task}):
                    where = msgspec.structs.replace(RunFilter("default", states, submitted_by=subject), **words)
                    without = msgspec.structs.replace(where, submitted_by=None, limit=100)
                    expected = [run.id for run in await store.list_runs(without) if run.id in of_subject]
                    assert [run.id for run in await store.list_runs(where)] == expected, where
                    assert await store.count_matching(where) == len(expected), where


def _between(began: Instant, ended: Instant) -> Callable[[Claim], Report]:
    def report(claim: Claim) -> Report:
        return Report(claim.run_id, claim.token, "succeeded", SUCCEEDED, started_at=began, finished_at=ended)

    return report


def _submitter(run: Run) -> str:
    return msgspec.json.decode(run.options, type=KeptOptions).submitted_by


def _fits(run: Run, where: RunFilter) -> bool:
    late = None if run.started_at is None else run.started_at - run.due_at
    took = None if run.started_at is None or run.finished_at is None else run.finished_at - run.started_at
    asked = ((where.late, late), (where.took, took))
    return (
        where.key in (None, run.key)
        and (not where.states or run.state in where.states)
        and all(least is None or (length is not None and length >= DELAYS[least]) for least, length in asked)
    )
