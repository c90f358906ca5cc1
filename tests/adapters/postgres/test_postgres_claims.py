"""Claims on PostgreSQL: several programs at once, and a table full of what is dead."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Sequence

import pytest

from mainspring.conformance.store.samples import TTL, a_run, a_worker, gated, in_line, submit, success, take
from mainspring.core.instants import HOUR, SECOND
from mainspring.stores.postgres.claims.claim import FULL_LOOK_EVERY, SLOW, IndexRange, Look, Marks, _places
from mainspring.stores.postgres.server.database import Limits
from mainspring.stores.postgres.server.pool import Bounds
from mainspring.stores.postgres.store import PostgresStore
from mainspring.stores.sql import load_queries
from mainspring.testing.clock import ManualClock


@pytest.fixture
async def stores(postgres_url: str, clock: ManualClock) -> AsyncIterator[list[PostgresStore]]:
    """Programs that share nothing but the database."""
    stores = [await PostgresStore.open(postgres_url, clock, given_time=True) for _ in range(3)]
    yield stores
    for store in stores:
        await store.close()


async def test_programs_that_claim_at_once_share_the_runs_and_keep_gates_and_lines(
    stores: list[PostgresStore], clock: ManualClock
) -> None:
    runs = [a_run(clock, priority=1 + n % 10) for n in range(60)]
    runs += [gated(clock, "g", capacity=3) for _ in range(30)]
    runs += [in_line(clock, f"key:{n % 4}") for n in range(20)]
    await stores[0].submit(runs)
    lines = {run.id: run.lines[0].name for run in runs if run.lines}
    started: Counter[str] = Counter()
    running: Counter[str] = Counter()
    most: Counter[str] = Counter()

    async def work(store: PostgresStore, name: str) -> None:
        while sum(started.values()) < len(runs):
            claims = await store.claim(a_worker(name), 4, TTL, "strict")
            started.update(claim.run_id for claim in claims)
            running.update(lines.get(claim.run_id, "") for claim in claims)
            for line, count in running.items():
                most[line] = max(most[line], count)
            most["g"] = max(most["g"], (await store.gate_holders("default", "g"))[0])
            running.subtract(lines.get(claim.run_id, "") for claim in claims)
            assert await store.report([success(claim) for claim in claims]) == ["accepted"] * len(claims)

    workers = (work(store, f"worker-{n}-{k}") for n, store in enumerate(stores) for k in range(2))
    await asyncio.wait_for(asyncio.gather(*workers), 120)
    assert started == Counter(run.id for run in runs)
    assert most["g"] <= 3
    assert max(count for line, count in most.items() if line.startswith("key:")) == 1


async def test_claims_and_ends_of_single_runs_are_planned_once(postgres_url: str, clock: ManualClock) -> None:
    """A plan for each execution would take longer than the execution."""
    limits = Limits(pool=Bounds(size=1))
    store = await PostgresStore.open(postgres_url, clock, limits=limits, given_time=True)
    try:
        runs = [a_run(clock) for _ in range(40)]
        await store.submit(runs)
        for run in runs:
            claims = await store.claim_these(a_worker("w"), [(run.id, 0)], TTL)
            assert await store.report([success(claim) for claim in claims]) == ["accepted"]
        question = "SELECT statement, generic_plans FROM pg_prepared_statements"
        planned = dict(await store._db.read(lambda tx: tx.fetch(question)))
        for file, name in (("dispatch", "claim_delivered"), ("endings", "end_plain")):
            assert planned[load_queries("postgres", file)[name]] >= len(runs) - 10, name
    finally:
        await store.close()


async def test_runs_that_need_care_and_others_are_claimed_in_one_order(
    postgres: PostgresStore, clock: ManualClock
) -> None:
    for _ in range(2):  # The second time, the store knows that there are such.
        runs = [
            a_run(clock, priority=1),
            gated(clock, "g", capacity=1, priority=2),
            a_run(clock, priority=3, expires_at=clock.now() + HOUR),
            gated(clock, "g", capacity=1, priority=4),
            a_run(clock, priority=5),
        ]
        await postgres.submit(runs)
        claims = await take(postgres, limit=4)
        assert [claim.run_id for claim in claims] == [runs[n].id for n in (0, 1, 2, 4)]
        await postgres.report([success(claim) for claim in claims])
        rest = await take(postgres)
        assert [claim.run_id for claim in rest] == [runs[3].id]
        await postgres.report([success(claim) for claim in rest])
        assert await take(postgres) == []


async def test_while_looks_from_the_start_are_slow_nothing_is_missed_for_longer_than_a_second(
    postgres: PostgresStore, clock: ManualClock
) -> None:
    await postgres.submit([a_run(clock) for _ in range(3)])
    assert len(await take(postgres, limit=2)) == 2
    make_slow(postgres, clock)
    overlooked = a_run(clock, due_at=clock.now() - HOUR)
    await submit(postgres, overlooked)
    assert overlooked.id not in [claim.run_id for claim in await take(postgres)]
    clock.advance(FULL_LOOK_EVERY + SLOW + 1)
    assert [claim.run_id for claim in await take(postgres)] == [overlooked.id]


async def test_while_looks_from_the_start_are_slow_what_is_new_is_found_at_once(
    postgres: PostgresStore, clock: ManualClock
) -> None:
    await postgres.submit([a_run(clock) for _ in range(3)])
    await take(postgres)
    make_slow(postgres, clock)
    for priority in (1, 5, 10):
        new = a_run(clock, priority=priority)
        await submit(postgres, new)
        assert await postgres.next_due(a_worker()) == new.due_at
        assert [claim.run_id for claim in await take(postgres)] == [new.id]


def make_slow(store: PostgresStore, clock: ManualClock) -> None:
    """The last look from the start took long."""
    marks = store._claims.marks
    marks.note(Look(_places(a_worker()), [], True, False, clock.now(), SLOW + 1), ())
    clock.advance(SLOW + 1)


PLACE = IndexRange("default", "default", "default", 5, ("encode",))


def a_look(
    rows: Sequence[tuple[str, int, int]], *, now: int = 10 * SECOND, took: int = SLOW + 1, full: bool = True
) -> Look:
    """A look that found runs (id, due time, seq) in one place."""
    found = [{"id": run_id, "due_at": due_at, "seq": seq, "number": 1} for run_id, due_at, seq in rows]
    return Look([PLACE], found, full, False, now, took)


def test_looks_begin_at_the_start_unless_the_last_such_look_was_slow() -> None:
    marks = Marks()
    marks.note(a_look([("a", 1, 1)], took=SLOW), {"a"})
    assert marks.of([PLACE], 11 * SECOND) is None
    marks.note(a_look([("a", 1, 1)], took=SLOW * 2), {"a"})
    assert marks.of([PLACE], 10 * SECOND + SLOW * 2) == [(1, 1)]
    assert marks.of([PLACE], 10 * SECOND + SLOW * 2 + FULL_LOOK_EVERY) is None


def test_a_mark_stays_before_what_was_found_and_left() -> None:
    marks = Marks()
    marks.note(a_look([("a", 1, 1), ("b", 2, 2), ("c", 3, 3)], took=SLOW * 2), {"a", "c"})
    assert marks.of([PLACE], 10 * SECOND + SLOW * 2) == [(1, 1)]


def test_a_slow_look_from_a_mark_does_not_put_off_the_one_from_the_start() -> None:
    marks = Marks()
    marks.note(a_look([("a", 1, 1)], took=SLOW * 2), {"a"})
    marks.note(a_look([("b", 2, 2)], now=10 * SECOND + FULL_LOOK_EVERY, took=HOUR, full=False), {"b"})
    assert marks.of([PLACE], 10 * SECOND + SLOW * 2 + FULL_LOOK_EVERY) is None
