"""Several leaders that share the jobs: each job has one, each leader has its own lease and term, and no leader's number
of shards can make a job fire twice or never."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any

import msgspec
import pytest
from stage import START, USUAL, FaultyStore, JumpingClock, add_job, at_home, ledger, let_pass

from mainspring import Mainspring
from mainspring.core.instants import SECOND
from mainspring.core.load.leadership import LEASE, lease_names, shard_of
from mainspring.core.model import Job, Term
from mainspring.core.planning.plans import Plan
from mainspring.leases.database import DatabaseLease
from mainspring.services.node import Node
from mainspring.services.scheduler.scheduler import SchedulerService
from mainspring.store import Fired
from mainspring.stores.sqlite.store import SqliteStore

JOBS = 12


class Watching(FaultyStore):
    """Remembers which jobs were fired through it, under which term."""

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.fired: list[tuple[str, Term | None]] = []

    async def fire(self, plans: Sequence[Plan], term: Term | None) -> list[Fired]:
        """See the store port."""
        if self.is_cut:
            await asyncio.Event().wait()
        answers: list[Fired] = await self._store.fire(plans, term)
        self.fired += [(fired.job_id, term) for fired in answers if fired.applied]
        return answers

    def jobs(self) -> set[str]:
        """All that were fired here."""
        return {job_id for job_id, _ in self.fired}


class Member:
    """A node without hands, on a line of its own to the shared file."""

    def __init__(self, store: Any, clock: JumpingClock, name: str, shards: int) -> None:
        self.line = Watching(store)
        settings = msgspec.structs.replace(USUAL, shards=shards)
        lease = DatabaseLease(self.line)
        self.scheduler = SchedulerService(self.line, lease, name, settings, clock, Random(name))
        self.node = Node(self.line, self.scheduler, None)

    def terms(self) -> list[int | None]:
        """The number of its term for each shard."""
        terms = [elector.term() for elector in self.scheduler.electors]
        return [None if term is None else term.number for term in terms]

    async def die(self) -> None:
        """End without a word."""
        self.node.supervisor.release()
        for task in self.node.supervisor.tasks:
            task.cancel()
        await asyncio.gather(*self.node.supervisor.tasks, return_exceptions=True)


@pytest.fixture
async def stores(tmp_path: Path, clock: JumpingClock) -> AsyncIterator[list[SqliteStore]]:
    stores = [SqliteStore(str(tmp_path / "shared.db"), clock, durable=False, inline=True) for _ in range(2)]
    yield stores
    for store in stores:
        await store.close()


@asynccontextmanager
async def running(*members: Member) -> AsyncIterator[None]:
    for member in members:
        await member.node.start()
    try:
        yield
    finally:
        for member in members:
            await member.die()


async def make_jobs(store: Any, clock: JumpingClock) -> list[Job]:
    with at_home(Mainspring(), store, clock) as app:
        return [await add_job(app, f"job-{number}", "1s") for number in range(JOBS)]


async def instants(store: Any, job: Job) -> list[int]:
    return [(row.fire_at - START) // SECOND for row in await ledger(store, job)]


async def test_two_leaders_fire_disjoint_jobs_and_together_all(stores: list[SqliteStore], clock: JumpingClock) -> None:
    jobs = await make_jobs(stores[0], clock)
    one, other = (Member(store, clock, name, 2) for store, name in zip(stores, ("one", "other"), strict=True))
    async with running(one, other):
        await let_pass(clock, "5s")
        assert sorted(member.scheduler.count_led() for member in (one, other)) == [1, 1]
        one.line.fired.clear()
        other.line.fired.clear()
        await let_pass(clock, "5s")
    assert one.line.jobs().isdisjoint(other.line.jobs())
    assert one.line.jobs() | other.line.jobs() == {job.id for job in jobs}
    assert {term.name for line in (one.line, other.line) for _, term in line.fired if term} == set(lease_names(2))
    for job in jobs:
        assert await instants(stores[0], job) == list(range(1, 11)), "each instant once, none left out"


async def test_a_lone_node_leads_all_shards(stores: list[SqliteStore], clock: JumpingClock) -> None:
    jobs = await make_jobs(stores[0], clock)
    alone = Member(stores[0], clock, "alone", 3)
    async with running(alone):
        await let_pass(clock, "4s")
        assert alone.terms() == [1, 1, 1]
    for job in jobs:
        assert await instants(stores[0], job) == [1, 2, 3, 4]


async def test_a_shard_whose_leader_dies_is_taken_over_and_the_other_leader_goes_on_in_its_term(
    stores: list[SqliteStore], clock: JumpingClock
) -> None:
    jobs = await make_jobs(stores[0], clock)
    one, other = (Member(store, clock, name, 2) for store, name in zip(stores, ("one", "other"), strict=True))
    async with running(one, other):
        await let_pass(clock, "5s")
        (kept,) = [number for number, term in enumerate(one.terms()) if term is not None]
        before = one.terms()[kept]
        await other.die()
        await let_pass(clock, "2s")
        assert None not in one.terms()
        assert one.terms()[kept] == before
        await let_pass(clock, "3s")
    for job in jobs:
        assert await instants(stores[0], job) == list(range(1, 11))


async def test_a_leader_that_was_replaced_fires_nothing_of_its_shard(
    stores: list[SqliteStore], clock: JumpingClock
) -> None:
    jobs = await make_jobs(stores[0], clock)
    alone = Member(stores[0], clock, "alone", 2)
    lost = lease_names(2)[1]
    async with running(alone):
        await let_pass(clock, "2s")
        term = await stores[1].begin_term(lost, "another")
        alone.scheduler.planners[1].on_overtaken.clear()
        alone.line.fired.clear()
        await let_pass(clock, "2s")
    assert alone.line.jobs() == {job.id for job in jobs if shard_of(job.id, 2) == 0}
    assert term.number == 2


async def test_while_the_number_of_shards_is_changed_each_instant_fires_once(
    stores: list[SqliteStore], clock: JumpingClock
) -> None:
    jobs = await make_jobs(stores[0], clock)
    old, new = Member(stores[0], clock, "old", 1), Member(stores[1], clock, "new", 3)
    async with running(old):
        await let_pass(clock, "3s")
        async with running(new):
            await let_pass(clock, "3s")
            assert old.terms() == [1]
            assert new.terms() == [1, 1, 1]
            await old.die()
            await let_pass(clock, "4s")
    for job in jobs:
        assert await instants(stores[0], job) == list(range(1, 11))


def test_one_shard_has_the_lease_of_old() -> None:
    assert lease_names(1) == [LEASE]


def test_every_job_has_one_of_the_shards() -> None:
    found = {shard_of(f"job-{number}", 5) for number in range(1_000)}
    assert found == set(range(5))
