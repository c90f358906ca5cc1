"""One node leads at a time, no longer than it can be sure of its lease; another leads soon after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from typing import Any

import pytest
from stage import FaultyStore, JumpingClock, let_others_run, let_pass, turning

from mainspring.core.instants import SECOND, Duration
from mainspring.core.load.leadership import LEASE
from mainspring.core.model import Hold, Term
from mainspring.errors import StoreUnavailable, TermPassed
from mainspring.lease import LeaseTimes
from mainspring.leases.database import DatabaseLease
from mainspring.services.scheduler.elector import Elector, times_of
from mainspring.settings import Settings

SETTINGS = Settings()
TTL_S = SETTINGS.lease_ttl / SECOND


class Node(Elector):
    """An elector that remembers when it was elected and resigned."""

    def __init__(self, store: Any, clock: JumpingClock, owner: str) -> None:
        super().__init__(store, DatabaseLease(store), owner, SETTINGS, clock, Random(owner))
        self.story: list[str] = []
        self.on_elected.append(lambda: self.story.append("elected"))
        self.on_resigned.append(lambda: self.story.append("resigned"))

    @property
    def number(self) -> int | None:
        """The number of the term, where this node leads."""
        term = self.term()
        return None if term is None else term.number


@pytest.fixture
def one(store: Any, clock: JumpingClock) -> Node:
    return Node(store, clock, "one")


@pytest.fixture
def other(store: Any, clock: JumpingClock) -> Node:
    return Node(store, clock, "other")


async def test_one_of_two_leads(one: Node, other: Node, clock: JumpingClock) -> None:
    async with turning(one, other):
        for _ in range(100):
            await let_pass(clock, "100ms")
            assert [one.number, other.number] == [1, None]
    assert one.story == ["elected"]
    assert other.story == []


async def test_no_node_leads_before_the_first_turn(one: Node) -> None:
    assert one.term() is None


async def test_a_stand_by_takes_over_when_the_lease_of_a_dead_leader_has_run_out(
    one: Node, other: Node, clock: JumpingClock
) -> None:
    async with turning(other):
        async with turning(one):
            await one.turn()
            await let_pass(clock, "1s")
        assert one.number == 1
        while one.number is not None:
            assert other.number is None
            await let_pass(clock, "10ms")
        await let_pass(clock, SETTINGS.lease_renew + SECOND // 2)
        assert other.number == 2


async def test_a_stand_by_takes_over_at_once_after_a_hand_over(one: Node, other: Node, clock: JumpingClock) -> None:
    await one.turn()
    await other.turn()
    await let_pass(clock, "200ms")
    await one.hand_over()
    assert one.term() is None
    await other.turn()
    assert other.number == 2
    assert one.story == ["elected", "resigned"]


async def test_a_leader_that_hands_over_does_not_lead_again(one: Node, clock: JumpingClock) -> None:
    async with turning(one):
        await let_pass(clock, "1s")
        await one.hand_over()
        await let_pass(clock, "10s")
        assert one.term() is None


async def test_a_hand_over_waits_for_the_turn_that_is_under_way(store: Any, other: Node, clock: JumpingClock) -> None:
    """Otherwise the answer to that turn would make it leader again, after it has let go."""
    line = FaultyStore(store)
    one = Node(line, clock, "one")
    async with turning(one):
        await let_pass(clock, "100ms")
        line.hold_reply("renew_hold")
        await let_pass(clock, "400ms")
        handing_over = asyncio.create_task(one.hand_over())
        await let_others_run()
        line.let_through()
        await handing_over
        await let_pass(clock, "100ms")
        await other.turn()
        await let_pass(clock, "100ms")
        assert [one.number, other.number] == [None, 2]
    assert one.story == ["elected", "resigned"]


class TestTrust:
    async def test_a_leader_that_cannot_renew_stops_before_its_lease_ends(
        self, store: Any, other: Node, clock: JumpingClock
    ) -> None:
        line = FaultyStore(store)
        one = Node(line, clock, "one")
        async with turning(one, other):
            await let_pass(clock, "100ms")
            renewed_at = 0.0
            line.is_cut = True
            while one.term() is not None:
                await let_pass(clock, "1ms")
            assert clock.monotonic() - renewed_at < TTL_S
            assert other.term() is None
            await let_pass(clock, "600ms")
            assert other.number == 2
            assert one.story == ["elected", "resigned"]

    @pytest.mark.parametrize("jump", ["1h", "-1h"])
    async def test_trust_is_measured_in_time_that_passes_and_not_by_the_wall_clock(
        self, store: Any, clock: JumpingClock, jump: str
    ) -> None:
        line = FaultyStore(store)
        one = Node(line, clock, "one")
        await one.turn()
        line.is_cut = True
        clock.set(clock.now() - 3600 * SECOND) if jump.startswith("-") else clock.jump(jump)
        assert one.number == 1
        await let_pass(clock, round(TTL_S * SECOND))
        assert one.term() is None

    async def test_it_is_counted_from_the_moment_before_the_request_was_sent(
        self, store: Any, clock: JumpingClock
    ) -> None:
        line = FaultyStore(store)
        one = Node(line, clock, "one")
        await one.turn()
        line.hold_reply("renew_hold")
        renewal = asyncio.create_task(one.turn())
        await let_pass(clock, "1200ms")
        line.let_through()
        await renewal
        assert one.number == 1
        await let_pass(clock, "200ms")
        assert one.term() is None, "the answer was old when it came"

    async def test_a_leader_that_was_paused_beyond_its_lease_knows_before_it_writes(
        self, one: Node, other: Node, clock: JumpingClock
    ) -> None:
        await one.turn()
        clock.advance("2s")
        assert one.term() is None
        await other.turn()
        await one.turn()
        assert [one.number, other.number] == [None, 2]
        assert one.story == ["elected", "resigned"]

    async def test_a_leader_that_hears_that_its_lease_went_to_another_stops_at_once(
        self, one: Node, other: Node, clock: JumpingClock
    ) -> None:
        await one.turn()
        clock.jump("1h")  # For the store, the lease has run out; for the leader, hardly any time has passed.
        await other.turn()
        assert one.term() is not None
        await one.turn()
        assert [one.number, other.number] == [None, 2]
        assert one.story == ["elected", "resigned"]

    async def test_the_store_refuses_what_a_stale_leader_writes(
        self, store: Any, one: Node, other: Node, clock: JumpingClock
    ) -> None:
        await one.turn()
        stale = one.term()
        clock.advance("2s")
        await other.turn()
        with pytest.raises(TermPassed):
            await store.fire([], stale)
        assert await store.fire([], other.term()) == []


class TestLostWords:
    async def test_a_lost_answer_to_the_election_costs_at_most_the_lease(self, store: Any, clock: JumpingClock) -> None:
        line = FaultyStore(store)
        line.lose_reply("acquire")
        one = Node(line, clock, "one")
        async with turning(one):
            await let_pass(clock, "2s")
            assert one.number == 1

    async def test_a_lost_answer_to_the_beginning_of_a_term_begins_no_second_one(
        self, store: Any, clock: JumpingClock
    ) -> None:
        line = FaultyStore(store)
        line.lose_reply("begin_term")
        one = Node(line, clock, "one")
        async with turning(one):
            await let_pass(clock, "200ms")
            assert one.number == 1
            assert one.story == ["elected"]

    async def test_a_lost_renewal_is_repeated_before_its_loss_is_noticed(
        self, store: Any, other: Node, clock: JumpingClock
    ) -> None:
        line = FaultyStore(store)
        one = Node(line, clock, "one")
        async with turning(one, other):
            for _ in range(20):
                line.lose_request("renew_hold", 2)
                line.lose_reply("renew_hold")
                for _ in range(100):
                    await let_pass(clock, "10ms")
                    assert [one.number, other.number] == [1, None]

    async def test_a_leader_that_was_cut_off_for_a_moment_leads_on(self, store: Any, clock: JumpingClock) -> None:
        """Its lease is still its own: it need not wait until that has run out."""
        line = FaultyStore(store)
        one = Node(line, clock, "one")
        async with turning(one):
            await let_pass(clock, "100ms")
            line.is_cut = True
            await let_pass(clock, "1360ms")
            assert one.term() is None
            line.is_cut = False
            await let_pass(clock, "1s")
            assert one.number is not None

    async def test_a_node_leads_within_a_second_after_a_long_outage(self, store: Any, clock: JumpingClock) -> None:
        line = FaultyStore(store)
        nodes = [Node(line, clock, name) for name in ("one", "other")]
        async with turning(*nodes):
            line.is_cut = True
            await let_pass(clock, "40s")
            assert line.calls["acquire"] > 2 * 40 / 0.4 * 0.9, "they go on asking as often as when all is well"
            line.is_cut = False
            await let_pass(clock, "1s")
            assert sum(node.term() is not None for node in nodes) == 1


class TestTerms:
    async def test_they_grow_with_each_change_of_leader(self, store: Any, clock: JumpingClock) -> None:
        numbers = []
        for name in ("one", "other", "one", "third"):
            node = Node(store, clock, name)
            await node.turn()
            numbers.append(node.number)
            clock.advance("10s")
        assert numbers == [1, 2, 3, 4]

    async def test_a_late_answer_begins_no_term(self, store: Any, other: Node, clock: JumpingClock) -> None:
        line = FaultyStore(store)
        line.hold_reply("acquire")
        one = Node(line, clock, "one")
        late = asyncio.create_task(one.turn())
        await let_others_run()
        clock.advance("2s")
        await other.turn()
        line.let_through()
        with pytest.raises(StoreUnavailable, match="no answer within"):
            await late
        assert [one.number, other.number] == [None, 1]
        assert one.story == []
        await store.fire([], other.term())

    async def test_a_line_that_is_dead_does_not_keep_a_stand_by_waiting(self, store: Any, clock: JumpingClock) -> None:
        line = FaultyStore(store)
        line.hold_request("acquire")
        one = Node(line, clock, "one")
        async with turning(one):
            await let_pass(clock, "3s")
            assert one.number == 1

    async def test_a_dead_connection_does_not_keep_the_holder_of_the_lease_from_leading(
        self, store: Any, clock: JumpingClock
    ) -> None:
        line = FaultyStore(store)
        line.hold_request("begin_term", 2)
        one = Node(line, clock, "one")
        async with turning(one):
            await let_pass(clock, "5s")
            assert one.number == 1
        assert line.calls["begin_term"] == 3

    async def test_a_leader_whose_term_was_overtaken_begins_a_later_one(
        self, store: Any, one: Node, clock: JumpingClock
    ) -> None:
        async with turning(one):
            await let_pass(clock, "100ms")
            await store.begin_term(LEASE, "a node that slept through its lease")
            one.begin_anew()
            await let_others_run()
            assert one.term() == Term(LEASE, 3, "one")
            await store.fire([], one.term())
        assert one.story == ["elected", "resigned", "elected"]


async def test_a_stand_by_that_every_change_wakes_does_not_ask_at_each(
    store: Any, one: Node, clock: JumpingClock
) -> None:
    line = FaultyStore(store)
    stand_by = Node(line, clock, "other")
    await one.turn()
    async with turning(stand_by):
        for _ in range(1_000):
            await let_pass(clock, "1ms")
            stand_by.wake()
    assert line.calls["acquire"] <= 11


async def test_a_turn_that_fails_says_so(store: Any, clock: JumpingClock) -> None:
    line = FaultyStore(store)
    line.lose_request("acquire")
    with pytest.raises(StoreUnavailable):
        await Node(line, clock, "one").turn()


class Pushing(DatabaseLease):
    """A lease that can say that a hold is in doubt, and that the lease is free."""

    times = LeaseTimes(15 * SECOND, 10 * SECOND, 2 * SECOND)
    watched = True

    def __init__(self, store: Any) -> None:
        super().__init__(store)
        self.losses: dict[int, Callable[[str], None]] = {}
        self.frees: list[Callable[[], None]] = []
        self.asked = 0

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        self.asked += 1
        return await super().acquire(name, owner, ttl)

    def on_lost(self, hold: Hold, callback: Callable[[str], None]) -> Callable[[], None]:
        self.losses[hold.token] = callback
        return lambda: self.losses.__delitem__(hold.token)

    def on_free(self, name: str, callback: Callable[[], None]) -> Callable[[], None]:
        self.frees.append(callback)
        return lambda: self.frees.remove(callback)


def pushed(store: Any, clock: JumpingClock, owner: str) -> Node:
    node = Node(store, clock, owner)
    Elector.__init__(node, store, Pushing(store), owner, SETTINGS, clock, Random(owner))
    node.on_elected.append(lambda: node.story.append("elected"))
    node.on_resigned.append(lambda: node.story.append("resigned"))
    return node


def lease_of(node: Node) -> Pushing:
    assert isinstance(node._lease, Pushing)
    return node._lease


async def test_a_stand_by_of_a_watched_lease_asks_no_more_often_whatever_changes(
    store: Any, clock: JumpingClock
) -> None:
    leader, stand_by = pushed(store, clock, "one"), pushed(store, clock, "other")
    await leader.turn()
    async with turning(stand_by):
        for _ in range(400):
            await let_pass(clock, "10ms")
            stand_by.wake()
    assert lease_of(stand_by).asked <= 3  # At once, and every 2 s.


async def test_a_push_of_doubt_ends_leadership_at_once_and_a_hold_that_is_still_good_leads_again(
    store: Any, clock: JumpingClock
) -> None:
    node = pushed(store, clock, "one")
    async with turning(node):
        await let_pass(clock, "1s")
        assert node.number == 1
        (hear,) = lease_of(node).losses.values()
        hear("session suspended")
        assert node.term() is None
        assert node.story == ["elected", "resigned"]
        await let_pass(clock, "10ms")
        assert node.story == ["elected", "resigned", "elected"]
        assert node.number == 1  # No other node began a term meanwhile.
        await node.hand_over()
        assert (lease_of(node).losses, lease_of(node).frees) == ({}, [])


async def test_an_answer_that_is_older_than_a_doubt_is_not_believed(
    store: Any, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = pushed(store, clock, "one")
    await node.turn()
    assert node.number == 1
    lease, renew, answers = lease_of(node), lease_of(node).renew, asyncio.Event()

    async def renew_slowly(hold: Hold) -> Hold | None:
        renewed = await renew(hold)
        await answers.wait()
        return renewed

    monkeypatch.setattr(lease, "renew", renew_slowly)
    turn = asyncio.ensure_future(node.turn())
    await let_others_run()
    next(iter(lease.losses.values()))("session suspended")
    answers.set()
    assert await turn == 0.0
    assert node.term() is None
    await node.turn()
    assert node.number == 1


async def test_a_candidate_asks_as_soon_as_the_lease_says_that_it_is_free(store: Any, clock: JumpingClock) -> None:
    leader, candidate = pushed(store, clock, "one"), pushed(store, clock, "other")
    await leader.turn()
    async with turning(candidate):
        await let_pass(clock, "1ms")
        await leader.hand_over()
        await let_pass(clock, "1ms")
        assert candidate.term() is None
        (hear,) = lease_of(candidate).frees
        hear()
        await let_pass(clock, "1ms")
        assert candidate.number == 2


async def test_a_lease_has_times_of_its_own_unless_the_settings_say_otherwise(store: Any, clock: JumpingClock) -> None:
    leader, candidate = pushed(store, clock, "one"), pushed(store, clock, "other")
    assert await leader.turn() == 10.0
    assert await candidate.turn() == 2.0
    clock.advance("10s")
    assert leader.number == 1
    own = Settings(lease_ttl=3 * SECOND, lease_renew=SECOND)
    assert times_of(Pushing(store), own) == LeaseTimes(3 * SECOND, SECOND, SECOND)
    assert times_of(DatabaseLease(store), SETTINGS) == LeaseTimes(
        SETTINGS.lease_ttl, SETTINGS.lease_renew, SETTINGS.lease_renew
    )
