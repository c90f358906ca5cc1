"""What a broker must do, beside the store whose runs it carries: lose nothing, do nothing twice, deliver in order.

The suite asks by capability: what a broker says that it cannot do is not asked of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from mainspring.broker import Broker, Delivery, Notice, Place, Subscription
from mainspring.clock import SystemClock
from mainspring.conformance.store.samples import TTL, a_run, a_worker, submit, success
from mainspring.core.instants import MILLISECOND, MINUTE, SECOND, Duration
from mainspring.core.model import Claim, Worker
from mainspring.core.runs.priority import PRIORITIES
from mainspring.store import Store
from mainspring.testing.clock import ManualClock

Elapse = Callable[[Duration], Awaitable[None]]

POLL_S = 0.01


async def dispatch(store: Store, broker: Broker) -> None:
    """Publish what is due, as the dispatcher does."""
    due, _ = await store.due_runs(1_000)
    await broker.publish(due)


def named(deliveries: Sequence[Delivery]) -> list[tuple[str, int]]:
    """The runs of deliveries, as the store is asked for them."""
    return [(each.run_id, each.token) for each in deliveries]


def ids(claims: Sequence[Claim]) -> list[str]:
    """The runs of claims."""
    return [claim.run_id for claim in claims]


class BrokerConformance:
    """All guarantees of the broker port. Subclass it and provide the fixtures `store` and `clock` (as for a store),
    `broker`, which is empty and orders strictly, and `elapse`, which lets time pass for the broker and the clock."""

    patience_s = 20.0
    """How long messages may take to arrive."""
    quiet_s = 0.05
    """How long to wait before the suite believes that nothing arrives. A broker that fetches in rounds needs more."""
    tells_when_sent = False
    """Whether deliveries say when they were published."""

    async def kill(self, subscription: Subscription) -> None:
        """End a subscription as the death of its process would, without a word to the broker. A suite whose broker
        judges that by the connection closes the connection here; others let the time pass (`elapse`)."""

    @asynccontextmanager
    async def subscribed(self, broker: Broker, worker: Worker | None = None) -> AsyncIterator[Subscription]:
        """A worker's subscription."""
        subscription = await broker.subscribe(worker or a_worker(), lambda: None)
        try:
            yield subscription
        finally:
            await subscription.close()

    async def receive(
        self, subscription: Subscription, count: int, priorities: Sequence[int] = PRIORITIES
    ) -> list[Delivery]:
        """`count` deliveries, as soon as they have arrived, and no more."""
        deliveries: list[Delivery] = []
        async with asyncio.timeout(self.patience_s):
            while len(deliveries) < count:
                some = await subscription.receive(count - len(deliveries), priorities)
                assert len(some) <= count - len(deliveries)
                deliveries += some
                if not some:
                    await asyncio.sleep(POLL_S)
        return deliveries

    async def gather(self, subscription: Subscription, priorities: Sequence[int] = PRIORITIES) -> list[Delivery]:
        """All that arrives until nothing has for a while."""
        deliveries: list[Delivery] = []
        loop = asyncio.get_running_loop()
        last = loop.time()
        async with asyncio.timeout(self.patience_s):
            while loop.time() - last < self.quiet_s:
                if some := await subscription.receive(100, priorities):
                    deliveries += some
                    last = loop.time()
                else:
                    await asyncio.sleep(POLL_S)
        return deliveries

    async def claim(
        self,
        store: Store,
        subscription: Subscription,
        worker: Worker,
        count: int,
        priorities: Sequence[int] = PRIORITIES,
    ) -> list[Claim]:
        """Receive, claim, acknowledge, as a worker does, until there are `count` claims."""
        claims: list[Claim] = []
        async with asyncio.timeout(self.patience_s):
            while len(claims) < count:
                deliveries = await subscription.receive(count - len(claims), priorities)
                claims += await store.claim_these(worker, named(deliveries), TTL)
                await subscription.ack(deliveries)
                if not deliveries:
                    await asyncio.sleep(POLL_S)
        return claims

    async def claim_all(self, store: Store, subscription: Subscription, worker: Worker) -> list[Claim]:
        """The claims of all that arrives until nothing has for a while."""
        deliveries = await self.gather(subscription)
        claims = await store.claim_these(worker, named(deliveries), TTL)
        await subscription.ack(deliveries)
        return claims

    async def test_what_is_due_comes_to_a_worker_once(self, store: Store, broker: Broker, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(5)]
        await submit(store, *runs)
        await dispatch(store, broker)
        async with self.subscribed(broker) as subscription:
            assert set(ids(await self.claim(store, subscription, a_worker(), 5))) == {run.id for run in runs}
        async with self.subscribed(broker, a_worker("other")) as other:
            assert await self.claim_all(store, other, a_worker("other")) == []

    async def test_an_empty_broker_gives_nothing(self, broker: Broker) -> None:
        async with self.subscribed(broker) as subscription:
            assert await subscription.receive(10) == []
            await subscription.ack([])
            await subscription.release([])
        await broker.publish([])
        await broker.ping()

    async def test_the_subscriber_hears_of_what_arrives(self, store: Store, broker: Broker, clock: ManualClock) -> None:
        arrived = asyncio.Event()
        subscription = await broker.subscribe(a_worker(), arrived.set)
        assert await self.gather(subscription) == []
        arrived.clear()
        await submit(store, a_run(clock))
        await dispatch(store, broker)
        await asyncio.wait_for(arrived.wait(), self.patience_s)
        assert len(await self.claim(store, subscription, a_worker(), 1)) == 1
        await subscription.close()

    async def test_no_more_than_asked_for_is_given_and_the_best_first(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        now = clock.now()
        order = [(1, now - 1), (1, now), (2, now - MINUTE), (3, now - MINUTE), (10, now - 2 * MINUTE)]
        runs = [a_run(clock, priority=priority, due_at=due_at) for priority, due_at in order]
        await submit(store, *reversed(runs))
        await dispatch(store, broker)
        async with self.subscribed(broker) as subscription:
            first = await self.claim(store, subscription, a_worker(), 2)
            second = await self.claim(store, subscription, a_worker(), 3)
        assert (len(first), set(ids(first + second))) == (2, {run.id for run in runs})
        assert ids(first + second) == [run.id for run in runs] or not broker.capabilities.priorities

    async def test_notices_of_one_order_key_keep_their_order(self, broker: Broker, clock: ManualClock) -> None:
        keys = ("a", "b", "c")
        for number in range(30):
            notice = Notice(f"{number:02d}", 0, "default", "default", "default", 5, clock.now(), keys[number % 3])
            await broker.publish([notice])
        async with self.subscribed(broker) as subscription:
            received = [each.run_id for each in await self.receive(subscription, 30)]
        assert sorted(received) == [f"{number:02d}" for number in range(30)]
        by_key = sorted(received, key=lambda each: int(each) % 3)
        assert (
            by_key == [f"{n:02d}" for place in range(3) for n in range(place, 30, 3)]
            or not broker.capabilities.key_order
        )

    async def test_what_is_published_twice_is_claimed_once(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        await submit(store, *(a_run(clock) for _ in range(3)))
        await dispatch(store, broker)
        await dispatch(store, broker)
        async with (
            self.subscribed(broker) as subscription,
            self.subscribed(broker, a_worker("other")) as another,
        ):
            deliveries = await self.gather(subscription)
            others = await self.gather(another)
            if broker.capabilities.deduplicates:
                assert len(deliveries + others) == 3
            claims = await store.claim_these(a_worker(), named(deliveries), TTL)
            claims += await store.claim_these(a_worker("other"), named(others), TTL)
            assert len(claims) == 3
            await subscription.ack(deliveries)
            await another.ack(others)

    async def test_what_is_on_its_way_to_a_worker_is_not_added_again(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        await submit(store, *(a_run(clock) for _ in range(3)))
        await dispatch(store, broker)
        async with self.subscribed(broker) as subscription:
            deliveries = await self.receive(subscription, 3)
            await dispatch(store, broker)
            again = await self.gather(subscription)
            assert again == [] or not broker.capabilities.deduplicates
            assert len(await store.claim_these(a_worker(), named(deliveries + again), TTL)) == 3
            await subscription.ack(deliveries + again)

    async def test_a_worker_receives_from_the_places_that_it_serves_only(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        mail, eu, both = a_run(clock, queue="mail"), a_run(clock, region="eu"), a_run(clock, queue="mail", region="eu")
        other = a_run(clock, namespace="other")
        await submit(store, mail, eu, both, other)
        await dispatch(store, broker)
        for worker, runs in (
            (a_worker(), []),
            (a_worker(queues=("mail",), regions=("eu", "default")), [mail, both]),
            (a_worker(regions=("eu",)), [eu]),
            (a_worker(namespace="other"), [other]),
        ):
            async with self.subscribed(broker, worker) as subscription:
                found = await self.claim(store, subscription, worker, len(runs))
                found += await self.claim_all(store, subscription, worker)
            assert set(ids(found)) == {run.id for run in runs}

    async def test_a_worker_receives_the_priorities_that_it_asks_for_only(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        runs = {priority: a_run(clock, priority=priority) for priority in (1, 2, 5, 10)}
        await submit(store, *runs.values())
        await dispatch(store, broker)
        async with self.subscribed(broker) as subscription:
            assert await self.gather(subscription, (3, 4)) == []
            low = await self.claim(store, subscription, a_worker(), 2, (5, 6, 7, 8, 9, 10))
            assert set(ids(low)) == {runs[5].id, runs[10].id}
            rest = await self.claim(store, subscription, a_worker(), 2, (1, 2))
            assert set(ids(rest)) == {runs[1].id, runs[2].id}

    async def test_what_a_worker_asks_for_passes_what_it_leaves(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        left = [a_run(clock, priority=1) for _ in range(10)]
        wanted = a_run(clock, priority=9)
        await submit(store, *left, wanted)
        await dispatch(store, broker)
        async with self.subscribed(broker) as subscription:
            assert ids(await self.claim(store, subscription, a_worker(), 1, (7, 8, 9, 10))) == [wanted.id]
            rest = await self.claim(store, subscription, a_worker(), len(left), (1, 2))
        assert set(ids(rest)) == {run.id for run in left}

    async def test_what_is_released_comes_again_in_its_order(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        runs = [a_run(clock, priority=priority) for priority in (1, 2, 3)]
        await submit(store, *runs)
        await dispatch(store, broker)
        async with self.subscribed(broker) as subscription:
            await subscription.release(await self.receive(subscription, 2))
        if not broker.capabilities.releases:  # What it forgets is published again.
            await dispatch(store, broker)
        async with self.subscribed(broker, a_worker("other")) as another:
            found = ids(await self.claim(store, another, a_worker("other"), 3))
        assert set(found) == {run.id for run in runs}
        assert found == [run.id for run in runs] or not broker.capabilities.priorities

    async def test_what_a_subscription_held_when_it_was_closed_comes_to_another(
        self, store: Store, broker: Broker, clock: ManualClock, elapse: Elapse
    ) -> None:
        await submit(store, *(a_run(clock) for _ in range(3)))
        await dispatch(store, broker)
        async with self.subscribed(broker) as subscription:
            await self.receive(subscription, 2)
        await elapse(MINUTE)
        await dispatch(store, broker)
        async with self.subscribed(broker, a_worker("other")) as another:
            assert len(await self.claim(store, another, a_worker("other"), 3)) == 3

    async def test_what_a_worker_that_died_had_not_claimed_comes_to_another(
        self, store: Store, broker: Broker, clock: ManualClock, elapse: Elapse
    ) -> None:
        await submit(store, *(a_run(clock) for _ in range(3)))
        await dispatch(store, broker)
        dead = await broker.subscribe(a_worker("dead"), lambda: None)
        assert len(await self.receive(dead, 3)) == 3
        await self.kill(dead)
        await elapse(MINUTE)
        if not broker.capabilities.releases:
            await dispatch(store, broker)
        async with self.subscribed(broker, a_worker("other")) as another:
            assert len(await self.claim(store, another, a_worker("other"), 3)) == 3

    async def test_what_a_worker_that_died_had_claimed_comes_to_another_once_the_store_says_so(
        self, store: Store, broker: Broker, clock: ManualClock, elapse: Elapse
    ) -> None:
        run = a_run(clock)
        await submit(store, run)
        await dispatch(store, broker)
        dead = await broker.subscribe(a_worker("dead"), lambda: None)
        deliveries = await self.receive(dead, 1)
        assert len(await store.claim_these(a_worker("dead"), named(deliveries), 5 * MINUTE)) == 1
        await self.kill(dead)
        await elapse(MINUTE)
        async with self.subscribed(broker, a_worker("other")) as another:
            assert await self.claim_all(store, another, a_worker("other")) == []
            await elapse(10 * MINUTE)
            await store.recover(SECOND, 100)
            await elapse(10 * MINUTE)
            await dispatch(store, broker)
            (again,) = await self.claim(store, another, a_worker("other"), 1)
        assert (again.run_id, again.token) == (run.id, 2)

    async def test_what_is_handed_back_or_retried_comes_again_with_its_new_token(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        await submit(store, a_run(clock))
        await dispatch(store, broker)
        async with self.subscribed(broker) as subscription:
            (first,) = await self.claim(store, subscription, a_worker(), 1)
            await store.hand_back([(first.run_id, first.token)])
            await dispatch(store, broker)
            (second,) = await self.claim(store, subscription, a_worker(), 1)
        assert second.token == first.token + 1

    async def test_of_many_workers_at_once_one_claims_each_run(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        await submit(store, *(a_run(clock) for _ in range(60)))
        await dispatch(store, broker)
        claimed: list[str] = []

        async def work(name: str) -> None:
            worker = a_worker(name)
            async with self.subscribed(broker, worker) as subscription:
                while (await store.due_runs(1))[0]:
                    deliveries = await subscription.receive(7)
                    claims = await store.claim_these(worker, named(deliveries), TTL)
                    await subscription.ack(deliveries)
                    claimed.extend(ids(claims))
                    await store.report([success(each) for each in claims])
                    await asyncio.sleep(0 if claims else POLL_S)

        await asyncio.wait_for(asyncio.gather(*(work(f"w{n}") for n in range(6))), 60)
        assert len(claimed) == 60
        assert len(set(claimed)) == 60

    async def test_depth_is_what_waits_in_each_place(self, store: Store, broker: Broker, clock: ManualClock) -> None:
        await submit(store, *(a_run(clock) for _ in range(4)), a_run(clock, queue="mail"))
        await dispatch(store, broker)
        here, mail = Place("default", "default", "default"), Place("default", "mail", "default")
        await self._await_depth(broker, {here: 4, mail: 1})
        async with self.subscribed(broker) as subscription:
            assert len(await self.claim(store, subscription, a_worker(), 4)) == 4
        await self._await_depth(broker, {mail: 1})

    async def _await_depth(self, broker: Broker, depth: dict[Place, int]) -> None:
        """A depth may lag a little."""
        found = Counter[Place]()
        for _ in range(round(self.patience_s / POLL_S)):
            found = Counter[Place]()
            for each in await broker.depth():
                found[each.place] += each.waiting
            found = +found
            if found == depth:
                return
            await asyncio.sleep(POLL_S)
        assert found == depth

    async def test_a_delivery_says_when_it_was_published(self, broker: Broker, clock: ManualClock) -> None:
        began = SystemClock().now()
        await broker.publish([Notice("r", 0, "default", "default", "default", 5, clock.now())])
        async with self.subscribed(broker) as subscription:
            (delivery,) = await self.receive(subscription, 1)
        if not self.tells_when_sent:
            assert delivery.sent_at is None
        else:  # Servers round down to milliseconds.
            assert delivery.sent_at is not None
            assert began - MILLISECOND <= delivery.sent_at <= SystemClock().now() + MILLISECOND

    async def test_names_with_any_characters_are_places_of_their_own(
        self, store: Store, broker: Broker, clock: ManualClock
    ) -> None:
        for queue in ("a/b", "a}b{", "naïve ☃", "a:b", "%7D"):
            run = a_run(clock, queue=queue)
            await submit(store, run)
            await dispatch(store, broker)
            worker = a_worker(queues=(queue,))
            async with self.subscribed(broker, worker) as subscription:
                assert ids(await self.claim(store, subscription, worker, 1)) == [run.id]
