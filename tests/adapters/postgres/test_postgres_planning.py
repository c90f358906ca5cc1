"""The planner on PostgreSQL: one tenant's job does not stop the others', whichever node plans."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from random import Random

import msgspec
import pytest

from mainspring.clock import SystemClock
from mainspring.core.instants import MILLISECOND, SECOND, Instant
from mainspring.core.model import Job, JobPolicy, Term
from mainspring.core.schedules.triggers import EveryTrigger
from mainspring.leases.database import DatabaseLease
from mainspring.process.ids import IdSource
from mainspring.services.scheduler.contender import Contender
from mainspring.services.scheduler.planner import Planner
from mainspring.settings import Coordination, Settings
from mainspring.stores.postgres.store import PostgresStore

USING = Settings(firing_rate=6_000)
VICTIM_FIRINGS = 4


async def add(store: PostgresStore, name: str, namespace: str, period: int, completions: int = 1) -> Job:
    """A job as it may have been stored before there were limits."""
    made = Job(
        id=IdSource(SystemClock()).new(),
        name=name,
        task="work",
        trigger=EveryTrigger(period),
        namespace=namespace,
        policy=JobPolicy(completions=completions),
        created_at=store.now(),
    )
    return await store.create_job(made)


async def fired(store: PostgresStore, job: Job) -> list[Instant]:
    return [row.fire_at for row in await store.list_firings(job.id, limit=1_000) if row.outcome == "fired"]


async def make_planner(store: PostgresStore, coordination: Coordination, owner: str) -> Planner:
    using, clock = msgspec.structs.replace(USING, coordination=coordination), SystemClock()
    leads: Callable[[], Term | None] | None = None
    if coordination == "leader":
        term = await store.begin_term("scheduler", owner)

        def leads() -> Term | None:
            return term

    contender = Contender(DatabaseLease(store), owner, using.lease_ttl) if coordination == "lock" else None
    return Planner(store, leads, using, clock, Random(0), contender=contender)


@pytest.fixture
async def store(postgres_url: str) -> AsyncIterator[PostgresStore]:
    """An empty store in the server's own time."""
    store = await PostgresStore.open(postgres_url, SystemClock())
    yield store
    await store.close()


@pytest.mark.parametrize("coordination", ["leader", "cluster", "lock"])
async def test_a_job_that_asks_for_far_too_much_does_not_stop_others(
    store: PostgresStore, coordination: Coordination
) -> None:
    await add(store, "hostile", "bad", 10 * MILLISECOND, 1_000)
    victim = await add(store, "victim", "good", SECOND // 2)
    async with AsyncExitStack() as stack:
        for owner in ("a",) if coordination == "leader" else ("a", "b"):
            planner = await make_planner(store, coordination, owner)
            task = asyncio.create_task(planner.run())
            stack.callback(task.cancel)
        async with asyncio.timeout(60):
            while len(await fired(store, victim)) < VICTIM_FIRINGS:
                await asyncio.sleep(0.1)
            await store.remove_job("bad", "hostile")
            runs, seen = -1, len(await fired(store, victim))
            while runs < (runs := sum((await store.count_runs("bad")).values())):
                await asyncio.sleep(0.5)
            while len(await fired(store, victim)) < seen + VICTIM_FIRINGS:
                await asyncio.sleep(0.1)
    assert runs <= 3 * USING.firing_rate
    instants = await fired(store, victim)
    assert len(set(instants)) == len(instants)
