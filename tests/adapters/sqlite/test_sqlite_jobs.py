"""Definitions on SQLite: what the store suite leaves open, and the details of what is written."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from mainspring.conformance.store.samples import (
    a_job,
    finish_all,
    fire,
    new_events,
    trigger,
)
from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, parse_instant
from mainspring.core.model import Event, Firing, Job, JobPolicy, RunOptions
from mainspring.core.planning import declaring
from mainspring.core.planning import plans as planning
from mainspring.core.schedules.calendar_rules import Other, Weekdays, holidays
from mainspring.core.schedules.calendars import Calendar
from mainspring.core.schedules.triggers import PAST_TOLERANCE, AfterTrigger, AtTrigger, CronTrigger, EveryTrigger
from mainspring.errors import Conflict, DependencyCycle, InvalidInput, NotFound
from mainspring.stores.rows import definitions
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


async def rows_of(store: SqliteStore, job: Job) -> list[Firing]:
    """The ledger of a job, oldest first."""
    return (await store.list_firings(job.id, limit=10_000))[::-1]


async def events(store: SqliteStore, *kinds: str) -> list[Event]:
    return [event for event in await new_events(store) if event.kind in kinds]


class TestCreating:
    async def test_a_time_that_has_passed_is_refused(self, store: SqliteStore, clock: ManualClock) -> None:
        with pytest.raises(InvalidInput, match="is not in the future"):
            await create(store, clock, trigger=AtTrigger(START - PAST_TOLERANCE - 1))
        with pytest.raises(InvalidInput, match="never fires after"):
            await create(store, clock, trigger=CronTrigger("0 0 0 1 1 ? 2020"))
        with pytest.raises(InvalidInput, match=r"end_at: .* is not in the future"):
            await create(store, clock, policy=JobPolicy(end_at=START - PAST_TOLERANCE - 1))

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

    async def test_it_leaves_an_event(self, store: SqliteStore, clock: ManualClock) -> None:
        job = await create(store, clock)
        assert await new_events(store) == [Event("job.created", START, job_id=job.id, job="report", task=job.task)]

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
        number, changed = await store.changed_jobs(3)
        assert (number, len(changed)) == (4, 500), "three pages were created, one was changed"

    async def test_a_sync_that_changes_nothing_writes_nothing(self, store: SqliteStore, clock: ManualClock) -> None:
        jobs = [a_job(clock, "a", HOURLY), a_job(clock, "b", AfterTrigger(("a",)))]
        await store.sync_jobs("films", "default", jobs)
        await new_events(store)
        before = await store.changed_jobs(0)
        await store.sync_jobs("films", "default", jobs)
        assert (await new_events(store), await store.changed_jobs(0)) == ([], before)

    async def test_one_name_cannot_be_declared_twice(self, store: SqliteStore, clock: ManualClock) -> None:
        with pytest.raises(InvalidInput, match="'a' is declared twice"):
            await store.sync_jobs("films", "default", [a_job(clock, "a"), a_job(clock, "a", HOURLY)])

    async def test_names_of_another_app_are_all_named(self, store: SqliteStore, clock: ManualClock) -> None:
        for name in ("a", "b"):
            await create(store, clock, name, app="billing")
        with pytest.raises(Conflict, match=r"'a' \(of app 'billing'\), 'b' \(of app 'billing'\)") as refusal:
            await store.sync_jobs("films", "default", [a_job(clock, name) for name in "abc"])
        former = 'keep it (Mainspring(name="billing")), or remove the jobs first (`mainspring job remove a`)'
        assert former in str(refusal.value)

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
        with pytest.raises(InvalidInput, match="is not in the future"):
            await store.edit_job(replace(job, policy=JobPolicy(end_at=START + 2)), 1)
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
        assert [event.kind for event in await new_events(store)] == ["job.created", "job.paused", "job.resumed"]

    async def test_what_passed_is_reported_as_one_event(self, store: SqliteStore, clock: ManualClock) -> None:
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


class TestSyncingManyJobs:
    async def test_no_transaction_is_about_more_than_a_page_of_jobs(
        self, store: SqliteStore, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A program may declare more jobs than fit into one transaction, or into its memory twice."""
        for module in (declaring, definitions):
            monkeypatch.setattr(module, "PAGE", 10)
        monkeypatch.setattr(definitions, "NAMES", 7)
        sizes: dict[str, list[int]] = {"_look": [], "_write": [], "_of_code": []}
        for name, counted in sizes.items():
            monkeypatch.setattr(definitions._Sync, name, spied(getattr(definitions._Sync, name), counted))

        jobs = [a_job(clock, f"j{number:02}", HOURLY) for number in range(31)]
        saved = await store.sync_jobs("app", "default", jobs, source="work")
        assert len(saved.created) == 31
        assert sizes["_look"] == sizes["_write"] == [10, 10, 10, 1]
        sizes["_of_code"].clear()
        assert len((await store.sync_jobs("app", "default", [], source="work")).undeclared) == 31
        assert max(sizes["_of_code"]) == 7


def spied(method: Any, counted: list[int]) -> Any:
    """The method, with a note of how many jobs it was given, or found if it was given none."""

    async def spy(self: object, subject: Any, *args: Any, **words: Any) -> Any:
        found = await method(self, subject, *args, **words)
        counted.append(len(subject if isinstance(subject, Sequence) else found[0]))
        return found

    return spy
