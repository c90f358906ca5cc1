"""Several planners on one store: each instant fires once, whichever leads, and though others believe that they lead."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from stage import FaultyStore, JumpingClock, add_job, at_home, fired_at, let_pass, make_planner, turning

from mainspring import Mainspring
from mainspring.core.model import Term
from mainspring.core.planning.plans import Plan
from mainspring.store import Fired
from mainspring.stores.sqlite.store import SqliteStore

Leads = Callable[[], Term | None]


@pytest.fixture
def app(store: Any, clock: JumpingClock) -> Iterator[Mainspring]:
    with at_home(Mainspring(), store, clock) as app:
        yield app


class Leadership:
    """The leader that the test names; terms are the store's."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self.terms: dict[str, Term] = {}

    async def give_to(self, owner: str) -> None:
        """Only the store knows that the others no longer lead."""
        self.terms[owner] = await self._store.begin_term("scheduler", owner)

    def of(self, owner: str) -> Leads:
        return lambda: self.terms.get(owner)


class TestSeveralPlanners:
    @pytest.fixture
    async def stores(self, tmp_path: Path, clock: JumpingClock) -> AsyncIterator[list[SqliteStore]]:
        stores = [SqliteStore(str(tmp_path / "shared.db"), clock, durable=False, inline=True) for _ in range(2)]
        yield stores
        for store in stores:
            await store.close()

    async def test_in_a_cluster_each_instant_fires_once(self, stores: list[SqliteStore], clock: JumpingClock) -> None:
        with at_home(Mainspring(), stores[0], clock) as app:
            jobs = [await add_job(app, f"job-{number}", f"{number}s") for number in (1, 2, 3)]
        async with turning(*(make_planner(store, clock) for store in stores)):
            await let_pass(clock, "60s")
        assert [await fired_at(stores[0], job) for job in jobs] == [list(range(n, 61, n)) for n in (1, 2, 3)]

    async def test_the_instants_of_a_cluster_that_loses_a_node_go_on(
        self, stores: list[SqliteStore], clock: JumpingClock
    ) -> None:
        with at_home(Mainspring(), stores[0], clock) as app:
            job = await add_job(app, "job", "1s")
        async with turning(make_planner(stores[0], clock)):
            async with turning(make_planner(stores[1], clock)):
                await let_pass(clock, "10s")
            await let_pass(clock, "10s")
        assert await fired_at(stores[0], job) == list(range(1, 21))

    async def test_only_the_leader_fires_and_a_new_one_goes_on_where_the_old_one_ended(
        self, stores: list[SqliteStore], clock: JumpingClock
    ) -> None:
        with at_home(Mainspring(), stores[0], clock) as app:
            job = await add_job(app, "job", "1s")
        leadership = Leadership(stores[0])
        planners = [make_planner(store, clock, leadership.of(str(n))) for n, store in enumerate(stores)]
        async with turning(*planners):
            for owner in "0101":
                leadership.terms.clear()
                await leadership.give_to(owner)
                for planner in planners:
                    planner.wake()
                await let_pass(clock, "5s")
        assert await fired_at(stores[0], job) == list(range(1, 21))

    async def test_a_leader_that_does_not_know_that_it_was_replaced_fires_nothing(
        self, stores: list[SqliteStore], clock: JumpingClock
    ) -> None:
        with at_home(Mainspring(), stores[0], clock) as app:
            job = await add_job(app, "job", "1s")
        leadership = Leadership(stores[0])
        await leadership.give_to("0")
        stale, planner = (make_planner(store, clock, leadership.of(str(n))) for n, store in enumerate(stores))
        overtaken: list[float] = []
        stale.on_overtaken.append(lambda: overtaken.append(clock.monotonic()))
        async with turning(stale):
            await let_pass(clock, "3s")
            await leadership.give_to("1")
            await let_pass(clock, "3s")
            assert await fired_at(stores[0], job) == [1, 2, 3]
            assert 3.9 < overtaken[0] <= 4.0
            async with turning(planner):
                await let_pass(clock, "3s")
        assert await fired_at(stores[0], job) == list(range(1, 10))

    async def test_a_stand_by_neither_asks_nor_spins(
        self, store: Any, app: Mainspring, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        await add_job(app, "job", "1s")
        line = FaultyStore(store)
        stand_by = make_planner(line, clock, lambda: None)
        turns = 0
        real_turn = stand_by.turn

        async def counted() -> float:
            nonlocal turns
            turns += 1
            return await real_turn()

        monkeypatch.setattr(stand_by, "turn", counted)
        async with turning(stand_by):
            await let_pass(clock, "10s")
        assert line.calls.total() == 0
        assert turns <= 11

    async def test_a_new_leader_knows_what_was_edited_while_it_stood_by(
        self, store: Any, app: Mainspring, clock: JumpingClock
    ) -> None:
        leadership = Leadership(store)
        job = await add_job(app, "job", "1s")
        planner = make_planner(store, clock, leadership.of("one"))
        async with turning(planner):
            await leadership.give_to("one")
            planner.wake()
            await let_pass(clock, "2s")
            leadership.terms.clear()
            await leadership.give_to("other")
            del leadership.terms["other"]
            await app.jobs.pause("job")
            new = await add_job(app, "new", "1s")
            await let_pass(clock, "2s")
            await leadership.give_to("one")
            planner.wake()
            await let_pass(clock, "2s")
        assert await fired_at(store, job) == [1, 2]
        assert await fired_at(store, new) == [3, 4, 5, 6]

    async def test_a_new_leader_plans_from_what_is_stored_and_not_from_what_it_remembers(
        self, stores: list[SqliteStore], clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with at_home(Mainspring(), stores[0], clock) as app:
            await add_job(app, "job", "1s")
        leadership = Leadership(stores[0])
        refused: list[Any] = []

        async def fire(plans: Sequence[Plan], term: Term | None) -> list[Fired]:
            fired = await stores[0].fire(plans, term)
            refused.extend(each for each in fired if not each.applied)
            return fired

        line = FaultyStore(stores[0])
        monkeypatch.setattr(line, "fire", fire)
        planners = [make_planner(store, clock, leadership.of(str(n))) for n, store in enumerate([line, stores[1]])]
        async with turning(*planners):
            for owner in "010":
                leadership.terms.clear()
                await leadership.give_to(owner)
                planners[int(owner)].wake()
                await let_pass(clock, "3s")
        assert refused == []
