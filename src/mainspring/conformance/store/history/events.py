"""Events and hints."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from mainspring.conformance.store.refusal import refused
from mainspring.conformance.store.samples import (
    TTL,
    a_run,
    a_worker,
    another_try,
    failure,
    gated,
    new_events,
    new_id,
    number_all,
    submit,
    success,
    take,
    take_one,
)
from mainspring.core.instants import HOUR, SECOND
from mainspring.core.model import Claim, Event, EventBatch, Report
from mainspring.core.states import State
from mainspring.errors import InvalidInput
from mainspring.store import Store
from mainspring.testing.clock import ManualClock


def positions(batches: list[EventBatch]) -> list[int]:
    """The public position of each event."""
    return [batch.position + offset for batch in batches for offset in range(len(batch.events))]


class EventSuite:
    """Every change is recorded once, in the order of commits, with a position that has no gaps."""

    async def test_every_change_of_a_run_is_reported_in_order(self, store: Store, clock: ManualClock) -> None:
        run, worker = a_run(clock, namespace="tenant-a"), a_worker(namespace="tenant-a")
        await submit(store, run)
        clock.advance(1)
        claim = await take_one(store, worker)
        await store.hand_back([(claim.run_id, claim.token)])
        await store.report([another_try(await take_one(store, worker))])
        await take_one(store, worker)
        clock.advance(TTL + 1)
        await store.recover(HOUR, 100)
        claim = await take_one(store, worker)
        await store.request_cancel("tenant-a", run.id, "not needed")
        await store.report([success(claim)])
        events = [event for event in await new_events(store) if event.run_id == run.id]
        assert [event.kind for event in events] == [
            *("run.submitted", "run.running", "run.handed_back", "run.running", "run.retrying"),
            *("run.running", "run.lost", "run.running", "run.cancelling", "run.succeeded"),
        ]
        assert {(event.namespace, event.task) for event in events} == {("tenant-a", run.task)}
        assert [event.at for event in events] == sorted(event.at for event in events)
        assert (events[0].at, events[-1].at) == (run.created_at, clock.now())

    async def test_a_start_says_its_priority_and_how_late_it_is(self, store: Store, clock: ManualClock) -> None:
        plain, limited, delivered = (a_run(clock, priority=2), gated(clock, "g", priority=3), a_run(clock, priority=4))
        await submit(store, plain, limited, delivered)
        clock.advance(7 * SECOND)
        assert await store.claim_these(a_worker(), [(delivered.id, 0)], TTL)
        await take(store)
        started = [event for event in await new_events(store) if event.kind == "run.running"]
        assert sorted((event.priority, event.late) for event in started) == [
            (priority, 7 * SECOND) for priority in (2, 3, 4)
        ]

    async def test_every_end_of_a_run_is_reported_by_its_name(self, store: Store, clock: ManualClock) -> None:
        words: dict[State, Callable[[Claim], Report]] = {
            "succeeded": success,
            "failed": failure,
            "skipped": lambda claim: Report(claim.run_id, claim.token, "skipped", "skipped", "nothing new"),
            "cancelled": lambda claim: Report(claim.run_id, claim.token, "cancelled", "cancelled", "not needed"),
        }
        for state, word in words.items():
            await submit(store, a_run(clock))
            claim = await take_one(store)
            await store.report([word(claim)])
            (*_, last) = await new_events(store)
            assert (last.kind, last.run_id, last.reason) == (f"run.{state}", claim.run_id, word(claim).reason)

    async def test_the_events_of_a_run_come_in_order_when_reported_together(
        self, store: Store, clock: ManualClock
    ) -> None:
        run, twin = a_run(clock), a_run(clock)
        apart: list[Event] = []
        for step in (lambda: submit(store, run), lambda: _work(store)):
            await step()
            apart += await new_events(store)
        await submit(store, twin)
        await _work(store)
        together = await new_events(store)
        assert [event.kind for event in together] == [event.kind for event in apart]
        assert {event.run_id for event in together} == {twin.id}

    async def test_a_run_that_is_skipped_or_cancelled_is_reported_with_its_reason(
        self, store: Store, clock: ManualClock
    ) -> None:
        upstream = a_run(clock)
        waiting = a_run(clock, after=(upstream.id,))
        await submit(store, upstream, waiting)
        await new_events(store)
        await store.request_cancel("default", upstream.id, "wrong film")
        events = {event.run_id: event for event in await new_events(store)}
        assert "wrong film" in events[upstream.id].reason
        assert upstream.id in events[waiting.id].reason

    async def test_what_was_refused_is_not_reported(self, store: Store, clock: ManualClock) -> None:
        with refused(InvalidInput):
            await submit(store, a_run(clock), a_run(clock, after=(new_id(clock),)))
        assert await new_events(store) == []

    async def test_what_changed_nothing_is_not_reported(self, store: Store, clock: ManualClock) -> None:
        run = a_run(clock)
        await submit(store, run)
        claim = await take_one(store)
        await store.report([success(claim)])
        await new_events(store)
        await submit(store, run)
        assert await store.report([success(claim)]) == ["repeated"]
        await store.hand_back([(run.id, claim.token)])
        await store.recover(HOUR, 100)
        assert await take(store, a_worker("worker-2")) == []
        assert await new_events(store) == []

    async def test_positions_run_on_without_gaps(self, store: Store, clock: ManualClock) -> None:
        numbered: list[EventBatch] = []
        for size in (1, 3, 2):
            for _ in range(size):
                await store.submit([a_run(clock) for _ in range(size)])
            numbered += await number_all(store)
        found = positions(numbered)
        assert found == list(range(found[0], found[0] + 14))

    async def test_positions_follow_commit_order(self, store: Store, clock: ManualClock) -> None:
        runs = [a_run(clock) for _ in range(6)]
        for run in reversed(runs):
            await submit(store, run)
        order = [event.run_id for event in await new_events(store)]
        assert order == [run.id for run in reversed(runs)]

    async def test_events_are_numbered_once_however_many_ask(self, store: Store, clock: ManualClock) -> None:
        for _ in range(30):
            await store.submit([a_run(clock), a_run(clock)])
        first = await store.next_position()
        answers = await asyncio.gather(*(store.number_events(7) for _ in range(8)))
        assert sum(answers) == 30
        assert positions(await store.events_since(first, 100)) == list(range(first, first + 60))
        assert (await store.number_events(100), await store.next_position()) == (0, first + 60)

    async def test_no_more_transactions_are_numbered_than_asked_for(self, store: Store, clock: ManualClock) -> None:
        for _ in range(5):
            await store.submit([a_run(clock), a_run(clock)])
        assert [await store.number_events(2) for _ in range(4)] == [2, 2, 1, 0]

    async def test_numbered_events_can_be_read_again_from_any_position(self, store: Store, clock: ManualClock) -> None:
        for _ in range(5):
            await store.submit([a_run(clock), a_run(clock)])
        first = await store.next_position()
        numbered = await number_all(store)
        assert positions(numbered) == list(range(first, first + 10))
        assert await store.events_since(first, 100) == numbered
        assert await store.events_since(numbered[3].position, 100) == numbered[3:]
        assert await store.events_since(first, 2) == numbered[:2]
        assert await store.events_since(first + 10, 100) == []
        assert await store.next_position() == first + 10
        middle = positions(await store.events_since(first + 3, 100))
        assert [position for position in middle if position >= first + 3] == list(range(first + 3, first + 10))

    async def test_only_numbered_events_are_read(self, store: Store, clock: ManualClock) -> None:
        await submit(store, a_run(clock))
        assert await store.events_since(0, 100) == []

    async def test_events_of_their_own_are_reported_as_given(self, store: Store, clock: ManualClock) -> None:
        events = [
            Event("leader.elected", clock.now(), worker="node-1", reason="Ü 🎬", count=0),
            Event("job.odd", clock.now(), "tenant-a", job_id="j", job="nightly", fire_at=7, attempt=2, duration=5),
        ]
        await store.record_events(events)
        assert await new_events(store) == events
        await store.record_events([])
        assert await new_events(store) == []

    async def test_a_listener_can_note_how_far_it_has_come_and_never_falls_back(self, store: Store) -> None:
        assert await store.heard("one") is None
        for position in (7, 9, 8):
            await store.note_heard("one", position)
        await store.note_heard("other", 1)
        assert (await store.heard("one"), await store.heard("other"), await store.heard("third")) == (9, 1, None)

    async def test_a_listener_hears_that_there_is_work(self, store: Store, clock: ManualClock) -> None:
        heard, stop = _listen(store)
        await submit(store, a_run(clock))
        await asyncio.wait_for(heard.wait(), 5)
        stop()

    async def test_a_listener_that_was_stopped_hears_nothing(self, store: Store, clock: ManualClock) -> None:
        stopped, stop_one = _listen(store)
        other, stop_other = _listen(store)
        stop_one()
        await submit(store, a_run(clock))
        await asyncio.wait_for(other.wait(), 5)
        assert not stopped.is_set()
        stop_other()

    async def test_the_store_shows_its_clock(self, store: Store, clock: ManualClock) -> None:
        assert store.now() == clock.now()
        clock.advance(HOUR)
        assert store.now() == clock.now()


def _listen(store: Store) -> tuple[asyncio.Event, Callable[[], None]]:
    """What is set when the store says that something changed, and how to stop listening."""
    heard, loop = asyncio.Event(), asyncio.get_running_loop()

    def listener() -> None:
        loop.call_soon_threadsafe(heard.set)

    return heard, store.on_change(listener)


async def _work(store: Store) -> None:
    await store.report([success(claim) for claim in await take(store)])
