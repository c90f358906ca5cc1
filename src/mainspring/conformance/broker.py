"""What a broker must do, beside the store whose runs it carries: nothing is lost, nothing is done twice, best first."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from mainspring.broker import Broker, Delivery
from mainspring.conformance.store.samples import TTL, a_run, a_worker, submit, success
from mainspring.core.instants import MINUTE, SECOND, Duration
from mainspring.core.model import Claim, Worker
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

Elapse = Callable[[Duration], Awaitable[None]]


async def dispatch(store: Store, broker: Broker) -> None:
    """What the dispatcher does."""
    due, _ = await store.due_runs(1_000)
    await broker.publish(due)


async def claim(store: Store, broker: Broker, worker: Worker, limit: int = 100) -> list[Claim]:
    """What a worker does: receive, claim, acknowledge."""
    deliveries = await broker.receive(worker, limit)
    claims = await store.claim_these(worker, named(deliveries), TTL)
    await broker.ack(deliveries)
    return claims


def named(deliveries: list[Delivery]) -> list[tuple[str, int]]:
    """The runs of deliveries, as the store is asked for them."""
    return [(each.run_id, each.token) for each in deliveries]


class BrokerConformance:
    """All guarantees of the broker port. Subclass it and provide the fixtures `store` and `clock` (as for a store),
    `broker`, which is empty and orders strictly, and `elapse`, which lets time pass for the broker and the clock."""

    async def test_what_is_due_comes_to_a_worker_once(self, store: Store, broker: Broker, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(5)]
        await submit(store, *runs)
        await dispatch(store, broker)
        assert {each.run_id for each in await claim(store, broker, a_worker())} == {run.id for run in runs}
        assert await claim(store, broker, a_worker("other")) == []

    async def test_an_empty_broker_gives_nothing(self, broker: Broker) -> None:
        assert await broker.receive(a_worker(), 10) == []
        await broker.ack([])
        await broker.release([])
        await broker.publish([])

    async def test_no_more_than_asked_for_is_given_and_the_best_first(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        now = clock.now()
        order = [(1, now - 1), (1, now), (2, now - MINUTE), (3, now - MINUTE), (10, now - 2 * MINUTE)]
        runs = [a_run(clock, priority=priority, due_at=due_at) for priority, due_at in order]
        await submit(store, *reversed(runs))
        await dispatch(store, broker)
        first = await claim(store, broker, a_worker(), 2)
        second = await claim(store, broker, a_worker(), 10)
        assert [each.run_id for each in first + second] == [run.id for run in runs]

    async def test_what_is_said_twice_is_given_once(self, store: Store, broker: Broker, clock: ManualClock) -> None:
        await submit(store, *(a_run(clock) for _ in range(3)))
        await dispatch(store, broker)
        await dispatch(store, broker)
        deliveries = await broker.receive(a_worker(), 10)
        await dispatch(store, broker)
        assert len(deliveries) == 3
        others = await broker.receive(a_worker("other"), 10)
        claims = await store.claim_these(a_worker(), named(deliveries), TTL)
        assert len(claims) == 3
        assert await store.claim_these(a_worker("other"), named(others), TTL) == []
        await broker.ack(deliveries + others)

    async def test_only_lines_that_a_worker_serves_come_to_it(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        mail, eu, both = a_run(clock, queue="mail"), a_run(clock, region="eu"), a_run(clock, queue="mail", region="eu")
        other = a_run(clock, namespace="other")
        await submit(store, mail, eu, both, other)
        await dispatch(store, broker)
        assert await claim(store, broker, a_worker()) == []
        found = await claim(store, broker, a_worker(queues=("mail",), regions=("eu", "default")))
        assert {each.run_id for each in found} == {mail.id, both.id}
        assert [each.run_id for each in await claim(store, broker, a_worker(regions=("eu",)))] == [eu.id]
        assert [each.run_id for each in await claim(store, broker, a_worker(namespace="other"))] == [other.id]

    async def test_only_runs_of_the_priorities_that_a_worker_takes_come_to_it(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        runs = {priority: a_run(clock, priority=priority) for priority in (1, 2, 5, 10)}
        await submit(store, *runs.values())
        await dispatch(store, broker)
        assert await claim(store, broker, a_worker(priorities=(3, 4))) == []
        low = await claim(store, broker, a_worker(priorities=(5, 6, 7, 8, 9, 10)))
        assert [each.run_id for each in low] == [runs[5].id, runs[10].id]
        rest = await claim(store, broker, a_worker(priorities=(1, 2)))
        assert [each.run_id for each in rest] == [runs[1].id, runs[2].id]

    async def test_what_is_released_is_in_its_place_again(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        runs = [a_run(clock, priority=priority) for priority in (1, 2, 3)]
        await submit(store, *runs)
        await dispatch(store, broker)
        await broker.release(await broker.receive(a_worker(), 2))
        found = await claim(store, broker, a_worker("other"))
        assert [each.run_id for each in found] == [run.id for run in runs]

    async def test_what_a_worker_that_died_had_not_claimed_comes_to_another(
        self, store: Store, broker: Broker, clock: ManualClock, elapse: Elapse
    ) -> None:
        await submit(store, *(a_run(clock) for _ in range(3)))
        await dispatch(store, broker)
        assert len(await broker.receive(a_worker("dead"), 10)) == 3
        await elapse(MINUTE)
        assert len(await claim(store, broker, a_worker("other"))) == 3

    async def test_what_a_worker_that_died_had_claimed_comes_to_another_once_the_store_says_so(
        self, store: Store, broker: Broker, clock: ManualClock, elapse: Elapse
    ) -> None:
        run = a_run(clock)
        await submit(store, run)
        await dispatch(store, broker)
        deliveries = await broker.receive(a_worker("dead"), 10)
        assert len(await store.claim_these(a_worker("dead"), named(deliveries), 5 * MINUTE)) == 1
        await elapse(MINUTE)
        assert await claim(store, broker, a_worker("other")) == []
        await elapse(10 * MINUTE)
        await store.recover(SECOND, 100)
        await elapse(10 * MINUTE)
        await dispatch(store, broker)
        (again,) = await claim(store, broker, a_worker("other"))
        assert (again.run_id, again.token) == (run.id, 2)

    async def test_what_is_handed_back_or_retried_comes_again_with_its_new_token(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        await submit(store, a_run(clock))
        await dispatch(store, broker)
        (first,) = await claim(store, broker, a_worker())
        await store.hand_back([(first.run_id, first.token)])
        await dispatch(store, broker)
        (second,) = await claim(store, broker, a_worker())
        assert second.token == first.token + 1

    async def test_of_many_workers_that_take_at_once_each_run_is_claimed_by_one(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        await submit(store, *(a_run(clock) for _ in range(60)))
        await dispatch(store, broker)
        claimed: list[str] = []

        async def work(name: str) -> None:
            for _ in range(100):
                await dispatch(store, broker)
                claims = await claim(store, broker, a_worker(name), 7)
                claimed.extend(each.run_id for each in claims)
                await store.report([success(each) for each in claims])
                if not (await store.due_runs(1))[0]:
                    return

        await asyncio.wait_for(asyncio.gather(*(work(f"w{n}") for n in range(6))), 60)
        assert len(claimed) == 60
        assert len(set(claimed)) == 60

    async def test_names_with_any_characters_are_lines_of_their_own(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        for queue in ("a/b", "a}b{", "naïve ☃", "a:b", "%7D"):
            run = a_run(clock, queue=queue)
            await submit(store, run)
            await dispatch(store, broker)
            found = await claim(store, broker, a_worker(queues=(queue,)))
            assert [each.run_id for each in found] == [run.id]
