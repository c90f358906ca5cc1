"""Other zone data: fire times that are not yet due are computed anew, in short steps."""

from __future__ import annotations

from mainspring.conformance.store.samples import a_job, new_events
from mainspring.core.instants import HOUR, SECOND
from mainspring.core.model import Job
from mainspring.core.planning.plans import Plan
from mainspring.core.planning.zone_data import CONFIRM_AFTER, CONFIRMED_FOR, STEP, ZoneStep
from mainspring.core.schedules.triggers import EveryTrigger, cron
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

BERLIN = cron("0 9 * * *", tz="Europe/Berlin")
NOTHING = ZoneStep()


async def some_jobs(store: Store, clock: ManualClock, number: int) -> None:
    """Jobs whose next fire time was computed with the zone data `2026a`."""
    assert await store.adopt_zones("2026a") == NOTHING
    await store.sync_jobs("default", "default", [a_job(clock, f"job-{n:04}", BERLIN) for n in range(number)])


async def every(store: Store) -> list[Job]:
    """All jobs."""
    return await store.list_jobs("default", limit=10_000)


async def misplace(store: Store) -> None:
    """As if other data had said that all are due an hour later."""
    plans = [Plan(job, (), (job.next_fire_at or 0) + HOUR) for job in await every(store)]
    assert all(fired.applied for fired in await store.fire(plans, None))


async def due(store: Store) -> set[int | None]:
    """When jobs are due."""
    return {job.next_fire_at for job in await every(store)}


async def adopt(store: Store, version: str) -> int:
    """All steps; how many jobs moved."""
    moved = 0
    while (step := await store.adopt_zones(version)).left:
        moved += step.moved
    return moved + step.moved


class ZoneSuite:
    """Zone data is adopted once all jobs are planned with it, however often that is interrupted."""

    async def test_other_zone_data_moves_what_is_not_yet_due(self, store: Store, clock: ManualClock) -> None:
        await some_jobs(store, clock, 2)
        (right,) = await due(store)
        await misplace(store)
        assert await adopt(store, "2026a") == 0
        (wrong,) = await due(store)
        assert wrong != right
        before = {job.id: job.version for job in await every(store)}
        assert await adopt(store, "2026b") == 2
        assert await due(store) == {right}
        assert all(job.version > before[job.id] for job in await every(store)), "plans made before do not hold"
        seen = [event for event in await new_events(store) if event.kind == "job.updated"]
        assert [event.reason for event in seen] == ["zone data 2026b came in"] * 2
        assert await adopt(store, "2026b") == 0

    async def test_what_is_overdue_or_due_as_before_is_left_alone(self, store: Store, clock: ManualClock) -> None:
        await some_jobs(store, clock, 2)
        await store.sync_jobs("other", "default", [a_job(clock, "hourly", EveryTrigger(HOUR))])
        before = await every(store)
        assert await adopt(store, "2026b") == 0
        clock.advance("20h")
        assert await adopt(store, "2026c") == 0
        assert await every(store) == before

    async def test_it_is_done_in_steps_and_a_crash_between_two_loses_nothing(
        self, store: Store, clock: ManualClock
    ) -> None:
        number = STEP + 50
        await some_jobs(store, clock, number)
        (right,) = await due(store)
        await misplace(store)
        newest, _ = await store.changed_jobs(0)
        first = await store.adopt_zones("2026b")
        assert first == ZoneStep(STEP, left=True)
        assert len(await due(store)) == 2
        _, changed = await store.changed_jobs(newest)
        assert {job.next_fire_at for job in changed} == {right}, "planners learn of it"
        clock.advance(SECOND)
        assert await adopt(store, "2026b") == number - STEP, "another node goes on"
        assert await due(store) == {right}
        assert await store.adopt_zones("2026b") == NOTHING

    async def test_older_data_does_not_undo_what_planners_with_newer_data_do(
        self, store: Store, clock: ManualClock
    ) -> None:
        await some_jobs(store, clock, STEP + 50)
        await misplace(store)
        assert (await store.adopt_zones("2026c")).left
        assert await store.adopt_zones("2026b") == NOTHING
        assert await adopt(store, "2026c") == 50
        await misplace(store)
        for _ in range(5):
            clock.advance(CONFIRM_AFTER)
            assert await store.adopt_zones("2026b") == NOTHING
            assert await store.adopt_zones("2026c") == NOTHING

    async def test_older_data_is_adopted_once_no_planner_has_the_newer(self, store: Store, clock: ManualClock) -> None:
        await some_jobs(store, clock, STEP + 50)
        (right,) = await due(store)
        await misplace(store)
        assert (await store.adopt_zones("2026c")).left
        clock.advance(CONFIRMED_FOR - SECOND)
        assert await store.adopt_zones("2026b") == NOTHING
        clock.advance(SECOND)
        assert await adopt(store, "2026b") == 50, "the others are right already"
        assert await due(store) == {right}

    async def test_newer_data_does_not_wait_for_older(self, store: Store, clock: ManualClock) -> None:
        await some_jobs(store, clock, STEP + 50)
        await misplace(store)
        assert (await store.adopt_zones("2026b")).left
        assert await adopt(store, "2026c") == 50
        assert await store.adopt_zones("2026b") == NOTHING
        assert await store.adopt_zones("2026c") == NOTHING
