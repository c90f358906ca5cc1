"""A submitting process notifies the broker of all that was submitted meanwhile, and never delays the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from memory_broker import MemoryBroker
from stage import JumpingClock, let_pass

from mainspring.adapter import AdapterContext
from mainspring.broker import Notice
from mainspring.conformance.store.samples import a_run
from mainspring.errors import BrokerUnavailable
from mainspring.process.metrics import Metrics
from mainspring.services.announcer import FIRST, MOST, Announcer
from mainspring.services.store_layers import MeasuredStore
from mainspring.stores.sqlite.store import SqliteStore


class Line(MemoryBroker):
    """A broker that answers when the test lets it, and remembers each batch that it received."""

    def __init__(self) -> None:
        super().__init__("memory://", AdapterContext())
        self.published: list[list[str]] = []
        self.tokens: list[int] = []
        self.answers = asyncio.Event()
        self.away = False

    async def publish(self, notices: Sequence[Notice]) -> None:
        self.published.append([notice.run_id for notice in notices])
        self.tokens += [notice.token for notice in notices]
        await self.answers.wait()
        if self.away:
            raise BrokerUnavailable("away")


def listened(store: SqliteStore, line: Line, clock: JumpingClock) -> SqliteStore:
    store.on_accepted(Announcer(store, line, clock))
    return store


async def test_what_is_submitted_during_a_publication_is_published_together_next(
    store: SqliteStore, clock: JumpingClock
) -> None:
    line = Line()
    source, runs = listened(store, line, clock), [a_run(clock) for _ in range(4)]
    for run in runs:
        assert await source.submit([run]) == [run.id]
        await let_pass(clock, "1ms")
    assert line.published == [[runs[0].id]]
    line.answers.set()
    await let_pass(clock, "1ms")
    assert line.published == [[runs[0].id], [run.id for run in runs[1:]]]


async def test_a_broker_that_was_away_gets_what_is_submitted_next(store: SqliteStore, clock: JumpingClock) -> None:
    line = Line()
    line.answers.set()
    line.away = True
    source, first, second = listened(store, line, clock), a_run(clock), a_run(clock)
    assert await source.submit([first]) == [first.id]
    await let_pass(clock, "1ms")
    line.away = False
    assert await source.submit([second]) == [second.id]
    await let_pass(clock, "1ms")
    assert line.published == [[first.id], [second.id]]


class Heralded(SqliteStore):
    """A store that leaves the announcement of submissions to others, as those on a server do: `said` is how often its
    listeners were notified."""

    def __init__(self, clock: JumpingClock) -> None:
        super().__init__(":memory:", clock, durable=False, inline=True)
        self.said = 0

    def announce(self) -> None:
        self.said += 1


async def test_listeners_of_the_store_hear_later_and_together_of_what_was_published(
    clock: JumpingClock,
) -> None:
    store = Heralded(clock)
    line = Line()
    line.answers.set()
    source, runs = listened(store, line, clock), [a_run(clock) for _ in range(3)]
    for run in runs:
        assert await source.submit([run]) == [run.id]
        await let_pass(clock, "10ms")
    assert line.published == [[run.id] for run in runs]
    assert store.said == 0
    await let_pass(clock, "100ms")
    assert store.said == 1
    assert await source.submit([a_run(clock)])
    await let_pass(clock, "100ms")
    assert store.said == 2
    await source.close()


async def test_listeners_of_the_store_hear_at_once_of_what_could_not_be_published(
    clock: JumpingClock,
) -> None:
    store = Heralded(clock)
    line = Line()
    line.answers.set()
    line.away = True
    source = listened(store, line, clock)
    assert await source.submit([a_run(clock)])
    await let_pass(clock, "1ms")
    assert store.said == 1
    await source.close()


async def test_listeners_of_the_store_hear_at_once_of_what_is_not_due_yet(clock: JumpingClock) -> None:
    store = Heralded(clock)
    line = Line()
    source = listened(store, line, clock)
    assert await source.submit([a_run(clock, due_at=clock.now() + 1)])
    assert (line.published, store.said) == ([], 1)
    await source.close()


async def test_of_a_large_submission_the_first_of_each_place_are_published_and_listeners_hear_at_once(
    clock: JumpingClock,
) -> None:
    store, line = Heralded(clock), Line()
    line.answers.set()
    source = listened(store, line, clock)
    many = [a_run(clock) for _ in range(MOST)]
    few = [a_run(clock, priority=1) for _ in range(3)]
    assert await source.submit([*many, *few])
    assert store.said == 1
    await let_pass(clock, "1ms")
    assert line.published == [[run.id for run in [*many[:FIRST], *few]]]
    assert [token < 0 for token in line.tokens] == [True] * FIRST + [False] * len(few)
    assert await source.submit(large := [a_run(clock) for _ in range(MOST)])
    await let_pass(clock, "1ms")
    assert line.published[1:] == [[run.id for run in large]]  # One message for each is not too many.
    await source.close()


async def test_closing_publishes_the_rest_and_notifies_the_listeners(clock: JumpingClock) -> None:
    store = Heralded(clock)
    line = Line()
    source, run = listened(store, line, clock), a_run(clock)
    assert await source.submit([run])
    closing = asyncio.ensure_future(source.close())
    await let_pass(clock, "1ms")
    assert line.published == [[run.id]]
    assert not closing.done()
    line.answers.set()
    await asyncio.wait_for(closing, 20)
    assert store.said == 1


async def test_what_submitters_see_of_a_broker_that_is_away_is_counted_where_the_process_counts(
    store: SqliteStore, clock: JumpingClock
) -> None:
    counted, line = MeasuredStore(store, Metrics()), Line()
    line.answers.set()
    line.away = True
    store.on_accepted(Announcer(counted, line, clock))
    for _ in range(5):
        await counted.submit([a_run(clock)])
        await let_pass(clock, "1ms")
    assert counted.metrics.counts["broker", "lost"] == 1
    assert counted.metrics.breakers["broker"] == "open"
