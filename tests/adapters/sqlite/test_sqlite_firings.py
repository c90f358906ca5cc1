"""Firings on SQLite: what the store suite leaves open, and the details of what is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mainspring.conformance.store.samples import (
    a_job,
    a_worker,
    failure,
    fire,
    new_events,
    success,
    take,
    trigger,
)
from mainspring.core.instants import HOUR, MINUTE, SECOND, parse_instant
from mainspring.core.model import Event, Firing, Job, JobPolicy, Term
from mainspring.core.planning import plans as planning
from mainspring.core.planning.plans import Plan
from mainspring.core.schedules.triggers import AfterTrigger, EveryTrigger
from mainspring.errors import TermPassed
from mainspring.store import RunFilter
from mainspring.stores.sql import Numbered, load_queries
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing.clock import ManualClock

HOURLY = EveryTrigger(HOUR)
START = parse_instant("2026-03-27T12:00:00Z")  # A Friday.


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock(START)


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> AsyncIterator[SqliteStore]:
    store = SqliteStore(str(tmp_path / "mainspring.db"), clock, durable=False, inline=True)
    yield store
    await store.close()


async def create(store: SqliteStore, clock: ManualClock, name: str = "report", **changes: object) -> Job:
    return await store.create_job(replace(a_job(clock, name, HOURLY), **changes))


async def plan_all(store: SqliteStore, clock: ManualClock) -> list[Plan]:
    return [planning.plan(job, clock.now(), {}) for job in await store.due_jobs(clock.now(), 10_000)]


async def rows_of(store: SqliteStore, job: Job) -> list[Firing]:
    """The ledger of a job, oldest first."""
    return (await store.list_firings(job.id, limit=10_000))[::-1]


async def events(store: SqliteStore, *kinds: str) -> list[Event]:
    return [event for event in await new_events(store) if event.kind in kinds]


class TestFiring:
    async def test_a_term_that_nobody_began_cannot_fire(self, store: SqliteStore, clock: ManualClock) -> None:
        await create(store, clock)
        clock.advance(HOUR)
        with pytest.raises(TermPassed, match="the newest is none"):
            await store.fire(await plan_all(store, clock), Term("scheduler", 1, "node-1"))

    async def test_a_thousand_jobs_due_together_fire_together(self, store: SqliteStore, clock: ManualClock) -> None:
        await store.sync_jobs("films", "default", [a_job(clock, f"job{n}", HOURLY) for n in range(1_000)])
        clock.advance(HOUR)
        fired = await store.fire(await plan_all(store, clock), None)
        assert all(one.applied and one.runs == 1 for one in fired)
        assert len(await take(store)) == 1_000
        assert [one.job for one in fired] == await store.due_jobs(START + 2 * HOUR, 1_000)

    async def test_what_fired_and_what_was_missed_is_reported(self, store: SqliteStore, clock: ManualClock) -> None:
        policy = JobPolicy(misfire="all", catch_up_window=2 * HOUR, completions=2)
        job = await create(store, clock, policy=policy)
        clock.advance(5 * HOUR)
        await fire(store, clock, "report")
        seen = [
            (event.kind, event.fire_at, event.count)
            for event in await events(store, "firing.missed", "firing.fired")
            if (event.job_id, event.job) == (job.id, "report")
        ]
        assert seen == [
            ("firing.missed", START + HOUR, 2),
            ("firing.fired", START + 3 * HOUR, 2),
            ("firing.fired", START + 4 * HOUR, 2),
            ("firing.fired", START + 5 * HOUR, 2),
        ]

    async def test_a_refused_firing_is_reported_with_its_reason(self, store: SqliteStore, clock: ManualClock) -> None:
        await create(store, clock, policy=JobPolicy(overlap="forbid"))
        first = await trigger(store, clock, "report", "1")
        clock.advance(HOUR)
        assert (await fire(store, clock, "report")).runs == 0
        (event,) = await events(store, "firing.skipped")
        assert event.reason == f"overlap=forbid: run {first.run_id} had not ended"

    async def test_an_instant_in_the_ledger_replaces_nothing(self, store: SqliteStore, clock: ManualClock) -> None:
        job = await create(store, clock, policy=JobPolicy(overlap="replace"))
        clock.advance(HOUR)
        await fire(store, clock, "report")
        (run,) = await store.list_runs(RunFilter())
        clock.set(START)  # The clock is turned back, and an edit makes the same instant due again.
        fired = await store.get_job("default", "report")
        await store.edit_job(replace(fired, trigger=EveryTrigger(HOUR, anchor=START)), 1)
        clock.set(START + HOUR)
        answer = await fire(store, clock, "report")
        assert (answer.applied, answer.runs) == (True, 0)
        assert await store.list_runs(RunFilter()) == [run]
        assert len(await rows_of(store, job)) == 1

    async def test_a_replacement_waits_for_what_runs_but_not_for_what_never_started(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        await create(store, clock, policy=JobPolicy(overlap="replace", completions=2))
        await trigger(store, clock, "report", "1")
        (claim,) = await take(store, limit=1)
        firing = await trigger(store, clock, "report", "2")
        new = [run for run in await store.list_runs(RunFilter()) if run.fire_at == firing.fire_at]
        assert [(run.state, run.waits_for) for run in new] == [("blocked", 1), ("blocked", 1)]
        assert list(await store.cancels([claim.run_id])) == [claim.run_id]
        await store.report([failure(claim)])
        assert len(await take(store)) == 2

    async def test_a_job_stops_after_its_limit_of_firings(self, store: SqliteStore, clock: ManualClock) -> None:
        job = await create(store, clock, policy=JobPolicy(max_firings=2, misfire="all"))
        clock.advance(5 * HOUR)
        fired = await fire(store, clock, "report")
        assert fired.job is not None
        assert (fired.runs, fired.job.fired, fired.job.next_fire_at) == (2, 2, None)
        assert [row.outcome for row in await rows_of(store, job)] == ["fired", "fired"]

    async def test_a_firing_by_hand_counts_neither_as_scheduled_nor_moves_back_the_last(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        await create(store, clock)
        clock.advance(HOUR + MINUTE)
        by_hand = await trigger(store, clock, "report", "1")
        await fire(store, clock, "report")
        job = await store.get_job("default", "report")
        assert (job.fired, job.last_fire_at) == (1, by_hand.fire_at)

    async def test_firings_by_hand_at_one_instant_are_due_at_it(self, store: SqliteStore, clock: ManualClock) -> None:
        await create(store, clock)
        firings = [await trigger(store, clock, "report", str(n)) for n in range(3)]
        assert [firing.fire_at for firing in firings] == [START, START + 1, START + 2]
        assert len(await take(store)) == 3

    async def test_a_request_is_known_by_the_first_row_of_its_firing(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        await create(store, clock, policy=JobPolicy(regions=("us", "eu"), completions=2))
        first = await trigger(store, clock, "report", "1")
        assert (first.region, first.idx) == ("eu", 0)
        await finish_all_regions(store)
        again = await trigger(store, clock, "report", "1")
        assert (again.run_id, again.outcome) == (first.run_id, "succeeded")


async def finish_all_regions(store: SqliteStore) -> None:
    claims = await take(store, a_worker(regions=("eu", "us")))
    await store.report([success(claim) for claim in claims])


class TestAfter:
    async def test_a_plan_that_finds_nothing_new_only_waits(self, store: SqliteStore, clock: ManualClock) -> None:
        await create(store, clock, "load")
        job = await create(store, clock, trigger=AfterTrigger(("load",)))
        await store.edit_job(replace(job, trigger=AfterTrigger(("load",), on_failure="run")), 1)
        (fired,) = await store.fire(await plan_all(store, clock), None)
        assert (fired.applied, fired.runs) == (True, 0)
        assert fired.job is not None
        assert (fired.job.next_fire_at, fired.job.fired) == (None, 0)
        assert await rows_of(store, job) == []

    async def test_a_failed_upstream_ends_the_chain_job_by_job_each_with_its_reason(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        await create(store, clock, "extract")
        load = await create(store, clock, "load", trigger=AfterTrigger(("extract",), on_failure="fail"))
        mail = await create(store, clock, "mail", trigger=AfterTrigger(("load",)))
        alarm = await create(store, clock, "alarm", trigger=AfterTrigger(("load",), on_failure="run"))
        await trigger(store, clock, "extract", "1")
        await store.report([failure(claim) for claim in await take(store)])
        for _ in range(3):
            clock.advance(SECOND)
            await store.fire(await plan_all(store, clock), None)
        outcomes = {job.name: await rows_of(store, job) for job in (load, mail, alarm)}
        assert {name: [(row.outcome, row.reason) for row in rows] for name, rows in outcomes.items()} == {
            "load": [("failed", "upstream job extract failed")],
            "mail": [("skipped", "upstream job load failed")],
            "alarm": [("fired", "")],
        }
        assert {edge.consumed_at for edge in await store.list_edges(load.id)} != {0}

    async def test_an_instant_that_is_taken_moves_on_instead_of_being_lost(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        await create(store, clock, "load")
        job = await create(store, clock, trigger=AfterTrigger(("load",)))
        await trigger(store, clock, "load", "1")
        await store.report([success(claim) for claim in await take(store)])
        await trigger(store, clock, "report", "by hand")  # At the same instant, as the clock stands still.
        await fire(store, clock, "report")
        assert [(row.fire_at, row.kind) for row in await rows_of(store, job)] == [
            (START, "manual"),
            (START + 1, "after"),
        ]
        assert len(await take(store)) == 2

    async def test_a_new_edge_knows_how_its_upstream_ended_last(self, store: SqliteStore, clock: ManualClock) -> None:
        await create(store, clock, "load")
        firing = await trigger(store, clock, "load", "1")
        await store.report([failure(claim) for claim in await take(store)])
        job = await create(store, clock, trigger=AfterTrigger(("load",)))
        (edge,) = await store.list_edges(job.id)
        assert (edge.consumed_at, edge.latest_at, edge.latest_outcome) == (firing.fire_at, firing.fire_at, "failed")


class TestQueries:
    @pytest.mark.parametrize(
        ("topic", "name", "values", "index"),
        [
            ("jobs", "due", (START, 10), "jobs_due"),
            ("jobs", "changed", (0, 10), "jobs_changed"),
            ("jobs", "find", ("default", "a"), "MULTI-INDEX OR"),
            ("jobs", "newest_ended", ("a",), "PRIMARY KEY"),
            ("firings", "unfinished", ('["a"]',), "runs_of_job"),
            ("firings", "by_request", ("a", "b"), "firings_by_request"),
            ("firings", "list", ("a", 1, 2, 3, None), "PRIMARY KEY"),
            ("firings", "is_recorded", ("a", 1), "PRIMARY KEY"),
        ],
    )
    async def test_hot_ones_use_an_index(
        self, store: SqliteStore, topic: str, name: str, values: tuple[object, ...], index: str
    ) -> None:
        def explain(tx: Transaction) -> list[str]:
            query = load_queries("sqlite", topic)[name]
            explained = f"EXPLAIN QUERY PLAN {query}"
            return [
                row[3] for row in tx.execute(Numbered(explained) if isinstance(query, Numbered) else explained, values)
            ]

        steps = await store._db.read(explain)
        assert any(index in step for step in steps)
        # A list of values is a virtual table.
        assert not any(step.startswith("SCAN") and "VIRTUAL TABLE" not in step for step in steps)
