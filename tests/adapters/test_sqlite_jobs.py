"""Definitions and firings on SQLite: what the store suite leaves to the adapter, and the details of what it writes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from mainspring.conformance.store_samples import (
    a_job,
    a_worker,
    failure,
    finish_all,
    fire,
    success,
    take,
    trigger,
)
from mainspring.core import planning
from mainspring.core.calendar_rules import Other, Weekdays, holidays
from mainspring.core.calendars import Calendar
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from mainspring.core.model import Event, Firing, Job, JobPolicy, RunOptions, Term
from mainspring.core.planning import Plan
from mainspring.core.triggers import AfterTrigger, AtTrigger, CronTrigger, EveryTrigger
from mainspring.errors import Conflict, DependencyCycle, InvalidInput, NotFound, TermPassed
from mainspring.store import RunFilter
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.database import Transaction
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


async def told(store: SqliteStore) -> list[Event]:
    """All that was ever told."""
    await store.number_events(10_000)
    return [event for batch in await store.events_since(0, 10_000) for event in batch.events]


async def events(store: SqliteStore, *kinds: str) -> list[Event]:
    return [event for event in await told(store) if event.kind in kinds]


class TestCreating:
    async def test_a_time_that_has_passed_is_refused(self, store: SqliteStore, clock: ManualClock) -> None:
        with pytest.raises(InvalidInput, match="is not in the future"):
            await create(store, clock, trigger=AtTrigger(START))
        with pytest.raises(InvalidInput, match="never fires after"):
            await create(store, clock, trigger=CronTrigger("0 0 0 1 1 ? 2020"))

    async def test_the_store_says_when_and_nobody_else(self, store: SqliteStore, clock: ManualClock) -> None:
        job = await create(store, clock, created_at=1, updated_at=2, version=9, fired=5, next_fire_at=3, last_fire_at=4)
        assert (job.created_at, job.updated_at, job.version) == (START, START, 1)
        assert (job.fired, job.last_fire_at, job.next_fire_at) == (0, None, START + HOUR)

    async def test_an_unknown_calendar_or_upstream_is_named(self, store: SqliteStore, clock: ManualClock) -> None:
        with pytest.raises(InvalidInput, match="'easter' is not a calendar"):
            await create(store, clock, policy=JobPolicy(calendars=("easter",)))
        with pytest.raises(InvalidInput, match="'load' is not a job of namespace 'default'"):
            await create(store, clock, trigger=AfterTrigger(("load",)))
        assert await store.list_jobs("default") == []

    async def test_a_circle_is_named_by_the_names_of_its_jobs(self, store: SqliteStore, clock: ManualClock) -> None:
        first = await create(store, clock, "a")
        await create(store, clock, "b", trigger=AfterTrigger(("a",)))
        with pytest.raises(DependencyCycle, match="a -> b -> a"):
            await store.edit_job(replace(first, trigger=AfterTrigger(("b",))), 1)

    async def test_it_is_told(self, store: SqliteStore, clock: ManualClock) -> None:
        job = await create(store, clock)
        assert await told(store) == [Event("job.created", START, job_id=job.id, job="report", task=job.task)]

    async def test_policies_and_options_are_stored_without_their_defaults(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        await create(store, clock, policy=JobPolicy(overlap="forbid"), options=RunOptions(max_losses=1))
        texts = await store._db.read(lambda tx: tx.execute("SELECT policy, options FROM jobs").fetchone())
        assert texts == ('{"overlap":"forbid"}', '{"max_losses":1}')


class TestSyncing:
    async def test_a_time_that_has_passed_is_no_error_in_a_declaration(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        saved = await store.sync_jobs("films", "default", [a_job(clock, "once", AtTrigger(START - DAY))])
        assert saved.created == ("once",)
        assert (await store.get_job("default", "once")).next_fire_at is None

    async def test_many_jobs_are_declared_at_once(self, store: SqliteStore, clock: ManualClock) -> None:
        jobs = [a_job(clock, f"job{n}", HOURLY) for n in range(3_000)]
        assert len((await store.sync_jobs("films", "default", jobs)).created) == 3_000
        jobs[:500] = [replace(job, priority=1) for job in jobs[:500]]
        saved = await store.sync_jobs("films", "default", jobs[:2_000])
        assert (len(saved.updated), len(saved.unchanged), len(saved.undeclared)) == (500, 1_500, 1_000)
        number, changed = await store.changed_jobs(1)
        assert (number, len(changed)) == (2, 500)

    async def test_a_sync_that_changes_nothing_writes_nothing(self, store: SqliteStore, clock: ManualClock) -> None:
        jobs = [a_job(clock, "a", HOURLY), a_job(clock, "b", AfterTrigger(("a",)))]
        await store.sync_jobs("films", "default", jobs)
        before = await told(store), await store.changed_jobs(0)
        await store.sync_jobs("films", "default", jobs)
        assert (await told(store), await store.changed_jobs(0)) == before

    async def test_one_name_cannot_be_declared_twice(self, store: SqliteStore, clock: ManualClock) -> None:
        with pytest.raises(InvalidInput, match="'a' is declared twice"):
            await store.sync_jobs("films", "default", [a_job(clock, "a"), a_job(clock, "a", HOURLY)])

    async def test_names_of_another_app_are_all_named(self, store: SqliteStore, clock: ManualClock) -> None:
        for name in ("a", "b"):
            await create(store, clock, name, app="billing")
        with pytest.raises(Conflict, match=r"'a' \(of app 'billing'\), 'b' \(of app 'billing'\)"):
            await store.sync_jobs("films", "default", [a_job(clock, name) for name in "abc"])

    async def test_an_overdue_instant_survives_a_change_that_is_not_of_time(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        await store.sync_jobs("films", "default", [a_job(clock, "a", HOURLY)])
        clock.advance(90 * MINUTE)
        await store.sync_jobs("films", "default", [a_job(clock, "a", HOURLY, args="[1]")])
        assert (await store.get_job("default", "a")).next_fire_at == START + HOUR

    async def test_an_overdue_instant_that_a_new_trigger_gives_up_is_recorded(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        await store.sync_jobs("films", "default", [a_job(clock, "a", HOURLY)])
        clock.advance(90 * MINUTE)
        await store.sync_jobs("films", "default", [a_job(clock, "a", EveryTrigger(DAY))])
        job = await store.get_job("default", "a")
        assert job.next_fire_at == START + DAY
        assert [(row.fire_at, row.outcome) for row in await rows_of(store, job)] == [(START + HOUR, "skipped")]


class TestEditing:
    async def test_a_name_cannot_change(self, store: SqliteStore, clock: ManualClock) -> None:
        job = await create(store, clock)
        with pytest.raises(InvalidInput, match="cannot change"):
            await store.edit_job(replace(job, name="letter"), 1)

    async def test_a_job_that_is_named_like_the_id_of_another_is_not_taken_for_it(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        job = await create(store, clock)
        await create(store, clock, job.id)
        assert (await store.edit_job(replace(job, priority=1), 1)).name == "report"
        assert (await store.get_job("default", job.id)).name == job.id

    async def test_a_time_that_has_passed_is_refused_unless_it_was_there_before(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        job = await create(store, clock, trigger=AtTrigger(START + 1))
        clock.advance(HOUR)
        with pytest.raises(InvalidInput, match="is not in the future"):
            await store.edit_job(replace(job, trigger=AtTrigger(START + 2)), 1)
        assert (await store.edit_job(replace(job, priority=1), 1)).next_fire_at == START + 1

    async def test_the_same_definition_changes_nothing(self, store: SqliteStore, clock: ManualClock) -> None:
        job = await create(store, clock)
        clock.advance(SECOND)
        assert await store.edit_job(job, 1) == job

    async def test_edges_that_stay_keep_what_they_have_used(self, store: SqliteStore, clock: ManualClock) -> None:
        for name in ("a", "b"):
            await create(store, clock, name)
        job = await create(store, clock, trigger=AfterTrigger(("a",)))
        firing = await trigger(store, clock, "a", "1")
        await finish_all(store, clock)
        await fire(store, clock, "report")
        stored = await store.get_job("default", "report")
        await store.edit_job(replace(stored, trigger=AfterTrigger(("a", "b"))), stored.version)
        used = {edge.upstream: edge.consumed_at for edge in await store.list_edges(job.id)}
        assert used == {"a": firing.fire_at, "b": 0}

    async def test_what_upstreams_did_before_may_be_all_that_a_new_trigger_asks_for(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        for name in ("a", "b"):
            await create(store, clock, name)
        job = await create(store, clock, trigger=AfterTrigger(("a", "b")))
        await trigger(store, clock, "a", "1")
        await finish_all(store, clock)
        edited = await store.edit_job(replace(job, trigger=AfterTrigger(("a",))), 1)
        assert edited.next_fire_at == clock.now()
        assert (await fire(store, clock, "report")).runs == 1

    async def test_raising_max_firings_makes_a_finished_job_due_again(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        await create(store, clock, policy=JobPolicy(max_firings=1))
        clock.advance(HOUR)
        done = (await fire(store, clock, "report")).job
        assert done is not None
        assert done.next_fire_at is None
        edited = await store.edit_job(replace(done, policy=JobPolicy(max_firings=2)), 1)
        assert edited.next_fire_at == START + 2 * HOUR


class TestPausing:
    async def test_all_unknown_names_are_named(self, store: SqliteStore, clock: ManualClock) -> None:
        await create(store, clock)
        with pytest.raises(NotFound, match="'x', 'y'"):
            await store.pause_jobs("default", ["y", "report", "x"], paused=True, reason="")

    async def test_it_can_be_repeated(self, store: SqliteStore, clock: ManualClock) -> None:
        await create(store, clock)
        (first,) = await store.pause_jobs("default", ["report"], paused=True, reason="audit")
        clock.advance(SECOND)
        assert await store.pause_jobs("default", ["report"], paused=True, reason="again") == [first]
        (resumed,) = await store.pause_jobs("default", ["report"], paused=False, reason="")
        assert await store.pause_jobs("default", ["report"], paused=False, reason="") == [resumed]
        assert resumed == await store.get_job("default", "report")
        assert [event.kind for event in await told(store)] == ["job.created", "job.paused", "job.resumed"]

    async def test_what_passed_is_told_as_one_event(self, store: SqliteStore, clock: ManualClock) -> None:
        job = await create(store, clock)
        await store.pause_jobs("default", ["report"], paused=True, reason="audit")
        clock.advance(500 * HOUR)
        await store.pause_jobs("default", ["report"], paused=False, reason="")
        (event,) = await events(store, "firing.skipped")
        assert (event.count, event.fire_at, event.reason) == (500, START + HOUR, "paused: audit")
        assert sum(row.count for row in await rows_of(store, job)) == 500

    async def test_a_paused_job_can_be_fired_by_hand(self, store: SqliteStore, clock: ManualClock) -> None:
        await create(store, clock)
        await store.pause_jobs("default", ["report"], paused=True, reason="audit")
        assert (await trigger(store, clock, "report", "1")).outcome == "fired"


class TestRemoving:
    async def test_its_edges_go_with_it(self, store: SqliteStore, clock: ManualClock) -> None:
        await create(store, clock, "load")
        job = await create(store, clock, trigger=AfterTrigger(("load",)))
        await store.remove_job("default", "report")
        assert await store.list_edges(job.id) == []
        await trigger(store, clock, "load", "1")
        await finish_all(store, clock)
        assert [event.job for event in await events(store, "job.removed")] == ["report"]


class TestCalendars:
    async def test_a_calendar_that_cannot_be_read_is_refused(self, store: SqliteStore) -> None:
        with pytest.raises(InvalidInput, match="is not a known calendar"):
            await store.save_calendar("default", Calendar("all", (Other("public"),)))

    async def test_jobs_follow_a_changed_calendar_through_those_that_refer_to_it(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        weekends = Weekdays(("sat", "sun"))
        await store.save_calendar("default", Calendar("public", (weekends,)))
        await store.save_calendar("default", Calendar("all", (Other("public"),)))
        daily = await create(store, clock, trigger=CronTrigger("0 8 * * *"), policy=JobPolicy(calendars=("all",)))
        other = await create(store, clock, "other")
        assert daily.next_fire_at == parse_instant("2026-03-30T08:00Z")
        number, _ = await store.changed_jobs(0)
        await store.save_calendar("default", Calendar("public", (weekends, holidays("2026-03-30"))))
        _, (moved,) = await store.changed_jobs(number)
        assert (moved.name, moved.next_fire_at) == ("report", parse_instant("2026-03-31T08:00Z"))
        assert await store.get_job("default", "other") == other

    async def test_a_plan_made_with_the_old_calendar_is_not_applied(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
        await store.save_calendar("default", Calendar("public", (holidays("2026-12-25"),)))
        job = await create(store, clock, policy=JobPolicy(calendars=("public",)))
        clock.advance(HOUR)
        plan = planning.plan(job, clock.now(), await store.list_calendars("default"))
        await store.save_calendar("default", Calendar("public", (holidays("2026-03-28"),)))
        (fired,) = await store.fire([plan], None)
        assert not fired.applied
        assert fired.job is not None
        assert fired.job.next_fire_at == START + HOUR

    async def test_saving_it_again_changes_nothing(self, store: SqliteStore, clock: ManualClock) -> None:
        calendar = Calendar("public", (holidays("12-25"),))
        await store.save_calendar("default", calendar)
        job = await create(store, clock, policy=JobPolicy(calendars=("public",)))
        await store.save_calendar("default", calendar)
        assert await store.get_job("default", "report") == job


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

    async def test_what_fired_and_what_was_missed_is_told(self, store: SqliteStore, clock: ManualClock) -> None:
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

    async def test_a_refused_firing_is_told_with_its_reason(self, store: SqliteStore, clock: ManualClock) -> None:
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

    async def test_a_job_that_obeys_no_more_than_so_many_firings_stops(
        self, store: SqliteStore, clock: ManualClock
    ) -> None:
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
            ("jobs", "changed", (0,), "jobs_changed"),
            ("jobs", "find", ("default", "a"), "MULTI-INDEX OR"),
            ("jobs", "newest_ended", ("a",), "PRIMARY KEY"),
            ("firings", "unfinished", ("a", "b"), "runs_of_job"),
            ("firings", "by_request", ("a", "b"), "firings_by_request"),
            ("firings", "list", ("a", 1, 2), "PRIMARY KEY"),
            ("firings", "is_recorded", ("a", 1), "PRIMARY KEY"),
        ],
    )
    async def test_hot_ones_use_an_index(
        self, store: SqliteStore, topic: str, name: str, values: tuple[object, ...], index: str
    ) -> None:
        def explain(tx: Transaction) -> list[str]:
            return [row[3] for row in tx.execute(f"EXPLAIN QUERY PLAN {load_queries('sqlite', topic)[name]}", values)]

        steps = await store._db.read(explain)
        assert any(index in step for step in steps)
        assert not any(step.startswith("SCAN") for step in steps)
