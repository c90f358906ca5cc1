"""What READ COMMITTED allows and the store does not: two transactions at once, in a fixed order of steps.

One is held open after its work; the other begins, and waits for it, or not; then the first is committed. Each test
fails if the lock that it is about is taken away.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import asyncpg
import pytest

from mainspring.conformance.store.samples import (
    TTL,
    a_job,
    a_run,
    a_worker,
    fire,
    gated,
    in_line,
    seen,
    states,
    submit,
    success,
    take,
    take_one,
)
from mainspring.core.instants import HOUR
from mainspring.core.model import JobPolicy
from mainspring.core.schedules.triggers import AfterTrigger, EveryTrigger
from mainspring.core.states import PENDING
from mainspring.stores.postgres.claims import claim as claims
from mainspring.stores.postgres.ends import recovery, reports
from mainspring.stores.postgres.ends.endings import cancel_run
from mainspring.stores.postgres.history.days import day_of
from mainspring.stores.postgres.history.partitions import make_partition
from mainspring.stores.postgres.server.database import Transaction
from mainspring.stores.postgres.store import PostgresStore
from mainspring.stores.postgres.submissions import submit as submitting
from mainspring.stores.sql import load_queries
from mainspring.testing.clock import ManualClock

T = TypeVar("T")
PATIENCE_S = 20.0

_WAITING = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"


class Halting:
    """A connection that stops before a certain statement until the test lets it go on."""

    def __init__(self, connection: asyncpg.Connection, before: str | None) -> None:
        self._connection = connection
        self._before = before
        self.arrived, self.go_on = asyncio.Event(), asyncio.Event()

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        method = getattr(self._connection, name)

        async def call(query: str, *args: object) -> Any:
            if query == self._before:
                self.arrived.set()
                await self.go_on.wait()
            return await method(query, *args)

        return call


class First:
    """A transaction of the test's own, which lasts until the test ends it. If it and another wait for each other, it is
    the one that is undone."""

    def __init__(self, connection: asyncpg.Connection, watcher: asyncpg.Connection, clock: ManualClock) -> None:
        self._connection = connection
        self._watcher = watcher
        self._clock = clock
        self._halting = Halting(connection, None)
        self._work: asyncio.Task[Any] | None = None

    async def does(self, work: Callable[[Transaction], Awaitable[T]], before: str | None = None) -> T | None:
        """Do something, and leave it uncommitted; or, if a statement is given, stop before that one."""
        await self._connection.execute("BEGIN; SET LOCAL deadlock_timeout = '10ms'")
        self._halting = Halting(self._connection, before)
        tx = Transaction(self._halting, self._clock.now(), self._clock.now())
        self._work = asyncio.ensure_future(work(tx))
        if before is None:
            result: T = await self._work
            return result
        async with asyncio.timeout(PATIENCE_S):
            await self._halting.arrived.wait()
        return None

    @asynccontextmanager
    async def before(self, second: Awaitable[T]) -> AsyncIterator[asyncio.Task[T]]:
        """While the first transaction is open, a second one does its work, or waits: until then; then the first ends
        as the test says, and the second goes on."""

        async def go() -> T:
            return await second

        task = asyncio.create_task(go())
        async with asyncio.timeout(PATIENCE_S):
            while not task.done() and not await self._watcher.fetchval(_WAITING):
                await asyncio.sleep(0.005)
        yield task
        async with asyncio.timeout(PATIENCE_S):
            await task

    async def commits(self) -> None:
        """Go on, if it had stopped, and commit."""
        self._halting.go_on.set()
        if self._work is not None:
            async with asyncio.timeout(PATIENCE_S):
                await self._work
        await self._connection.execute("COMMIT")

    async def gives_up(self) -> None:
        """Undo it."""
        await self._connection.execute("ROLLBACK")


@pytest.fixture
async def first(postgres_url: str, postgres: PostgresStore, clock: ManualClock) -> AsyncIterator[First]:
    connections = [await asyncpg.connect(postgres_url) for _ in range(2)]
    yield First(connections[0], connections[1], clock)
    for connection in connections:
        await connection.close()


def reporting(*claims: Any) -> Callable[[Transaction], Awaitable[Any]]:
    """Report the success of claims."""
    return lambda tx: reports._report(tx, [success(claim) for claim in claims])


async def test_two_completions_free_one_dependant(postgres: PostgresStore, clock: ManualClock, first: First) -> None:
    one, two = a_run(clock), a_run(clock)
    last = a_run(clock, after=(one.id, two.id))
    await submit(postgres, one, two, last)
    claim_one, claim_two = await take(postgres)
    await first.does(reporting(claim_one))
    async with first.before(postgres.report([success(claim_two)])):
        await first.commits()
    assert await states(postgres, last) == ["pending"]


async def test_a_run_that_waits_for_any_of_two_is_freed_once(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    one, two, three = a_run(clock), a_run(clock), a_run(clock, due_at=clock.now() + HOUR)
    head = in_line(clock, "key:a", due_at=clock.now() + HOUR)
    last = in_line(clock, "key:a", after=(one.id, two.id, three.id), when="any_finished")
    await submit(postgres, one, two, three, head, last)
    claim_one, claim_two = await take(postgres)
    await first.does(reporting(claim_one), before=load_queries("postgres", "endings")["drop_edges"])
    async with first.before(postgres.report([success(claim_two)])):
        await first.commits()
    stored = await seen(postgres, last)
    assert (stored.state, stored.waits_for) == ("blocked", 1)
    assert await postgres.upstream_runs(last.id) == [head.id]


async def test_a_run_submitted_while_what_it_waits_for_ends_is_not_forgotten(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    upstream = a_run(clock)
    await submit(postgres, upstream)
    claim = await take_one(postgres)
    waiting = a_run(clock, after=(upstream.id,))
    await first.does(reporting(claim))
    async with first.before(postgres.submit([waiting])):
        await first.commits()
    assert await states(postgres, waiting) == ["pending"]


async def test_a_run_that_ends_while_another_begins_to_wait_for_it_frees_that_one(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    upstream = a_run(clock)
    await submit(postgres, upstream)
    claim = await take_one(postgres)
    waiting = a_run(clock, after=(upstream.id,))
    await first.does(lambda tx: submitting.submit(tx, [waiting]))
    async with first.before(postgres.report([success(claim)])):
        await first.commits()
    assert await states(postgres, waiting) == ["pending"]


async def test_two_runs_of_one_firing_that_end_at_once_reach_the_job_that_fires_after(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    policy = JobPolicy(completions=2)
    await postgres.create_job(a_job(clock, "parts", EveryTrigger(HOUR), policy=policy))
    await postgres.create_job(a_job(clock, "whole", AfterTrigger(("parts",))))
    clock.advance(HOUR)
    await fire(postgres, clock, "parts")
    claim_one, claim_two = await take(postgres)
    await first.does(reporting(claim_one))
    async with first.before(postgres.report([success(claim_two)])):
        await first.commits()
    assert [job.name for job in await postgres.due_jobs(clock.now(), 10)] == ["whole"]


async def test_two_claimers_at_one_gate_do_not_both_enter(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    one, two = gated(clock, "g"), gated(clock, "g")
    await submit(postgres, one, two)
    other = claims.Claims(postgres._db)
    worker = a_worker("worker-1")

    async def claim_one(tx: Transaction) -> None:
        look = await other._look(tx, worker, 1, "strict")
        judgement = await claims.judge(tx, "default", look.rows, 1, first=True)
        await claims.take(tx, worker, judgement.chosen, TTL)

    await first.does(claim_one)
    async with first.before(take(postgres, a_worker("worker-2"))) as second:
        await first.commits()
    assert second.result() == []
    assert await states(postgres, one, two) == ["running", "blocked"]
    assert await postgres.gate_holders("default", "g") == (1, 1)


async def test_a_run_that_begins_to_wait_at_a_gate_while_it_is_freed_is_let_in(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    one, two = gated(clock, "g"), gated(clock, "g")
    await submit(postgres, one)
    claim = await take_one(postgres)
    await submit(postgres, two)
    await first.does(reporting(claim))
    async with first.before(take(postgres)) as second:
        await first.commits()
    assert [taken.run_id for taken in second.result()] == [two.id]


async def test_the_order_of_a_line_is_that_of_commits(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    one, two = in_line(clock, "key:a"), in_line(clock, "key:a")
    await first.does(lambda tx: submitting.submit(tx, [one]))
    async with first.before(postgres.submit([two])):
        await first.commits()
    assert await states(postgres, one, two) == ["pending", "blocked"]


async def test_a_run_that_joins_a_line_while_its_head_leaves_is_let_in(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    head, following = in_line(clock, "key:a"), in_line(clock, "key:a")
    await submit(postgres, head)
    claim = await take_one(postgres)
    await first.does(reporting(claim))
    async with first.before(postgres.submit([following])):
        await first.commits()
    assert await states(postgres, following) == ["pending"]


async def test_a_head_that_leaves_while_another_joins_lets_it_in(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    head, following = in_line(clock, "key:a"), in_line(clock, "key:a")
    await submit(postgres, head)
    claim = await take_one(postgres)
    await first.does(lambda tx: submitting.submit(tx, [following]))
    async with first.before(postgres.report([success(claim)])):
        await first.commits()
    assert await states(postgres, following) == ["pending"]


async def test_of_two_callers_that_bring_one_idempotency_key_the_second_hears_the_first_answer(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    one, two = a_run(clock, idempotency_key="order-1"), a_run(clock, idempotency_key="order-1")
    await first.does(lambda tx: submitting.submit(tx, [one]))
    async with first.before(postgres.submit([two])) as second:
        await first.commits()
    assert second.result() == [one.id]
    assert (await postgres.count_runs("default"))["pending"] == 1


async def test_an_idempotency_key_whose_first_bringer_gave_up_is_the_second_ones(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    one, two = a_run(clock, idempotency_key="order-1"), a_run(clock, idempotency_key="order-1")
    await first.does(lambda tx: submitting.submit(tx, [one]))
    async with first.before(postgres.submit([two])) as second:
        await first.gives_up()
    assert second.result() == [two.id]
    assert await states(postgres, two) == ["pending"]


@pytest.mark.parametrize("neighbours", [0, 3], ids=["alone", "among others"])
async def test_a_run_that_ends_while_it_is_submitted_again_is_not_revived(
    postgres: PostgresStore, clock: ManualClock, first: First, neighbours: int
) -> None:
    run = a_run(clock)
    await submit(postgres, run)
    claim = await take_one(postgres)
    await first.does(reporting(claim))
    others = [a_run(clock, due_at=clock.now() + HOUR) for _ in range(neighbours)]
    async with first.before(postgres.submit([run, *others])):
        await first.commits()
    assert await states(postgres, run, *others) == ["succeeded"] + ["pending"] * neighbours
    assert await take(postgres) == []


async def test_a_report_that_comes_while_its_claim_is_given_up_is_refused(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    run = a_run(clock)
    await submit(postgres, run)
    claim = await take_one(postgres)
    clock.advance(TTL + 1)
    await first.does(lambda tx: recovery._recover_lost(tx, 10))
    async with first.before(postgres.report([success(claim)])) as second:
        await first.commits()
    assert second.result() == ["stale"]
    assert await states(postgres, run) == ["pending"]


async def test_a_claim_that_is_renewed_while_it_is_looked_at_is_not_lost(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    run = a_run(clock)
    await submit(postgres, run)
    claim = await take_one(postgres)
    clock.advance(TTL + 1)
    await first.does(lambda tx: tx.run("UPDATE mainspring.runs SET claimed_until = $1", clock.now() + TTL))
    async with first.before(postgres.recover(HOUR, 10)) as second:
        await first.commits()
    assert second.result().lost == 0
    assert (await seen(postgres, run)).token == claim.token


async def test_two_callers_that_recover_at_once_count_a_loss_once(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    run = a_run(clock)
    await submit(postgres, run)
    await take_one(postgres)
    clock.advance(TTL + 1)
    assert await first.does(lambda tx: recovery._recover_lost(tx, 10)) == [PENDING]
    async with first.before(postgres.recover(HOUR, 10)) as second:
        await first.commits()
    assert second.result().lost == 0
    assert (await seen(postgres, run)).losses == 1


async def test_a_run_that_is_claimed_while_somebody_cancels_it_is_asked_to_stop(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    run = a_run(clock)
    await submit(postgres, run)
    other = claims.Claims(postgres._db)

    async def claim_it(tx: Transaction) -> None:
        look = await other._look(tx, a_worker(), 1, "strict")
        await claims.take(tx, a_worker(), look.rows, TTL)

    await first.does(claim_it)
    async with first.before(postgres.request_cancel("default", run.id, "not needed")) as second:
        await first.commits()
    assert second.result() == "running"
    assert list(await postgres.cancels([run.id])) == [run.id]


async def test_a_run_that_is_cancelled_while_its_gate_is_freed_does_not_take_the_place_along(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    runs = [gated(clock, "g") for _ in range(3)]
    await postgres.submit(runs)
    claim = await take_one(postgres)
    await take(postgres)
    stop = load_queries("postgres", "endings")["leave_gates"]
    await first.does(lambda tx: cancel_run(tx, runs[1].id, "not needed"), before=stop)
    async with first.before(postgres.report([success(claim)])):
        await first.commits()
    assert (await take_one(postgres)).run_id == runs[2].id


async def test_a_run_that_ends_while_its_day_gets_a_partition_is_kept(
    postgres: PostgresStore, clock: ManualClock, first: First
) -> None:
    run = a_run(clock)
    await submit(postgres, run)
    claim = await take_one(postgres)
    await first.does(lambda tx: make_partition(tx, "history", day_of(clock.now())))
    async with first.before(postgres.report([success(claim)])) as report:
        assert not report.done()
        await first.commits()
    assert await states(postgres, run) == ["succeeded"]
