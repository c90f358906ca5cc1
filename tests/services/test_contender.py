"""Nodes that contend for each firing: one fires, the others let it, and another does if that one dies."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import cast

import pytest
from stage import FaultyStore, JumpingClock, add_job, at_home, fired_at, let_pass, turning

from mainspring import Mainspring
from mainspring.core.instants import SECOND, Duration
from mainspring.core.model import Hold, Job
from mainspring.errors import LeaseUnavailable
from mainspring.lease import Lease
from mainspring.leases.database import DatabaseLease
from mainspring.services.scheduler.contender import Contender
from mainspring.services.scheduler.planner import Planner
from mainspring.settings import Settings
from mainspring.stores.sqlite.store import SqliteStore

SETTINGS = Settings(coordination="lock")
TTL = SETTINGS.lease_ttl


class Absent:
    """A lease whose server does not answer."""

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        raise LeaseUnavailable("gone")

    async def renew(self, hold: Hold) -> Hold | None:
        raise LeaseUnavailable("gone")

    async def release(self, hold: Hold) -> None:
        raise LeaseUnavailable("gone")

    async def close(self) -> None: ...


class Node(Planner):
    """One node, whose calls of the store are counted."""

    def __init__(self, store: SqliteStore, clock: JumpingClock, owner: str, lease: Lease | None = None) -> None:
        self.line = FaultyStore(store)
        contender = Contender(lease or DatabaseLease(store), owner, TTL)
        super().__init__(self.line, None, SETTINGS, clock, Random(owner), contender=contender)


@pytest.fixture
async def stores(tmp_path: Path, clock: JumpingClock) -> AsyncIterator[list[SqliteStore]]:
    stores = [SqliteStore(str(tmp_path / "shared.db"), clock, durable=False, inline=True) for _ in range(2)]
    yield stores
    for store in stores:
        await store.close()


async def add_jobs(store: SqliteStore, clock: JumpingClock, *periods: int) -> list[Job]:
    with at_home(Mainspring(), store, clock) as app:
        return [await add_job(app, f"job-{period}", f"{period}s") for period in periods]


async def test_each_instant_fires_once_whichever_node_wins(stores: list[SqliteStore], clock: JumpingClock) -> None:
    jobs = await add_jobs(stores[0], clock, 1, 2, 3)
    async with turning(*(Node(store, clock, str(n)) for n, store in enumerate(stores))):
        await let_pass(clock, "60s")
    assert [await fired_at(stores[0], job) for job in jobs] == [list(range(n, 61, n)) for n in (1, 2, 3)]


async def test_a_node_that_holds_the_lease_of_a_job_is_left_alone_until_it_expires(
    stores: list[SqliteStore], clock: JumpingClock
) -> None:
    (job,) = await add_jobs(stores[0], clock, 10)
    node = Node(stores[0], clock, "a")
    async with turning(node):
        await let_pass(clock, "9s")
        dying = await stores[1].acquire(f"firing:{job.namespace}:{job.name}", "dying", TTL)
        assert dying is not None
        await let_pass(clock, "1s")
        await stores[1].renew_hold(dying)
        await let_pass(clock, "1s")
        assert await fired_at(stores[0], job) == []
        assert node.line.calls["fire"] == 0
        await let_pass(clock, "3s")
        assert await fired_at(stores[0], job) == [10]
        await let_pass(clock, "20s")
    assert await fired_at(stores[0], job) == [10, 20, 30]


async def test_where_leases_cannot_be_had_the_store_decides(stores: list[SqliteStore], clock: JumpingClock) -> None:
    (job,) = await add_jobs(stores[0], clock, 1)
    async with turning(*(Node(store, clock, str(n), cast(Lease, Absent())) for n, store in enumerate(stores))):
        await let_pass(clock, "20s")
    assert await fired_at(stores[0], job) == list(range(1, 21))


async def test_leases_are_free_after_the_firing(stores: list[SqliteStore], clock: JumpingClock) -> None:
    (job,) = await add_jobs(stores[0], clock, 5)
    async with turning(Node(stores[0], clock, "a")):
        await let_pass(clock, "5s")
        assert await fired_at(stores[0], job) == [5]
        assert await stores[1].acquire(f"firing:{job.namespace}:{job.name}", "b", SECOND) is not None


async def test_a_node_that_lost_neither_polls_nor_writes_in_vain(
    stores: list[SqliteStore], clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = await add_jobs(stores[0], clock, 30)
    held = await stores[1].acquire(f"firing:{jobs[0].namespace}:{jobs[0].name}", "slow", 100 * SECOND)
    assert held is not None
    node = Node(stores[0], clock, "a")
    turns = 0
    real = node.turn

    async def counted() -> float:
        nonlocal turns
        turns += 1
        return await real()

    monkeypatch.setattr(node, "turn", counted)
    async with turning(node):
        await let_pass(clock, "90s")
    assert node.line.calls["fire"] == 0
    assert turns < 200


async def test_a_node_that_loses_every_contest_takes_over_soon_after_the_winner_has_stopped(
    stores: list[SqliteStore], clock: JumpingClock
) -> None:
    (job,) = await add_jobs(stores[0], clock, 1)
    name = f"firing:{job.namespace}:{job.name}"
    loser = Node(stores[0], clock, "a")
    async with turning(loser):
        await let_pass(clock, "900ms")
        winner = await stores[1].acquire(name, "winner", TTL)
        assert winner is not None
        await let_pass(clock, "150ms")
        assert await fired_at(stores[0], job) == []
        await stores[1].release(winner)
        await let_pass(clock, "250ms")
        assert await fired_at(stores[0], job) == [1], "not only after the winner's lease would have expired"


async def test_a_winner_that_dies_before_it_fires_delays_the_instant_by_little_more_than_its_lease(
    stores: list[SqliteStore], clock: JumpingClock
) -> None:
    (job,) = await add_jobs(stores[0], clock, 10)
    async with turning(Node(stores[0], clock, "a")):
        await let_pass(clock, "9900ms")
        dying = await stores[1].acquire(f"firing:{job.namespace}:{job.name}", "dying", TTL)
        assert dying is not None
        await let_pass(clock, "300ms")
        await stores[1].renew_hold(dying)
        await let_pass(clock, "1400ms")
        assert await fired_at(stores[0], job) == []
        await let_pass(clock, "600ms")
        assert await fired_at(stores[0], job) == [10]
