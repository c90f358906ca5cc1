"""Sending events on: every one, in order, at least once, whichever process does it and whatever fails."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from stage import JumpingClock, LocalSink, let_pass, turning

from mainspring.core.instants import DAY
from mainspring.core.model import Event, EventBatch
from mainspring.errors import SinkUnavailable
from mainspring.services.chores.forwarder import Forwarder
from mainspring.services.chores.relay import Relay


class Recorder(LocalSink):
    """A sink that remembers, and refuses when asked to."""

    def __init__(self) -> None:
        self.heard: list[tuple[int, str]] = []
        self.refusals = 0

    async def deliver(self, batches: Sequence[EventBatch]) -> None:
        if self.refusals:
            self.refusals -= 1
            raise SinkUnavailable("the sink is down")
        self.heard += [(batch.position + n, each.kind) for batch in batches for n, each in enumerate(batch.events)]

    async def close(self) -> None:
        """Nothing is open."""


def make(store: Any, clock: JumpingClock, sink: Recorder, on_duty: bool = True) -> Forwarder:
    return Forwarder(store, "test", sink, lambda: on_duty, clock, Random(0))


async def record(store: Any, clock: JumpingClock, *kinds: str) -> None:
    for kind in kinds:
        await store.record_events([Event(kind, clock.now())])
    await store.number_events(1_000)


async def test_a_sink_that_fails_gets_the_same_events_again(store: Any, clock: JumpingClock) -> None:
    sink = Recorder()
    async with turning(make(store, clock, sink)):
        await let_pass(clock, "1s")
        sink.refusals = 3
        await record(store, clock, "a", "b", "c")
        await let_pass(clock, "10s")
    assert [kind for _, kind in sink.heard] == ["a", "b", "c"]


async def test_events_that_are_deleted_before_they_are_sent_are_reported(
    store: Any, clock: JumpingClock, caplog: pytest.LogCaptureFixture
) -> None:
    sink = Recorder()
    async with turning(make(store, clock, sink)):
        await let_pass(clock, "1s")
        sink.refusals = 1_000
        await record(store, clock, "a", "b", "c")
        await let_pass(clock, "2s")
        clock.jump("29d")
        await store.clean(DAY, DAY, 7 * DAY, 1_000)
        sink.refusals = 0
        await record(store, clock, "d")
        await let_pass(clock, "10s")
    assert [kind for _, kind in sink.heard] == ["d"]
    assert [each.message.partition(":")[0] for each in caplog.records if each.levelname == "ERROR"] == [
        "3 events were deleted before they were sent"
    ]


async def test_the_next_process_goes_on_from_the_position_in_the_store(store: Any, clock: JumpingClock) -> None:
    first, second = Recorder(), Recorder()
    async with turning(make(store, clock, first)):
        await let_pass(clock, "1s")
        await record(store, clock, "a")
        await let_pass(clock, "1s")
    await record(store, clock, "b", "c")
    async with turning(make(store, clock, second)):
        await let_pass(clock, "1s")
    assert [kind for _, kind in first.heard + second.heard] == ["a", "b", "c"]


async def test_a_process_that_is_not_on_duty_sends_nothing(store: Any, clock: JumpingClock) -> None:
    sink = Recorder()
    async with turning(make(store, clock, sink, on_duty=False)):
        await record(store, clock, "a")
        await let_pass(clock, "5s")
    assert sink.heard == []


async def test_the_last_events_of_a_process_are_sent_before_it_ends(store: Any, clock: JumpingClock) -> None:
    sink = Recorder()
    forwarder = make(store, clock, sink)
    relay = Relay(store, lambda: True, [], clock, Random(0))
    async with turning(forwarder):
        await let_pass(clock, "1s")
        await store.record_events([Event("last", clock.now())])
        await relay.finish()
        await forwarder.finish()
    assert [kind for _, kind in sink.heard] == ["last"]
