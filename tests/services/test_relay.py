"""The relay delivers every event, in order, at least once, to every sink, whatever fails in between."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest
from stage import FaultyStore, JumpingClock, LocalSink, let_others_run, let_pass, turning

from mainspring.core.model import Event, EventBatch
from mainspring.services.chores.relay import BATCH, IDLE_S, QUIET_S, Relay


class Notebook(LocalSink):
    """A sink that writes down what it receives, and refuses on request."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, str]] = []
        self.refusals = 0
        self.gate: asyncio.Event | None = None

    async def deliver(self, batches: Sequence[EventBatch]) -> None:
        """See the sink port."""
        if self.refusals:
            self.refusals -= 1
            raise ConnectionError("the sink is down")
        if self.gate is not None:
            await self.gate.wait()
        self.heard += [(batch.position + n, each.kind) for batch in batches for n, each in enumerate(batch.events)]

    @property
    def kinds(self) -> list[str]:
        """Each event once, in the order in which it was first heard."""
        return [kind for _, kind in dict.fromkeys(self.heard)]


def make_relay(store: Any, clock: JumpingClock, *sinks: Notebook, leads: Callable[[], bool] = lambda: True) -> Relay:
    return Relay(store, leads, sinks, clock, Random(0))


async def record(store: Any, clock: JumpingClock, *kinds: str) -> None:
    """One transaction for each."""
    for kind in kinds:
        await store.record_events([Event(kind, clock.now())])


def numbered(count: int, first: int = 0) -> list[str]:
    return [f"event-{number}" for number in range(first, first + count)]


async def test_events_are_relayed_in_order_and_numbered_without_gaps(store: Any, clock: JumpingClock) -> None:
    sink = Notebook()
    async with turning(make_relay(store, clock, sink)):
        await let_others_run()
        for start in range(0, 50, 5):
            await record(store, clock, *numbered(5, start))
            await let_pass(clock, "100ms")
        await let_pass(clock, "1s")
    first = sink.heard[0][0]
    assert sink.heard == list(enumerate(numbered(50), first))


async def test_every_sink_hears_all_of_them(store: Any, clock: JumpingClock) -> None:
    sinks = [Notebook(), Notebook()]
    async with turning(make_relay(store, clock, *sinks)):
        await let_others_run()
        await record(store, clock, *numbered(3))
        await let_pass(clock, "1s")
    assert [sink.kinds for sink in sinks] == [numbered(3)] * 2


async def test_what_happens_is_relayed_within_a_moment(store: Any, clock: JumpingClock) -> None:
    sink = Notebook()
    async with turning(make_relay(store, clock, sink)):
        await let_pass(clock, "3s")
        await record(store, clock, "news")
        await let_pass(clock, f"{IDLE_S}s")
        assert sink.kinds == ["news"]


async def test_after_a_long_silence_it_looks_less_often_and_can_be_woken(store: Any, clock: JumpingClock) -> None:
    sink, line = Notebook(), FaultyStore(store)
    relay = make_relay(line, clock, sink)
    async with turning(relay):
        await let_pass(clock, "10s")
        line.calls.clear()
        await let_pass(clock, "10s")
        assert line.calls["number_events"] <= 11
        await record(store, clock, "found")
        await let_pass(clock, f"{QUIET_S}s")
        assert sink.kinds == ["found"]
        await let_pass(clock, "10s")
        await record(store, clock, "woken")
        relay.hint()
        await let_others_run()
        assert sink.kinds == ["found", "woken"]


class TestTrouble:
    async def test_a_sink_that_fails_in_between_misses_nothing(self, store: Any, clock: JumpingClock) -> None:
        steady, flaky = Notebook(), Notebook()
        async with turning(make_relay(store, clock, steady, flaky)):
            await let_others_run()
            for start in range(0, 50, 5):
                flaky.refusals = 2
                await record(store, clock, *numbered(5, start))
                await let_pass(clock, "1s")
        assert flaky.kinds == steady.kinds == numbered(50)
        assert len(flaky.heard) == 50

    @pytest.mark.parametrize("method", ["next_position", "number_events", "events_since"])
    @pytest.mark.parametrize("lost", ["lose_request", "lose_reply"])
    async def test_lost_words_to_the_store_lose_no_event(
        self, store: Any, clock: JumpingClock, method: str, lost: str
    ) -> None:
        line, sink = FaultyStore(store), Notebook()
        getattr(line, lost)(method)
        async with turning(make_relay(line, clock, sink)):
            await let_pass(clock, "1s")
            for start in range(0, 50, 5):
                getattr(line, lost)(method)
                await record(store, clock, *numbered(5, start))
                await let_pass(clock, "1s")
        assert sink.kinds == numbered(50)

    async def test_events_of_a_time_without_a_leader_are_relayed_by_the_next(
        self, store: Any, clock: JumpingClock
    ) -> None:
        leading, sink = [False], Notebook()
        async with turning(make_relay(store, clock, sink, leads=lambda: leading[0])):
            await let_others_run()
            await record(store, clock, *numbered(5))
            await let_pass(clock, "10s")
            assert sink.heard == []
            leading[0] = True
            await let_pass(clock, "1s")
        assert sink.kinds == numbered(5)


class TestFinish:
    async def test_it_relays_the_rest_even_where_the_node_no_longer_leads(
        self, store: Any, clock: JumpingClock
    ) -> None:
        sink = Notebook()
        relay = make_relay(store, clock, sink, leads=lambda: False)
        await relay.turn()
        await record(store, clock, *numbered(2 * BATCH + 7))
        await relay.finish()
        assert sink.kinds == numbered(2 * BATCH + 7)

    async def test_it_waits_for_the_pass_that_is_under_way(self, store: Any, clock: JumpingClock) -> None:
        """Two passes at once would relay events twice, and out of order."""
        sink = Notebook()
        relay = make_relay(store, clock, sink)
        async with turning(relay):
            await let_others_run()
            sink.gate = asyncio.Event()
            await record(store, clock, *numbered(5))
            await let_pass(clock, "1s")
            finishing = asyncio.create_task(relay.finish())
            await let_others_run()
            await record(store, clock, *numbered(5, 5))
            sink.gate.set()
            await finishing
        assert [kind for _, kind in sink.heard] == numbered(10)

    async def test_a_relay_without_sinks_still_numbers(self, store: Any, clock: JumpingClock) -> None:
        await record(store, clock, *numbered(3))
        before = await store.next_position()
        await make_relay(store, clock).finish()
        assert await store.next_position() >= before + 3
