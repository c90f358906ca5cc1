"""Leases and terms."""

from __future__ import annotations

import asyncio

import msgspec

from mainspring.core.instants import HOUR, SECOND
from mainspring.core.load.leadership import OVERTAKEN
from mainspring.core.model import Hold, Node, TermRecord
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

TTL = 30 * SECOND


async def held(store: Store, name: str, owner: str) -> Hold:
    """A lease that must be free."""
    hold = await store.acquire(name, owner, TTL)
    assert hold is not None
    return hold


class LeaseSuite:
    """One holder at a time, by the store's clock; each with a greater token; each term with a greater number."""

    async def test_a_lease_has_one_holder(self, store: Store, clock: ManualClock) -> None:
        hold = await held(store, "scheduler", "a")
        assert (hold.name, hold.owner, hold.ttl, hold.expires_at) == ("scheduler", "a", TTL, clock.now() + TTL)
        assert await store.acquire("scheduler", "b", TTL) is None

    async def test_a_lease_is_not_given_twice_even_to_its_owner(self, store: Store) -> None:
        await held(store, "payroll", "a")
        assert await store.acquire("payroll", "a", TTL) is None

    async def test_of_many_callers_that_ask_at_once_one_gets_it(self, store: Store) -> None:
        answers = await asyncio.gather(*(store.acquire("scheduler", f"node-{n}", TTL) for n in range(30)))
        assert sum(hold is not None for hold in answers) == 1

    async def test_the_holders_of_leases_of_a_name_are_listed(self, store: Store, clock: ManualClock) -> None:
        assert await store.holders("scheduler") == []
        await held(store, "scheduler:2/3", "b")
        await held(store, "scheduler:1/3", "a")
        await held(store, "payroll", "c")
        released = await held(store, "scheduler:3/3", "d")
        await store.release(released)
        assert await store.holders("scheduler") == ["a", "b"]
        clock.advance(TTL + 1)
        assert await store.holders("scheduler") == []

    async def test_leases_of_other_names_are_free(self, store: Store) -> None:
        await held(store, "scheduler", "a")
        await held(store, "payroll", "b")

    async def test_a_lease_expires_by_the_clock_of_the_store(self, store: Store, clock: ManualClock) -> None:
        await held(store, "scheduler", "a")
        clock.advance(TTL - 1)
        assert await store.acquire("scheduler", "b", TTL) is None
        clock.advance(2)
        assert (await held(store, "scheduler", "b")).owner == "b"

    async def test_its_token_grows_across_expiry(self, store: Store, clock: ManualClock) -> None:
        first = await held(store, "scheduler", "a")
        clock.advance(TTL + 1)
        second = await held(store, "scheduler", "b")
        clock.advance(TTL + 1)
        third = await held(store, "scheduler", "a")
        assert first.token < second.token < third.token

    async def test_its_token_grows_across_release(self, store: Store) -> None:
        first = await held(store, "scheduler", "a")
        await store.release(first)
        second = await held(store, "scheduler", "a")
        assert first.token < second.token

    async def test_a_renewed_lease_lives_on_with_its_token(self, store: Store, clock: ManualClock) -> None:
        hold = await held(store, "scheduler", "a")
        clock.advance(TTL - 1)
        renewed = await store.renew_hold(hold)
        assert renewed == msgspec.structs.replace(hold, expires_at=clock.now() + TTL)
        clock.advance(TTL - 1)
        assert await store.acquire("scheduler", "b", TTL) is None

    async def test_an_expired_lease_is_renewed_or_free_but_never_both(self, store: Store, clock: ManualClock) -> None:
        hold = await held(store, "scheduler", "a")
        clock.advance(HOUR)
        renewed = await store.renew_hold(hold)
        other = await store.acquire("scheduler", "b", TTL)
        assert (renewed is None) != (other is None)

    async def test_a_lease_that_passed_to_another_is_not_renewed(self, store: Store, clock: ManualClock) -> None:
        old = await held(store, "scheduler", "a")
        clock.advance(TTL + 1)
        new = await held(store, "scheduler", "b")
        assert await store.renew_hold(old) is None
        assert await store.renew_hold(new) is not None

    async def test_a_lease_that_was_released_is_not_renewed(self, store: Store) -> None:
        hold = await held(store, "scheduler", "a")
        await store.release(hold)
        assert await store.renew_hold(hold) is None
        assert await store.acquire("scheduler", "b", TTL) is not None

    async def test_an_earlier_hold_of_the_same_owner_is_not_renewed(self, store: Store, clock: ManualClock) -> None:
        old = await held(store, "scheduler", "a")
        clock.advance(TTL + 1)
        await held(store, "scheduler", "a")
        assert await store.renew_hold(old) is None

    async def test_a_released_lease_is_free_at_once(self, store: Store) -> None:
        await store.release(await held(store, "scheduler", "a"))
        assert (await held(store, "scheduler", "b")).owner == "b"

    async def test_only_the_holder_releases(self, store: Store, clock: ManualClock) -> None:
        old = await held(store, "scheduler", "a")
        clock.advance(TTL + 1)
        new = await held(store, "scheduler", "a")
        await store.release(old)
        await store.release(msgspec.structs.replace(new, owner="b"))
        assert await store.acquire("scheduler", "c", TTL) is None

    async def test_releasing_twice_does_no_harm(self, store: Store) -> None:
        hold = await held(store, "scheduler", "a")
        await store.release(hold)
        await store.release(hold)
        await held(store, "scheduler", "b")

    async def test_each_term_is_greater_than_every_earlier_one(self, store: Store) -> None:
        owners = ["a", "b", "a", "c"]
        terms = [await store.begin_term("scheduler", owner) for owner in owners]
        assert [term.owner for term in terms] == owners
        assert [term.name for term in terms] == ["scheduler"] * 4
        numbers = [term.number for term in terms]
        assert numbers == sorted(set(numbers))

    async def test_repeating_the_beginning_of_a_term_returns_the_same_term(self, store: Store) -> None:
        first = await store.begin_term("scheduler", "a")
        assert await store.begin_term("scheduler", "a") == first
        second = await store.begin_term("scheduler", "b")
        assert await store.begin_term("scheduler", "b") == second

    async def test_terms_of_other_names_are_numbered_apart(self, store: Store) -> None:
        first = await store.begin_term("shard-1", "a")
        await store.begin_term("shard-2", "b")
        assert await store.begin_term("shard-1", "a") == first

    async def test_terms_begun_at_once_differ(self, store: Store) -> None:
        terms = await asyncio.gather(*(store.begin_term("scheduler", f"node-{n}") for n in range(20)))
        assert len({term.number for term in terms}) == 20

    async def test_the_history_of_terms_says_when_and_why_each_ended(self, store: Store, clock: ManualClock) -> None:
        began = clock.now()
        first = await store.begin_term("scheduler", "a")
        clock.advance(SECOND)
        await store.end_term(first, "shutting down")
        await store.end_term(first, "shutting down, said twice")
        clock.advance(SECOND)
        second = await store.begin_term("scheduler", "b")
        assert await store.terms("scheduler", 10) == [
            TermRecord("scheduler", second.number, "b", began + 2 * SECOND, None, ""),
            TermRecord("scheduler", first.number, "a", began, began + SECOND, "shutting down"),
        ]

    async def test_a_term_whose_owner_died_is_closed_by_the_next(self, store: Store, clock: ManualClock) -> None:
        await store.begin_term("scheduler", "a")
        clock.advance(SECOND)
        await store.begin_term("scheduler", "b")
        newest, oldest = await store.terms("scheduler", 10)
        assert (newest.owner, newest.ended_at) == ("b", None)
        assert (oldest.owner, oldest.ended_at) == ("a", clock.now())
        assert oldest.reason == OVERTAKEN

    async def test_the_term_of_an_owner_that_fell_silent_ended_with_its_last_renewal(
        self, store: Store, clock: ManualClock
    ) -> None:
        hold = await held(store, "scheduler", "a")
        await store.begin_term("scheduler", "a")
        clock.advance(SECOND)
        assert await store.renew_hold(hold) is not None
        last_sign = clock.now()
        clock.advance(TTL + SECOND)
        await held(store, "scheduler", "b")
        await store.begin_term("scheduler", "b")
        newest, oldest = await store.terms("scheduler", 10)
        assert newest.began_at == last_sign + TTL + SECOND
        assert (oldest.ended_at, oldest.reason) == (last_sign, OVERTAKEN)

    async def test_an_owner_that_leads_again_goes_on_with_its_term(self, store: Store) -> None:
        term = await store.begin_term("scheduler", "a")
        await store.end_term(term, "could not renew in time")
        assert await store.begin_term("scheduler", "a") == term
        (record,) = await store.terms("scheduler", 10)
        assert (record.ended_at, record.reason) == (None, "")

    async def test_an_old_term_ends_no_later_one(self, store: Store) -> None:
        old = await store.begin_term("scheduler", "a")
        await store.begin_term("scheduler", "b")
        await store.end_term(old, "at last")
        newest, oldest = await store.terms("scheduler", 10)
        assert newest.ended_at is None
        assert oldest.reason == OVERTAKEN

    async def test_the_history_is_bounded_and_by_name(self, store: Store, clock: ManualClock) -> None:
        await store.begin_term("shard-1", "a")
        for number in range(5):
            clock.advance(SECOND)
            await store.begin_term("scheduler", f"node-{number}")
        assert [record.number for record in await store.terms("scheduler", 3)] == [5, 4, 3]
        assert [record.name for record in await store.terms(None, 10)] == ["scheduler"] * 5 + ["shard-1"]

    async def test_each_change_of_leadership_is_an_event(self, store: Store) -> None:
        position = await store.next_position()
        term = await store.begin_term("scheduler", "a")
        await store.begin_term("scheduler", "a")
        await store.end_term(term, "shutting down")
        await store.number_events(10)
        batches = await store.events_since(position, 10)
        events = [(event.kind, event.worker, event.count, event.reason) for batch in batches for event in batch.events]
        assert events == [
            ("leader.elected", "a", term.number, "scheduler"),
            ("leader.resigned", "a", term.number, "scheduler: shutting down"),
        ]

    async def test_nodes_that_check_in_are_listed_until_they_leave(self, store: Store, clock: ManualClock) -> None:
        began = clock.now()
        await store.check_in(Node("b", "cluster", 5 * SECOND))
        await store.check_in(Node("a", "leader", 5 * SECOND, skew=-7, loops={"planner": "stalled", "reaper": ""}))
        clock.advance(5 * SECOND)
        await store.check_in(Node("b", "cluster", 5 * SECOND, skew=3))
        assert await store.nodes() == [
            Node("a", "leader", 5 * SECOND, began, began, -7, {"planner": "stalled", "reaper": ""}),
            Node("b", "cluster", 5 * SECOND, began, clock.now(), 3),
        ]
        clock.advance(10 * SECOND)
        assert [(node.name, node.is_alive(clock.now())) for node in await store.nodes()] == [("a", False), ("b", True)]
        await store.leave("b")
        assert [node.name for node in await store.nodes()] == ["a"]

    async def test_a_node_that_died_is_forgotten_after_a_day(self, store: Store, clock: ManualClock) -> None:
        await store.check_in(Node("a", "cluster", 5 * SECOND))
        clock.advance(25 * HOUR)
        await store.check_in(Node("b", "cluster", 5 * SECOND))
        assert [node.name for node in await store.nodes()] == ["b"]
