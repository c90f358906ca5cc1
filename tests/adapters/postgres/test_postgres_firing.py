"""Firing and editing jobs at once, from two connections, in a fixed order of steps. Each test fails if the lock that it
is about is taken away."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest
from test_postgres_races import First, first

from mainspring.conformance.store.samples import a_job, new_id
from mainspring.core.instants import HOUR, MINUTE, SECOND
from mainspring.core.model import Event, Job, JobPolicy, Term
from mainspring.core.planning import plans as planning
from mainspring.core.planning.plans import make_runs
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.errors import Conflict, TermPassed
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.postgres.store import PostgresStore
from mainspring.stores.sql import load_queries
from mainspring.testing.clock import ManualClock

__all__ = ["first"]

Work = Callable[[Transaction], Awaitable[Any]]


@pytest.fixture
async def job(postgres: PostgresStore, clock: ManualClock) -> Job:
    """An hourly job that is due."""
    job = await postgres.create_job(a_job(clock, "hourly", EveryTrigger(HOUR), policy=JobPolicy(overlap="forbid")))
    clock.advance(HOUR)
    return job


def firing(store: PostgresStore, job: Job, clock: ManualClock, term: Term | None = None) -> Work:
    """Fire a job."""
    return lambda tx: store._fire(tx, [planning.plan(job, clock.now(), {})], term)


def telling(kind: str) -> Work:
    """Say something."""

    async def work(tx: Transaction) -> None:
        tx.events.append(Event(kind, tx.now))
        await tx.append_events()
        tx.events.clear()

    return work


async def reported(store: PostgresStore) -> list[str]:
    return [event.kind for batch in await store.events_since(0, 100) for event in batch.events]


class TestTwoWhoFireOneJob:
    async def test_the_second_sees_that_it_has_fired(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        await first.does(firing(postgres, job, clock))
        async with first.before(postgres.fire([planning.plan(job, clock.now(), {})], None)) as second:
            await first.commits()
        (answer,) = second.result()
        assert not answer.applied
        assert answer.job is not None
        assert answer.job.next_fire_at == clock.now() + HOUR
        assert [row.outcome for row in await postgres.list_firings(job.id)] == ["fired"]

    async def test_the_second_fires_if_the_first_gave_up(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        await first.does(firing(postgres, job, clock))
        async with first.before(postgres.fire([planning.plan(job, clock.now(), {})], None)) as second:
            await first.gives_up()
        assert second.result()[0].applied

    async def test_of_many_jobs_those_are_fired_that_the_other_did_not(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        others = [await postgres.create_job(a_job(clock, f"j{n}", EveryTrigger(MINUTE))) for n in range(3)]
        clock.advance(MINUTE)
        await first.does(firing(postgres, others[1], clock))
        due = [planning.plan(each, clock.now(), {}) for each in others]
        async with first.before(postgres.fire(due, None)) as second:
            await first.commits()
        assert [answer.applied for answer in second.result()] == [True, False, True]


class TestATermThatEnds:
    async def test_waits_for_what_was_begun_under_it(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        old = await postgres.begin_term("scheduler", "a")
        await first.does(firing(postgres, job, clock, old))
        async with first.before(postgres.begin_term("scheduler", "b")) as taking_over:
            assert not taking_over.done()
            await first.commits()
        assert taking_over.result().number > old.number
        assert [row.outcome for row in await postgres.list_firings(job.id)] == ["fired"]

    async def test_while_somebody_fires_under_it_voids_the_firing(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        old = await postgres.begin_term("scheduler", "a")
        await first.does(
            lambda tx: tx.run("UPDATE mainspring.terms SET number = number + 1, owner = 'b' WHERE name = 'scheduler'")
        )
        with pytest.raises(TermPassed):
            async with first.before(postgres.fire([planning.plan(job, clock.now(), {})], old)):
                await first.commits()
        assert await postgres.list_firings(job.id) == []
        assert (await postgres.get_job("default", "hourly")).next_fire_at == job.next_fire_at


class TestAnEdit:
    async def test_during_a_firing_goes_on_from_where_that_led(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        await first.does(firing(postgres, job, clock))
        async with first.before(postgres.edit_job(msgspec.structs.replace(job, priority=1), job.version)):
            await first.commits()
        edited = await postgres.get_job("default", "hourly")
        assert (edited.fired, edited.last_fire_at, edited.next_fire_at) == (1, clock.now(), clock.now() + HOUR)
        assert [row.outcome for row in await postgres.list_firings(job.id)] == ["fired"]

    async def test_of_the_code_during_a_firing_does_so_too(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        await first.does(firing(postgres, job, clock))
        declared = msgspec.structs.replace(job, priority=1)
        async with first.before(postgres.sync_jobs(job.app, job.namespace, [declared])) as second:
            await first.commits()
        assert second.result().updated == ("hourly",)
        assert (await postgres.get_job("default", "hourly")).next_fire_at == clock.now() + HOUR
        assert [row.outcome for row in await postgres.list_firings(job.id)] == ["fired"]

    async def test_before_a_firing_voids_its_plan(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        await first.does(lambda tx: postgres._edit(tx, msgspec.structs.replace(job, priority=1), job.version))
        async with first.before(postgres.fire([planning.plan(job, clock.now(), {})], None)) as second:
            await first.commits()
        (answer,) = second.result()
        assert not answer.applied
        assert answer.job is not None
        assert answer.job.priority == 1

    async def test_that_pauses_voids_the_plan_of_a_firing(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        await first.does(lambda tx: postgres._set_paused(tx, "default", ["hourly"], "holidays", paused=True))
        async with first.before(postgres.fire([planning.plan(job, clock.now(), {})], None)) as second:
            await first.commits()
        assert [(answer.applied, answer.job) for answer in second.result()] == [(False, None)]
        assert await postgres.list_firings(job.id) == []

    async def test_is_seen_by_planners_after_those_that_were_numbered_before_it(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        other = await postgres.create_job(a_job(clock, "other", EveryTrigger(HOUR)))
        seen, _ = await postgres.changed_jobs(0)
        await first.does(lambda tx: postgres._edit(tx, msgspec.structs.replace(job, priority=1), job.version))
        later = postgres.edit_job(msgspec.structs.replace(other, priority=1), other.version)
        async with first.before(later) as second:
            assert not second.done()
            assert await postgres.changed_jobs(seen) == (seen, [])
            await first.commits()
        newest, changed = await postgres.changed_jobs(seen)
        assert ([each.name for each in changed], newest) == (["hourly", "other"], seen + 2)

    async def test_that_creates_a_name_which_another_just_took_is_a_conflict(
        self, postgres: PostgresStore, clock: ManualClock, first: First
    ) -> None:
        await first.does(lambda tx: postgres._create(tx, a_job(clock, "one", EveryTrigger(HOUR))))
        with pytest.raises(Conflict, match="already"):
            async with first.before(postgres.create_job(a_job(clock, "one", EveryTrigger(HOUR)))):
                await first.commits()


class TestAFiringByHand:
    def by_hand(self, postgres: PostgresStore, clock: ManualClock, request: str) -> Work:
        return lambda tx: postgres._trigger(
            tx, "default", "hourly", request, lambda job, at: make_runs(job, at, clock.now())
        )

    async def test_is_one_for_one_request_however_often_it_is_sent(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        request = new_id(clock)
        made = await first.does(self.by_hand(postgres, clock, request))
        again = postgres.trigger("default", "hourly", request, lambda job, at: make_runs(job, at, clock.now()))
        async with first.before(again) as second:
            await first.commits()
        assert second.result() == made

    async def test_that_must_not_overlap_sees_one_that_is_being_written(
        self, postgres: PostgresStore, clock: ManualClock, first: First, job: Job
    ) -> None:
        await first.does(firing(postgres, job, clock))
        by_hand = postgres.trigger("default", "hourly", "r", lambda job, at: make_runs(job, at, clock.now()))
        async with first.before(by_hand) as second:
            await first.commits()
        assert second.result().outcome == "skipped"


class TestPositionsOfEvents:
    async def test_are_given_to_a_late_commit_later(self, postgres: PostgresStore, first: First) -> None:
        await first.does(telling("late"))
        await postgres.record_events([Event("early", 0)])
        assert await postgres.number_events(10) == 1
        assert await reported(postgres) == ["early"]
        await first.commits()
        assert await postgres.number_events(10) == 1
        assert await reported(postgres) == ["early", "late"]

    async def test_are_given_by_one_at_a_time(self, postgres: PostgresStore, clock: ManualClock, first: First) -> None:
        await postgres.record_events([Event("one", clock.now()), Event("two", clock.now())])

        async def number(tx: Transaction) -> None:
            assert await tx.fetchval(load_queries("postgres", "events")["number"], 10) == 1

        await first.does(number)
        async with first.before(postgres.number_events(10)) as second:
            await first.commits()
        assert second.result() == 0
        assert [batch.position for batch in await postgres.events_since(0, 10)] == [1]


async def test_a_lease_that_expires_while_two_want_it_goes_to_one(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    held = await postgres.acquire("scheduler", "old", SECOND)
    assert held is not None
    clock.advance(2 * SECOND)
    take = "UPDATE mainspring.leases SET owner = 'a', token = token + 1, expires_at = $1 WHERE name = 'scheduler'"
    await first.does(lambda tx: tx.run(take, clock.now() + SECOND))
    async with first.before(postgres.acquire("scheduler", "b", SECOND)) as second:
        await first.commits()
    assert second.result() is None
