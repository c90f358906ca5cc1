"""While the server of the lease does not answer, the last leader goes on, one at a time, and gives way afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator
from random import Random
from typing import Any

import pytest
from stage import FaultyStore, JumpingClock, let_pass, turning

from mainspring.core.instants import SECOND, Duration
from mainspring.core.load.leadership import LEASE
from mainspring.core.model import Hold
from mainspring.errors import LeaseUnavailable
from mainspring.leases.database import DatabaseLease
from mainspring.services.scheduler.elector import Elector
from mainspring.services.scheduler.standin import LONGER, StandIn
from mainspring.settings import Settings
from mainspring.stores.sqlite.store import SqliteStore

SETTINGS = Settings(lease="redis://elsewhere")
BACKUP_S = SETTINGS.lease_ttl * LONGER / SECOND


class Elsewhere(DatabaseLease):
    """A lease that is kept in another place, and may be away, or silent."""

    def __init__(self, clock: JumpingClock, store: SqliteStore | None = None) -> None:
        self.store = store or SqliteStore(":memory:", clock, inline=True)
        super().__init__(self.store)
        self._clock = clock
        self.trouble = ""

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        await self._answer()
        return await super().acquire(name, owner, ttl)

    async def renew(self, hold: Hold) -> Hold | None:
        await self._answer()
        return await super().renew(hold)

    async def release(self, hold: Hold) -> None:
        await self._answer()
        await super().release(hold)

    async def _answer(self) -> None:
        if self.trouble == "silent":
            await self._clock.sleep(3600)
        if self.trouble:
            raise LeaseUnavailable("away")


class Node(Elector):
    def __init__(self, store: Any, lease: Elsewhere, clock: JumpingClock, owner: str) -> None:
        super().__init__(store, StandIn(lease, store, clock, LEASE), owner, SETTINGS, clock, Random(owner))
        self.story: list[str] = []
        self.on_elected.append(lambda: self.story.append("elected"))
        self.on_resigned.append(lambda: self.story.append("resigned"))

    @property
    def leads(self) -> bool:
        return self.term() is not None


@pytest.fixture
async def lease(clock: JumpingClock) -> AsyncIterator[Elsewhere]:
    lease = Elsewhere(clock)
    yield lease
    await lease.store.close()


@pytest.fixture
def nodes(store: Any, lease: Elsewhere, clock: JumpingClock) -> list[Node]:
    return [Node(store, lease, clock, owner) for owner in ("one", "other")]


async def pass_watching(nodes: list[Node], clock: JumpingClock, seconds: float) -> list[int]:
    """How many led, every 50 ms."""
    counts = []
    for _ in range(round(seconds / 0.05)):
        await let_pass(clock, "50ms")
        counts.append(sum(node.leads for node in nodes))
    return counts


@pytest.mark.parametrize("trouble", ["away", "silent"])
async def test_the_leader_goes_on_without_a_break_and_without_a_second_one(
    nodes: list[Node], lease: Elsewhere, clock: JumpingClock, trouble: str
) -> None:
    async with turning(*nodes):
        await let_pass(clock, "5s")
        lease.trouble = trouble
        assert set(await pass_watching(nodes, clock, 60)) == {1}
        assert sorted(node.story for node in nodes) == [[], ["elected"]]
        lease.trouble = ""  # The first to ask has it, perhaps the other node.
        assert set(await pass_watching(nodes, clock, 20)) == {1}
    assert sum(node.story.count("elected") for node in nodes) <= 2


async def test_after_the_lease_is_back_it_is_held_there_again(
    nodes: list[Node], lease: Elsewhere, clock: JumpingClock
) -> None:
    async with turning(*nodes):
        await let_pass(clock, "5s")
        lease.trouble = "away"
        await let_pass(clock, "10s")
        lease.trouble = ""
        await let_pass(clock, "5s")
        assert await lease.store.acquire(LEASE, "third", SECOND) is None


async def test_where_the_lease_was_never_there_one_leads(
    nodes: list[Node], lease: Elsewhere, clock: JumpingClock
) -> None:
    lease.trouble = "away"
    async with turning(*nodes):
        await let_pass(clock, "3s")
        assert set(await pass_watching(nodes, clock, 30)) == {1}


async def test_a_leader_that_dies_while_the_lease_is_away_is_followed_by_another(
    nodes: list[Node], lease: Elsewhere, clock: JumpingClock
) -> None:
    one, other = nodes
    await one.turn()
    async with turning(other):
        async with turning(one):
            await let_pass(clock, "5s")
            assert one.leads
            lease.trouble = "away"
            await let_pass(clock, "5s")
        await let_pass(clock, f"{BACKUP_S + 3:g}s")
        assert other.leads


async def test_a_stand_in_gives_way_to_the_node_that_leads_by_the_lease(
    store: Any, nodes: list[Node], lease: Elsewhere, clock: JumpingClock
) -> None:
    one, _ = nodes
    async with turning(one):
        lease.trouble = "away"
        await let_pass(clock, "3s")
        assert one.leads
        lease.trouble = ""
        held = await lease.store.acquire(LEASE, "another", 3600 * SECOND)
        assert held is not None
        await let_pass(clock, "5s")
        assert not one.leads
        assert await store.acquire(LEASE, "authenticated", SECOND) is not None


async def test_a_leader_that_is_cut_off_from_the_lease_overtakes_its_successor_no_more(
    store: Any, lease: Elsewhere, clock: JumpingClock
) -> None:
    """Both can begin terms: one by the store's lease, the other by the lease itself. Each term ends the other's."""
    cut_off = Elsewhere(clock, lease.store)
    one, other = Node(store, cut_off, clock, "one"), Node(store, lease, clock, "other")
    async with turning(one):
        await let_pass(clock, "5s")
        assert one.leads
        async with turning(other):
            cut_off.trouble = "away"
            numbers = []
            for _ in range(round(6 * BACKUP_S / 0.05)):
                await let_pass(clock, "50ms")
                newest, *_ = await store.terms(LEASE, 1)
                for node in (one, other):
                    term = node.term()
                    if term is not None and term.number < newest.number:
                        node.begin_anew()  # The planner's next firing is refused.
                numbers.append(newest.number)
            assert other.leads
            assert not one.leads
    assert set(numbers) == {1, 2}, "one hand-over, and the two do not overtake each other"


async def test_a_leader_that_is_cut_off_from_the_store_releases_the_lease(
    store: Any, lease: Elsewhere, clock: JumpingClock
) -> None:
    line = FaultyStore(store)
    one, other = Node(line, lease, clock, "one"), Node(store, lease, clock, "other")
    async with turning(one):
        await let_pass(clock, "5s")
        assert one.leads
        async with turning(other):
            line.is_cut = True
            await let_pass(clock, f"{BACKUP_S / 2:g}s")
            assert one.leads, "a short silence is none of its successor's business"
            await let_pass(clock, f"{BACKUP_S:g}s")
            assert other.leads
            assert not one.leads
            line.is_cut = False
            assert set(await pass_watching([one, other], clock, 20)) == {1}
            assert other.story == ["elected"]


async def test_a_hand_over_frees_both(store: Any, nodes: list[Node], lease: Elsewhere, clock: JumpingClock) -> None:
    one, _ = nodes
    async with turning(one):
        await let_pass(clock, "5s")
        await one.hand_over()
    assert await store.acquire(LEASE, "authenticated", SECOND) is not None
    assert await lease.store.acquire(LEASE, "authenticated", SECOND) is not None
