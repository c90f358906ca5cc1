"""From due instants to firings: each exactly once, on time, whichever node plans, whatever is edited meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from stage import (
    START,
    FaultyStore,
    JumpingClock,
    add_job,
    at_home,
    fired_at,
    ledger,
    let_pass,
    make_planner,
    turning,
)

from mainspring import Mainspring, at, every
from mainspring.core.instants import HOUR, MILLISECOND, MINUTE, SECOND, Instant
from mainspring.core.model import Job, Worker
from mainspring.core.planning.zone_data import ZoneStep
from mainspring.core.schedules.calendar_rules import Weekdays
from mainspring.core.schedules.calendars import Calendar
from mainspring.services.scheduler import planner as planner_module
from mainspring.services.store_layers import MeasuredStore
from mainspring.store import RunFilter
from sdk_work import add_stored

SOON = 50 * MILLISECOND
"""How long before its instant a lone job may be written."""


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(), store, clock) as app:
        yield app


async def test_a_job_fires_at_each_of_its_instants(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    job = await add_job(app, "job")
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "65s")
    assert await fired_at(store, job) == [10, 20, 30, 40, 50, 60]
    assert all(0 <= row.fire_at - row.created_at <= SOON for row in await ledger(store, job)), "shortly before"


async def test_what_depends_on_what_has_ended_by_then_fires_at_its_instant_to_the_microsecond(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    job = await add_job(app, "job", overlap="forbid")
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "15s")
    assert [row.created_at - row.fire_at for row in await ledger(store, job)] == [0]


async def test_the_more_jobs_are_due_at_one_instant_the_earlier_they_are_written(
    store: Any, app: Mainspring, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_module, "BATCH", 10)
    monkeypatch.setattr(planner_module, "FIRST_COST_S", 0.01)
    jobs = [await add_job(app, f"job-{number}", "1m") for number in range(30)]
    async with turning(make_planner(store, clock)):
        await let_pass(clock, "59s")
        assert await fired_at(store, jobs[0]) == []
        await let_pass(clock, "990ms")
        assert [len(await fired_at(store, job)) for job in jobs] == [1] * 30
    assert {run.due_at for run in await store.list_runs(RunFilter())} == {START + MINUTE}, "and not due before"


async def test_what_is_due_later_than_the_horizon_is_loaded_in_time(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    job = await add_stored(app, "job", at("2026-01-01T00:10:00.5Z"), task="work")
    planner = make_planner(store, clock)
    async with turning(planner):
        await let_pass(clock, "8m")
        assert planner.next_fire_at is None
        await let_pass(clock, "3m")
    (firing,) = await ledger(store, job)
    assert firing.fire_at == START + 10 * MINUTE + SECOND // 2
    assert 0 <= firing.fire_at - firing.created_at <= SOON


async def test_a_thousand_jobs_due_at_one_instant_fire_in_one_go(
    store: Any, app: Mainspring, clock: JumpingClock
) -> None:
    jobs = [await add_job(app, f"job-{number}", "1m") for number in range(1_000)]
    line = FaultyStore(store)
    async with turning(make_planner(line, clock)):
        await let_pass(clock, "1m")
    assert line.calls["fire"] == 1
    assert [(await fired_at(store, job)) for job in jobs[::100]] == [[60]] * 10
    assert len(await store.list_runs(RunFilter(limit=10_000))) == 1_000


async def test_more_jobs_than_are_loaded_at_once_fire_on_time_without_reading_all_the_time(
    store: Any, app: Mainspring, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planner_module, "LOAD_LIMIT", 10)
    instants = [f"2026-01-01T00:{minute:02}:{second:02}Z" for minute in range(1, 4) for second in range(60)]
    jobs = [await add_stored(app, instant, at(instant), task="work") for instant in instants]
    line = FaultyStore(store)
    async with turning(make_planner(line, clock)):
        await let_pass(clock, "5m")
    leads = [row.fire_at - row.created_at for job in jobs for row in await ledger(store, job)]
    assert len(leads) == len(jobs)
    assert all(0 <= lead <= SOON for lead in leads)
    assert line.calls["due_jobs"] < 100


class TestEdits:
    """Within a second even where the hint was lost; each of these tests has no hints at all."""

    async def test_a_new_job_is_taken_over(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        planner = make_planner(store, clock)
        async with turning(planner):
            await let_pass(clock, "30s")
            job = await add_job(app, "job", "2s")
            planner.wake()  # As a node does when the store gives a hint.
            await let_pass(clock, "6s")
        assert len(await fired_at(store, job)) == 3
        assert all(0 <= row.fire_at - row.created_at <= SOON for row in await ledger(store, job))

    async def test_an_edit_whose_hint_was_lost_is_found_soon(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        async with turning(make_planner(store, clock)):
            await let_pass(clock, "30s")
            job = await add_job(app, "job", "4s")
            await let_pass(clock, "6s")
        assert len(await fired_at(store, job)) == 1
        assert all(0 <= row.fire_at - row.created_at <= SOON for row in await ledger(store, job))

    async def test_where_nothing_is_due_it_looks_at_the_clock_and_asks_for_edits_now_and_then(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        line = FaultyStore(store)
        async with turning(make_planner(line, clock)):
            await let_pass(clock, "30s")
        assert 10 <= line.calls["changed_jobs"] <= 13

    async def test_a_changed_trigger_replaces_the_old_one(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        job = await add_job(app, "job", "10s")
        async with turning(make_planner(store, clock)):
            await let_pass(clock, "15s")
            edited = Job(**{name: getattr(job, name) for name in job.__struct_fields__} | {"trigger": every("7s")})
            await store.edit_job(edited, job.version)
            await let_pass(clock, "20s")
        assert await fired_at(store, job) == [10, 21, 28, 35]

    async def test_a_paused_job_does_not_fire_and_a_resumed_one_does(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        job = await add_job(app, "job", "10s")
        async with turning(make_planner(store, clock)):
            await let_pass(clock, "12s")
            await app.jobs.pause("job")
            await let_pass(clock, "20s")
            await app.jobs.resume("job")
            await let_pass(clock, "20s")
        assert await fired_at(store, job) == [10, 40, 50]
        assert [row.outcome for row in await ledger(store, job)] == ["fired", "skipped", "skipped", "fired", "fired"]

    async def test_a_job_paused_the_moment_before_it_is_due_does_not_fire(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        job = await add_job(app, "job", "10s")
        planner = make_planner(store, clock)
        await planner.turn()
        clock.advance("10s")
        await app.jobs.pause("job")
        await planner.turn()
        assert await ledger(store, job) == []

    async def test_a_removed_job_does_not_fire(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        job, other = await add_job(app, "job"), await add_job(app, "other")
        async with turning(make_planner(store, clock)):
            await let_pass(clock, "12s")
            await store.remove_job("default", "job")
            await let_pass(clock, "20s")
        assert await fired_at(store, job) == [10]
        assert await fired_at(store, other) == [10, 20, 30]

    async def test_a_saved_calendar_counts_from_then_on(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        days = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
        await store.save_calendar("default", Calendar("closed", ()))
        job = await add_job(app, "job", "10s", calendars=["closed"])
        async with turning(make_planner(store, clock)):
            await let_pass(clock, "15s")
            await store.save_calendar("default", Calendar("closed", (Weekdays(days),)))
            await let_pass(clock, "1m")
        assert await fired_at(store, job) == [10]


class TestFaults:
    @pytest.mark.parametrize("lost", ["lose_reply", "lose_request"])
    @pytest.mark.parametrize("method", ["fire", "changed_jobs", "due_jobs"])
    async def test_a_lost_word_neither_doubles_nor_loses_a_firing(
        self, store: Any, app: Mainspring, clock: JumpingClock, method: str, lost: str
    ) -> None:
        jobs = [await add_job(app, name, period) for name, period in (("one", "10s"), ("other", "5s"), ("daily", "1d"))]
        line = FaultyStore(store)
        async with turning(make_planner(line, clock)):
            for _ in range(12):
                getattr(line, lost)(method)
                await let_pass(clock, "5s")
            await let_pass(clock, "2s")
        assert await fired_at(store, jobs[0]) == [10, 20, 30, 40, 50, 60]
        assert await fired_at(store, jobs[1]) == list(range(5, 65, 5))
        assert await fired_at(store, jobs[2]) == []

    async def test_after_an_outage_every_instant_is_accounted_for(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        job = await add_job(app, "job", "10s", misfire="all")
        line = FaultyStore(store)
        async with turning(make_planner(line, clock)):
            await let_pass(clock, "15s")
            line.is_cut = True
            await let_pass(clock, "2m")
            line.is_cut = False
            await let_pass(clock, "25s")
        assert await fired_at(store, job) == list(range(10, 170, 10))

    async def test_a_job_that_cannot_be_planned_does_not_stop_the_others(
        self, store: Any, app: Mainspring, clock: JumpingClock, caplog: pytest.LogCaptureFixture
    ) -> None:
        await store.save_calendar("default", Calendar("closed", ()))
        broken, sound = await add_job(app, "broken", calendars=["closed"]), await add_job(app, "sound")
        await store._db.write(lambda tx: tx.execute("DELETE FROM calendars"))
        async with turning(make_planner(store, clock)):
            await let_pass(clock, "35s")
            assert await fired_at(store, broken) == []
            assert await fired_at(store, sound) == [10, 20, 30]
            assert "broken" in caplog.text
            await store.save_calendar("default", Calendar("closed", ()))
            await let_pass(clock, "10s")
        assert await fired_at(store, broken) == [30, 40]

    async def test_a_planner_that_was_held_up_fires_at_once_what_came_due_meanwhile(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        jobs = [await add_job(app, f"every-{minutes}m", f"{minutes}m") for minutes in (1, 2, 5, 9)]
        planner = make_planner(store, clock)
        await planner.turn()
        clock.advance("10m")
        await planner.turn()
        assert [(await fired_at(store, job))[-1] for job in jobs] == [600, 600, 600, 540]
        assert {(await ledger(store, job))[-1].created_at for job in jobs} == {START + 10 * MINUTE}


class TestJumpsOfTheWallClock:
    async def test_after_a_jump_ahead_what_is_due_by_then_fires_at_once(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        soon, later = await add_job(app, "soon", "20m", misfire="all"), await add_job(app, "later", "90m")
        async with turning(make_planner(store, clock)):
            await let_pass(clock, "10s")
            clock.jump("1h")
            await let_pass(clock, "1s")
            assert await fired_at(store, soon) == [1200, 2400, 3600]
            assert await fired_at(store, later) == []
            await let_pass(clock, "30m")
        assert await fired_at(store, later) == [5400]

    async def test_after_a_jump_back_nothing_fires_twice_and_new_jobs_fire_on_time(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        clock.advance("2h")
        job = await add_job(app, "job", "10m")
        async with turning(make_planner(store, clock)):
            await let_pass(clock, "25m")
            before = await fired_at(store, job)
            clock.set(clock.now() - HOUR)
            new = await add_job(app, "new", "5m")
            await let_pass(clock, "20m")
            assert await fired_at(store, job) == before
            assert all(0 <= row.fire_at - row.created_at <= SOON for row in await ledger(store, new))
            assert len(await ledger(store, new)) == 4
            await let_pass(clock, "45m")
        assert Counter(await fired_at(store, job)).most_common(1)[0][1] == 1
        assert len(await fired_at(store, job)) == len(before) + 1


async def test_the_first_turn_does_not_read_jobs_that_are_far_from_due(
    store: Any, app: Mainspring, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        await add_job(app, f"yearly-{number}", "365d")
    line = FaultyStore(store)
    read: list[int] = []
    real = store.changed_jobs

    async def counted(since: int) -> tuple[int, list[Job]]:
        change, jobs = await real(since)
        read.append(len(jobs))
        return change, jobs

    monkeypatch.setattr(line, "changed_jobs", counted)
    async with turning(make_planner(line, clock)):
        await let_pass(clock, "10s")
    assert sum(read) == 0


async def test_it_sleeps_until_the_next_instant_or_a_second(store: Any, app: Mainspring, clock: JumpingClock) -> None:
    instant: Instant = START + SECOND // 4
    await app.jobs.add("job", at("2026-01-01T00:00:00.25Z"), task="work")
    planner = make_planner(store, clock)
    await planner.turn()
    assert 0.25 - SOON / SECOND <= await planner.turn() < 0.25
    assert planner.next_fire_at == instant
    clock.advance("250ms")
    assert await planner.turn() == 1.0


@pytest.mark.parametrize("reason", ["no worker knows its task", "the run before has not ended"])
async def test_firings_that_the_store_skips_are_counted_as_skipped(
    store: Any, app: Mainspring, clock: JumpingClock, reason: str
) -> None:
    unknown = reason == "no worker knows its task"
    counted = MeasuredStore(store)
    job = await add_job(app, "job", **({} if unknown else {"overlap": "forbid"}))
    async with turning(make_planner(counted, clock)):
        for _ in range(6):
            if unknown:
                await store.register(Worker(id="other", tasks=("something else",)))
            await let_pass(clock, "10s")
    outcomes = Counter(row.outcome for row in await ledger(store, job))
    assert outcomes["skipped"] > 1
    counts = counted.metrics.counts
    assert {name: counts["firings", name] for name in outcomes} == outcomes


class TestOtherZoneData:
    """It is adopted in steps: see `core.planning.zone_data`."""

    async def test_jobs_fire_on_time_between_the_steps(
        self, store: Any, app: Mainspring, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        job = await add_job(app, "job")
        line, steps = FaultyStore(store), []

        async def step(_version: str) -> ZoneStep:
            await clock.sleep(0.1)
            steps.append(store.now())
            return ZoneStep(left=len(steps) < 250)

        monkeypatch.setattr(line, "adopt_zones", step, raising=False)
        async with turning(make_planner(line, clock)):
            await let_pass(clock, "65s")
        assert len(steps) == 250
        assert await fired_at(store, job) == [10, 20, 30, 40, 50, 60]
        assert all(abs(row.fire_at - row.created_at) <= SECOND for row in await ledger(store, job))

    async def test_it_is_confirmed_now_and_then(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        line = FaultyStore(store)
        async with turning(make_planner(line, clock)):
            await let_pass(clock, "16m")
        assert line.calls["adopt_zones"] == 4

    async def test_a_step_that_fails_is_made_again(self, store: Any, app: Mainspring, clock: JumpingClock) -> None:
        line = FaultyStore(store)
        line.lose_reply("adopt_zones", 2)
        async with turning(make_planner(line, clock)):
            await let_pass(clock, "10s")
        assert line.calls["adopt_zones"] == 3

    async def test_a_job_that_cannot_be_planned_is_named(
        self, store: Any, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
    ) -> None:
        line = FaultyStore(store)

        async def step(_version: str) -> ZoneStep:
            return ZoneStep(faults=("job lost of namespace default: no such zone",))

        monkeypatch.setattr(line, "adopt_zones", step, raising=False)
        async with turning(make_planner(line, clock)):
            await let_pass(clock, "2s")
        assert "job lost of namespace default: no such zone; until it is edited" in caplog.text
