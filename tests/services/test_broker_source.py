"""Workers that a broker delivers to: claims are the store's, and where the broker fails, the store is asked at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from stage import FaultyStore, JumpingClock, let_pass, turning

from mainspring.api.prometheus import broker_families, show
from mainspring.broker import Capabilities, Delivery, Depth, Notice, Place
from mainspring.conformance.store.samples import TTL, a_run, a_worker, submit
from mainspring.core.instants import SECOND
from mainspring.core.model import Claim, Worker
from mainspring.core.runs.priority import PRIORITIES
from mainspring.errors import BrokerUnavailable, StoreUnavailable
from mainspring.process.metrics import Metrics
from mainspring.services.breaker import SLOW_S, CircuitBreaker
from mainspring.services.broker_metrics import DepthReader, measured_publish
from mainspring.services.scheduler.dispatcher import AGAIN_S, AGAIN_TWICE_S, FULL_GAP_S, LIMIT, Dispatcher
from mainspring.services.store_layers import MeasuredStore
from mainspring.services.worker.broker_source import EXTEND_S, LOOK_S, BrokerSource
from mainspring.services.worker.claimer import ClaimSource
from mainspring.store import Store
from mainspring.stores.sqlite.store import SqliteStore


class Line:
    """A broker, and its only subscription, that may be away, slow or forgetful, and remembers what it received."""

    capabilities = Capabilities()

    def __init__(self, clock: JumpingClock) -> None:
        self._clock = clock
        self.away = False
        self.slow = False
        self.asked = 0
        self.lasts = -1
        self.sent_at: int | None = None
        self.redelivers = False
        self.published: list[str] = []
        self.queued: dict[str, Notice] = {}
        self.acked: list[str] = []
        self.released: list[str] = []
        self.extended: list[str] = []

    async def publish(self, notices: Sequence[Notice]) -> None:
        self._answer()
        self.published += [notice.run_id for notice in notices]
        self.queued |= {notice.run_id: notice for notice in notices}

    async def subscribe(self, worker: Worker, on_arrival: Callable[[], None]) -> Line:
        self._answer()
        return self

    async def depth(self) -> list[Depth]:
        self._answer()
        return [Depth(Place("default", "default", "default"), len(self.queued), "line")]

    async def ping(self) -> None:
        self.asked += 1
        self._answer()

    async def receive(self, limit: int, priorities: Sequence[int] = PRIORITIES) -> list[Delivery]:
        self.asked += 1
        self._answer()
        self.lasts -= 1
        self.away = self.away or self.lasts == 0
        taken = list(self.queued.values())[:limit]
        for notice in taken:
            del self.queued[notice.run_id]
        return [Delivery(each.run_id, each.token, each, self.redelivers, self.sent_at) for each in taken]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        self._answer()
        self.acked += [each.run_id for each in deliveries]

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        self._answer()
        self.released += [each.run_id for each in deliveries]

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        self._answer()
        self.extended += [each.run_id for each in deliveries]

    async def close(self) -> None:
        self._answer()

    def _answer(self) -> None:
        if self.slow:
            self._clock.advance(int((SLOW_S + 0.1) * SECOND))
        if self.away:
            raise BrokerUnavailable("away")


async def subscribed(store: Store, line: Line, clock: JumpingClock) -> BrokerSource:
    source = BrokerSource(store, line, clock, "w")
    source.start(a_worker("w"), lambda: None)
    await let_pass(clock, "1ms")
    return source


@pytest.fixture
def line(clock: JumpingClock) -> Line:
    return Line(clock)


@pytest.fixture
async def source(store: SqliteStore, line: Line, clock: JumpingClock) -> BrokerSource:
    return await subscribed(MeasuredStore(store), line, clock)


async def claim(source: ClaimSource, limit: int = 10) -> list[str]:
    return [each.run_id for each in await source.claim(a_worker("w"), limit, TTL, "strict")]


async def kinds(store: SqliteStore) -> list[str]:
    await store.number_events(100)
    reported = [event.kind for batch in await store.events_since(0, 1_000) for event in batch.events]
    return [kind for kind in reported if kind.startswith("broker.")]


async def test_what_is_delivered_is_claimed_and_acknowledged(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    runs = [a_run(clock) for _ in range(3)]
    await submit(store, *runs)
    await line.publish((await store.due_runs(10))[0])
    assert await claim(source) == [run.id for run in runs]
    await let_pass(clock, "1ms")
    assert line.acked == [run.id for run in runs]


async def test_what_is_not_delivered_is_found_in_the_store_a_little_later(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    run = a_run(clock)
    await submit(store, run)
    assert await claim(source) == []
    clock.advance(int(LOOK_S * SECOND))
    assert await claim(source) == [run.id]


async def test_deliveries_that_the_store_refuses_are_replaced_by_others(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    runs = [a_run(clock) for _ in range(4)]
    await submit(store, *runs)
    notices = (await store.due_runs(10))[0]
    await store.claim_these(a_worker("other"), [(run.id, 0) for run in runs[:2]], TTL)
    await line.publish(notices)
    assert await claim(source, 2) == [run.id for run in runs[2:]]
    await let_pass(clock, "1ms")
    assert len(line.acked) == 4


async def test_a_broker_that_is_away_costs_nothing_but_the_first_tries(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    line.away = True
    for number in range(50):
        run = a_run(clock)
        await submit(store, run)
        assert await claim(source) == [run.id], number
        await let_pass(clock, "10ms")
    assert line.asked < 10
    assert await kinds(store) == ["broker.lost"]
    assert source._store.metrics.counts["broker", "lost"] == 1


async def test_a_broker_that_is_back_delivers_again(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    line.away = True
    for _ in range(5):
        await claim(source)
    line.away = False
    for _ in range(20):
        await claim(source)
        await let_pass(clock, "500ms")
    assert await kinds(store) == ["broker.lost", "broker.back"]
    run = a_run(clock)
    await submit(store, run)
    await line.publish((await store.due_runs(10))[0])
    assert await claim(source) == [run.id]
    await let_pass(clock, "1ms")
    assert line.acked == [run.id]


async def test_a_broker_that_is_slow_is_as_good_as_away(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    line.slow = True
    for _ in range(5):
        await claim(source)
        await let_pass(clock, "1ms")
    assert await kinds(store) == ["broker.lost"]


async def test_a_backlog_is_claimed_from_the_store_until_it_is_worked_off(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    runs = [a_run(clock) for _ in range(100)]
    await submit(store, *runs)
    await line.publish((await store.due_runs(25))[0])
    claimed = [run_id for _ in range(4) for run_id in await claim(source, 25)]
    assert sorted(claimed) == sorted(run.id for run in runs)
    assert line.asked == 1
    assert await claim(source, 25) == []
    await submit(store, a_run(clock))
    await line.publish((await store.due_runs(25))[0])
    assert len(await claim(source, 25)) == 1
    assert line.asked == 2


async def test_a_message_that_says_there_is_more_fills_the_worker_from_the_store(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    runs = [a_run(clock) for _ in range(30)]
    await submit(store, *runs)
    await line.publish([notice.with_more() for notice in (await store.due_runs(3))[0]])
    assert await claim(source, 10) == [run.id for run in runs[:10]]
    assert await claim(source, 30) == [run.id for run in runs[10:]]
    assert line.asked == 1  # There was a backlog.
    await let_pass(clock, "1ms")
    assert line.acked == [run.id for run in runs[:3]]


async def test_what_a_message_says_of_more_is_refused_where_its_run_has_another_token(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    run = a_run(clock)
    await submit(store, run)
    (notice,), _ = await store.due_runs(1)
    (held,) = await store.claim(a_worker("other"), 1, TTL, "strict")
    await line.publish([notice.with_more()])
    assert await claim(source) == []
    await store.hand_back([(run.id, held.token)])
    assert await store.claim_these(a_worker("w"), [(run.id, ~held.token)], TTL) == []
    assert len(await store.claim_these(a_worker("w"), [(run.id, held.token)], TTL)) == 1


async def test_what_was_delivered_is_kept_where_the_store_cannot_be_asked_for_more(
    store: SqliteStore, line: Line, clock: JumpingClock
) -> None:
    faulty: Any = FaultyStore(store)
    source = await subscribed(faulty, line, clock)
    runs = [a_run(clock) for _ in range(5)]
    await submit(store, *runs)
    await line.publish([notice.with_more() for notice in (await store.due_runs(2))[0]])
    faulty.lose_request("claim")
    assert await claim(source) == [run.id for run in runs[:2]]


async def test_what_was_claimed_is_not_forgotten_where_the_broker_goes_away(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    runs = [a_run(clock) for _ in range(4)]
    await submit(store, *runs)
    notices = (await store.due_runs(10))[0]
    await store.claim_these(a_worker("other"), [(run.id, 0) for run in runs[:1]], TTL)
    await line.publish(notices)
    line.lasts = 1
    assert await claim(source, 2) == [runs[1].id]


async def test_a_backlog_that_lasts_does_not_silence_the_broker(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    await submit(store, *(a_run(clock) for _ in range(200)))
    await line.publish([Notice(f"stale-{n}", 0, "default", "default", "default", 5, 0) for n in range(20)])
    source._note_depth(a_worker("w"), True)
    asked = line.asked
    for _ in range(20):
        assert len(await claim(source, 5)) == 5
        await let_pass(clock, "100ms")
    assert line.queued == {}  # What the store refuses is gone all the same.
    assert line.asked - asked <= 20  # The broker is asked once a second, for as many rounds as bring something.
    assert a_worker("w").priorities in source._deep


async def test_while_the_broker_delivers_no_claim_looks_ahead_in_the_store(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    await submit(store, a_run(clock, due_at=clock.now() + SECOND))
    assert await source.next_due(a_worker("w")) is None
    line.away = True
    for _ in range(5):
        await claim(source)
    assert await source.next_due(a_worker("w")) == clock.now() + SECOND


async def test_what_could_not_be_claimed_because_the_store_is_away_goes_back(
    store: SqliteStore, line: Line, clock: JumpingClock
) -> None:
    faulty: Any = FaultyStore(store)
    source = await subscribed(faulty, line, clock)
    run = a_run(clock)
    await submit(store, run)
    await line.publish((await store.due_runs(10))[0])
    faulty.lose_request("claim_these")
    with pytest.raises(StoreUnavailable):
        await claim(source)
    await let_pass(clock, "1ms")
    assert line.released == [run.id]
    assert line.acked == []


class TestDispatcher:
    async def test_what_comes_due_is_published_when_it_is_due(
        self, store: SqliteStore, line: Line, clock: JumpingClock
    ) -> None:
        now, later = a_run(clock), a_run(clock, due_at=clock.now() + 300_000)
        await submit(store, now, later)
        async with turning(Dispatcher(store, line, lambda: True, clock, Random(0))):
            await let_pass(clock, "10ms")
            assert line.published == [now.id]
            await let_pass(clock, "310ms")
            assert line.published == [now.id, later.id]

    async def test_an_unclaimed_run_is_published_again_and_a_claimed_one_is_not(
        self, store: SqliteStore, line: Line, clock: JumpingClock
    ) -> None:
        claimed, waiting = a_run(clock), a_run(clock)
        await submit(store, claimed, waiting)
        async with turning(Dispatcher(store, line, lambda: True, clock, Random(0))):
            await let_pass(clock, "10ms")
            await store.claim_these(a_worker("w"), [(claimed.id, 0)], TTL)
            line.queued.clear()  # FLUSHALL
            await let_pass(clock, f"{AGAIN_S + 1:g}s")
        assert list(line.queued) == [waiting.id]
        assert line.published.count(claimed.id) == 1
        assert line.published.count(waiting.id) >= 2

    async def test_a_broker_that_would_hold_it_twice_gets_it_again_much_later(
        self, store: SqliteStore, line: Line, clock: JumpingClock
    ) -> None:
        line.capabilities = Capabilities(deduplicates=False)
        await submit(store, a_run(clock))
        async with turning(Dispatcher(store, line, lambda: True, clock, Random(0))):
            await let_pass(clock, f"{AGAIN_TWICE_S - 1:g}s")
            assert len(line.published) == 1
            await let_pass(clock, "2s")
            assert len(line.published) == 2

    async def test_of_many_the_first_are_published_and_say_that_there_are_more(
        self, store: SqliteStore, line: Line, clock: JumpingClock
    ) -> None:
        many, other = [a_run(clock) for _ in range(3 * LIMIT)], a_run(clock, queue="other")
        await submit(store, *many)
        dispatcher = Dispatcher(store, line, lambda: True, clock, Random(0))
        async with turning(dispatcher):
            await let_pass(clock, "10ms")
            assert line.published == [run.id for run in many[:LIMIT]]
            assert {notice.token for notice in line.queued.values()} == {~0}
            await store.claim(a_worker("w"), LIMIT, TTL, "strict")
            await submit(store, other)
            dispatcher.wake()
            await let_pass(clock, "20ms")
            assert line.published[LIMIT:] == [other.id]  # The others wait for a moment.
            await let_pass(clock, f"{FULL_GAP_S:g}s")
            assert line.published[LIMIT + 1 :] == [run.id for run in many[LIMIT : 2 * LIMIT]]
            await store.claim(a_worker("w"), LIMIT + 1, TTL, "strict")
            await let_pass(clock, f"{FULL_GAP_S:g}s")
            assert line.published[2 * LIMIT + 1 :] == [run.id for run in many[2 * LIMIT + 1 :]]
            assert line.queued[many[-1].id].token == 0

    async def test_runs_that_no_worker_can_execute_do_not_silence_those_behind_them(
        self, store: SqliteStore, line: Line, clock: JumpingClock
    ) -> None:
        line.capabilities = Capabilities(deduplicates=False)
        await submit(store, *(a_run(clock, task="unknown") for _ in range(LIMIT)))
        async with turning(Dispatcher(store, line, lambda: True, clock, Random(0))):
            await let_pass(clock, "10ms")
            line.queued.clear()
            await submit(store, a_run(clock))
            await let_pass(clock, f"{2 * FULL_GAP_S:g}s")
            assert [notice.token for notice in line.queued.values()] == [~0]

    async def test_only_the_leader_publishes(self, store: SqliteStore, line: Line, clock: JumpingClock) -> None:
        await submit(store, a_run(clock))
        leads = False
        async with turning(Dispatcher(store, line, lambda: leads, clock, Random(0))):
            await let_pass(clock, "2s")
            assert line.published == []
            leads = True
            await let_pass(clock, "1s")
            assert len(line.published) == 1


async def test_a_broker_that_is_waited_for_long_in_vain_is_given_up_at_once(
    store: SqliteStore, line: Line, clock: JumpingClock
) -> None:
    breaker = CircuitBreaker(store, clock, "worker-1")

    async def wait_in_vain() -> None:
        clock.advance("2s")
        raise BrokerUnavailable("no answer within 2 s")

    with pytest.raises(BrokerUnavailable, match="no answer"):
        await breaker.call(wait_in_vain)
    assert not breaker.is_closed
    with pytest.raises(BrokerUnavailable, match="asked again in a moment"):
        await breaker.call(wait_in_vain)


async def test_messages_that_find_nothing_to_claim_are_counted(store: SqliteStore, clock: JumpingClock) -> None:
    counted = MeasuredStore(store)
    line = Line(clock)
    source = await subscribed(counted, line, clock)
    runs = [a_run(clock) for _ in range(3)]
    await submit(store, *runs)
    notices, _ = await store.due_runs(10)
    await line.publish(notices)
    assert len(await source.claim(a_worker(), 10, TTL, "strict")) == 3
    await line.publish(notices)  # As a broker does that was notified late.
    assert await source.claim(a_worker("another"), 10, TTL, "strict") == []
    assert counted.metrics.counts["duplicates", "delivery"] == 3


async def test_redeliveries_and_the_time_from_publication_are_counted(
    store: SqliteStore, source: BrokerSource, line: Line, clock: JumpingClock
) -> None:
    runs = [a_run(clock) for _ in range(2)]
    await submit(store, *runs)
    line.sent_at = clock.now() - 3 * SECOND
    line.redelivers = True
    await line.publish((await store.due_runs(10))[0])
    assert len(await claim(source)) == 2
    metrics = source._store.metrics
    assert metrics.counts["broker_redeliveries", ""] == metrics.counts["deliveries", "claimed"] == 2
    buckets = dict(metrics.broker_receive.buckets())
    assert (buckets["2.5"], buckets["5"]) == (0, 2)


async def test_where_the_node_leads_the_depths_of_the_broker_are_read(line: Line, clock: JumpingClock) -> None:
    metrics, leads = Metrics(), True
    reader = DepthReader(line, lambda: leads, metrics, clock, Random(1))
    notice = Notice("r", 0, "default", "default", "default", 5, 0)
    await measured_publish(line, [notice], metrics, clock)
    assert dict(metrics.broker_publish.buckets())["+Inf"] == 1
    await reader.turn()
    assert metrics.broker_depths == {("default", "default", "default", "line"): 1}
    text = show(broker_families("default", metrics.broker_depths)).decode()
    assert 'mainspring_broker_depth{namespace="default",queue="default",region="default",source="line"} 1.0' in text
    assert "line" not in show(broker_families("other", metrics.broker_depths)).decode()
    line.away = True
    await reader.turn()
    assert metrics.broker_depths == {}  # An old figure would look like a queue that stands still.
    line.away = False
    await reader.turn()
    leads = False
    await reader.turn()
    assert metrics.broker_depths == {}


async def test_where_the_broker_wants_it_deliveries_are_acknowledged_after_the_work(
    store: SqliteStore, line: Line, clock: JumpingClock
) -> None:
    line.capabilities = Capabilities(acks_after_work=True, extends=True)
    source = await subscribed(MeasuredStore(store), line, clock)
    runs = [a_run(clock) for _ in range(2)]
    await submit(store, *runs)
    notices, _ = await store.due_runs(10)
    await line.publish([*notices, Notice("forged", 0, "default", "default", "default", 5, 0)])
    claims = await source.claim(a_worker("w"), 10, TTL, "strict")
    await let_pass(clock, "1ms")
    assert line.acked == ["forged"]  # There is no work to wait for.
    await line.publish(notices)  # Another message of the same runs.
    assert await claim(source) == []
    await let_pass(clock, f"{EXTEND_S}s")
    assert line.acked == ["forged", *(run.id for run in runs)]
    assert set(line.extended) == {run.id for run in runs}
    line.acked.clear()
    source.ended([(each.run_id, each.token) for each in claims])
    source.ended([(each.run_id, each.token) for each in claims])
    await let_pass(clock, "1ms")
    assert line.acked == [run.id for run in runs]
    await source.close()


async def test_until_it_has_subscribed_a_worker_claims_from_the_store_at_once(
    store: SqliteStore, line: Line, clock: JumpingClock
) -> None:
    line.away, arrivals = True, list[int]()
    source = BrokerSource(store, line, clock, "w")
    source.start(a_worker("w"), lambda: arrivals.append(1))
    await let_pass(clock, "1s")
    run = a_run(clock)
    await submit(store, run)
    assert not source.delivers()
    assert await claim(source) == [run.id]
    line.away = False
    await let_pass(clock, "1s")
    assert source.delivers()
    assert arrivals == [1]


async def test_deliveries_that_wait_for_the_store_are_extended_where_the_broker_wants_that(
    store: SqliteStore, line: Line, clock: JumpingClock
) -> None:
    line.capabilities = Capabilities(extends=True)
    slow: Any = FaultyStore(store)
    source = await subscribed(slow, line, clock)
    run = a_run(clock)
    await submit(store, run)
    await line.publish((await store.due_runs(10))[0])
    answers = asyncio.Event()

    async def claim_these(*args: Any) -> list[Claim]:
        await answers.wait()
        return await store.claim_these(*args)

    slow.claim_these = claim_these
    claiming = asyncio.ensure_future(claim(source))
    await let_pass(clock, f"{2 * EXTEND_S + 1:g}s")
    assert line.extended == [run.id, run.id]
    answers.set()
    assert await claiming == [run.id]
    await let_pass(clock, f"{2 * EXTEND_S:g}s")
    assert len(line.extended) == 2
