"""Whoever submits tells the broker, together with what was submitted meanwhile, and never in the caller's way."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from stage import JumpingClock, let_pass

from mainspring.announcing import announced
from mainspring.broker import Notice
from mainspring.brokers.direct import DirectBroker
from mainspring.conformance.store_samples import a_run
from mainspring.errors import BrokerUnavailable
from mainspring.stores.sqlite.store import SqliteStore


class Line(DirectBroker):
    """A broker that answers when it is let, and remembers what it was told in one go."""

    def __init__(self, store: SqliteStore) -> None:
        super().__init__(store, "strict")
        self.told: list[list[str]] = []
        self.answers = asyncio.Event()
        self.away = False

    async def publish(self, notices: Sequence[Notice]) -> None:
        self.told.append([notice.run_id for notice in notices])
        await self.answers.wait()
        if self.away:
            raise BrokerUnavailable("away")


async def test_what_is_submitted_while_the_broker_is_told_is_told_together_next(
    store: SqliteStore, clock: JumpingClock
) -> None:
    line = Line(store)
    source, runs = announced(store, line, clock), [a_run(clock) for _ in range(4)]
    for run in runs:
        assert await source.submit([run]) == [run.id]
        await let_pass(clock, "1ms")
    assert line.told == [[runs[0].id]]
    line.answers.set()
    await let_pass(clock, "1ms")
    assert line.told == [[runs[0].id], [run.id for run in runs[1:]]]


async def test_after_a_broker_that_was_away_it_is_told_of_what_comes_next(
    store: SqliteStore, clock: JumpingClock
) -> None:
    line = Line(store)
    line.answers.set()
    line.away = True
    source, first, second = announced(store, line, clock), a_run(clock), a_run(clock)
    assert await source.submit([first]) == [first.id]
    await let_pass(clock, "1ms")
    line.away = False
    assert await source.submit([second]) == [second.id]
    await let_pass(clock, "1ms")
    assert line.told == [[first.id], [second.id]]
