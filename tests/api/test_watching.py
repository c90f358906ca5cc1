"""Watchers cost the store nothing of their own, however many they are, and miss nothing."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any, cast

import pytest

from mainspring.api.load.sharing import Fresh, Newsroom
from mainspring.api.load.waking import Waking
from mainspring.api.load.watching import Watching, kind_of
from mainspring.clock import SystemClock
from mainspring.core.instants import MINUTE
from mainspring.core.model import Event, EventBatch, Job, LogLine, NewRun, Worker
from mainspring.operations.views.overview_records import News
from mainspring.process.ids import IdSource
from mainspring.store import Store
from mainspring.stores.sqlite.store import SqliteStore

CLOCK = SystemClock()
IDS = IdSource(CLOCK)
PATIENCE_S = 20.0
FEW, MANY = 2, 200
EVENTS = 20


class Counting:
    """A store that counts what it is asked."""

    def __init__(self, store: SqliteStore) -> None:
        self._store = store
        self.calls: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)

        def call(*args: Any, **options: Any) -> Any:
            self.calls[name] += 1
            return method(*args, **options)

        return call if callable(method) else method


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Counting]:
    store = SqliteStore(str(tmp_path / "x.db"), CLOCK)
    yield Counting(store)
    await store.close()


@pytest.fixture
async def watching(store: Counting) -> AsyncIterator[Watching]:
    waking = Waking()
    waking.attach(cast(Store, store))
    yield Watching(waking, lambda: cast(Store, store))
    waking.detach()


def a_run(**changes: Any) -> NewRun:
    facts: dict[str, Any] = {"id": IDS.new(), "task": "t", "due_at": 0, "created_at": CLOCK.now()} | changes
    return NewRun(**facts)


async def until(condition: Callable[[], Any]) -> None:
    for _ in range(int(PATIENCE_S * 200)):
        if condition():
            return
        await asyncio.sleep(0.005)
    raise AssertionError("it did not come about")


async def asked_by(store: Counting, seconds: float = 1.2) -> int:
    """How much the store is asked in a while in which nothing happens."""
    await asyncio.sleep(0.6)
    store.calls.clear()
    await asyncio.sleep(seconds)
    store.calls.pop("now", None)
    return sum(store.calls.values())


class Streams:
    """Streams of events, and what each has heard."""

    def __init__(self, watching: Watching, count: int, position: int) -> None:
        self.heard: list[list[str]] = [[] for _ in range(count)]
        self.tasks = [asyncio.create_task(self._follow(watching, kinds, position)) for kinds in self.heard]

    async def _follow(self, watching: Watching, kinds: list[str], position: int) -> None:
        async for batch in watching.tail.follow(position):
            kinds += [event.kind for event in batch.events]

    async def stop(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)


async def test_streams_of_events_share_one_reader(store: Counting, watching: Watching) -> None:
    async def reads_of(count: int) -> int:
        streams = Streams(watching, count, await store.next_position())
        reads = await asked_by(store)
        await store.record_events([Event("one", 0)])
        await store.number_events(10)
        await until(lambda: all(kinds == ["one"] for kinds in streams.heard))
        await streams.stop()
        return reads

    assert await reads_of(FEW) + 3 >= await reads_of(MANY)


async def test_viewers_of_a_namespace_share_one_reader_and_one_overview(store: Counting, watching: Watching) -> None:
    newsroom = Newsroom(watching.tail._waking, watching.tail, lambda: cast(Store, store))
    overviews: Fresh[list[Job]] = Fresh()

    async def reads_of(count: int) -> int:
        seen = [0] * count

        async def view(viewer: int) -> None:
            async for _ in newsroom.follow("default"):
                await overviews.get("default", lambda: store.list_jobs("default"))
                seen[viewer] += 1

        store.calls.clear()
        viewers = [asyncio.create_task(view(viewer)) for viewer in range(count)]
        await until(lambda: all(seen))
        for number in range(EVENTS):
            await store._store.record_events([Event("run.running", 0, "default", f"run-{number}")])
            await store._store.number_events(10)
        await until(lambda: min(seen) > 1)
        reads = store.calls.total()
        for viewer in viewers:
            viewer.cancel()
        await asyncio.gather(*viewers, return_exceptions=True)
        return reads

    assert await reads_of(FEW) + EVENTS >= await reads_of(MANY)


async def test_news_comes_at_most_twice_a_second_however_many_events_there_are(
    store: Counting, watching: Watching
) -> None:
    newsroom = Newsroom(watching.tail._waking, watching.tail, lambda: cast(Store, store))
    loop, heard = asyncio.get_running_loop(), list[News]()

    async def view() -> None:
        async for news in newsroom.follow("default"):
            heard.append(news)

    viewer = loop.create_task(view())
    await until(lambda: heard)
    began, sent = loop.time(), 0
    while loop.time() - began < 2:
        await store.record_events([Event("run.running", 0, "default", f"run-{sent}")])
        await store.number_events(10)
        sent += 1
        await asyncio.sleep(0.01)
    await until(lambda: sum(len(news.runs) for news in heard) == sent)
    assert len(heard) - 1 <= 2 * (loop.time() - began) + 1
    heard.clear()
    await store.record_events([Event("run.running", 0, "default", f"other-{number}") for number in range(300)])
    await store.number_events(300)
    await until(lambda: any(news.more for news in heard))
    assert max(len(news.runs) for news in heard) == 200
    viewer.cancel()
    await asyncio.gather(viewer, return_exceptions=True)


async def test_a_stream_hears_what_was_before_it_and_what_comes_after_in_order(
    store: Counting, watching: Watching
) -> None:
    for number in range(5):
        await store.record_events([Event(f"old-{number}", 0), Event(f"older-{number}", 0)])
    await store.number_events(100)
    first = Streams(watching, 3, 4)
    await until(lambda: all(len(kinds) == 7 for kinds in first.heard))
    second = Streams(watching, 3, 1)
    for number in range(5):
        await store.record_events([Event(f"new-{number}", 0)])
        await store.number_events(100)
    old = [f"{word}-{number}" for number in range(5) for word in ("old", "older")]
    new = [f"new-{number}" for number in range(5)]
    await until(lambda: all(len(kinds) == 15 for kinds in second.heard))
    await until(lambda: all(len(kinds) == 12 for kinds in first.heard))
    assert all(kinds == [*old, *new] for kinds in second.heard)
    assert all(kinds == [*old[3:], *new] for kinds in first.heard)
    await first.stop()
    await second.stop()


async def test_a_stream_that_lags_behind_what_is_kept_misses_nothing(
    store: Counting, watching: Watching, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow: list[EventBatch] = []
    follower = watching.tail.follow(await store.next_position())
    other = Streams(watching, 1, await store.next_position())
    await store.record_events([Event("0", 0)])
    await store.number_events(10)
    slow.append(await anext(follower))
    for number in range(1, 700):
        await store.record_events([Event(str(number), 0)])
    while await store.number_events(200):
        pass
    await until(lambda: len(other.heard[0]) == 700)
    while len(slow) < 700:
        slow.append(await asyncio.wait_for(anext(follower), PATIENCE_S))
    assert [event.kind for batch in slow for event in batch.events] == [str(number) for number in range(700)]
    await other.stop()


async def test_followers_of_output_share_one_question(store: Counting, watching: Watching) -> None:
    runs = [a_run() for _ in range(MANY)]
    await store.submit(runs)

    async def reads_of(count: int) -> int:
        waits = [asyncio.create_task(watching.lines.wait((run.id, 0), PATIENCE_S)) for run in runs[:count]]
        reads = await asked_by(store)
        await store.record([LogLine(runs[1].id, 1, CLOCK.now(), "stdout", "hello")], [])
        await asyncio.wait_for(waits[1], PATIENCE_S)
        assert sum(wait.done() for wait in waits) == 1
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        await store.request_cancel("default", runs[1].id, "")
        runs[1] = a_run()
        await store.submit([runs[1]])
        return reads

    assert await reads_of(FEW) + 4 >= await reads_of(MANY)


async def test_a_follower_hears_of_the_end_of_its_run(store: Counting, watching: Watching) -> None:
    run = a_run()
    await store.submit([run])
    wait = asyncio.create_task(watching.lines.wait((run.id, 0), PATIENCE_S))
    await asyncio.sleep(0)
    await store.request_cancel("default", run.id, "")
    await asyncio.wait_for(wait, PATIENCE_S / 2)


async def test_idle_workers_of_one_kind_share_one_question_and_are_woken_one_by_one(
    store: Counting, watching: Watching
) -> None:
    workers = [Worker(id=f"w{number}", tasks=("t", "u")) for number in range(MANY)]

    async def reads_of(count: int) -> int:
        waits = [asyncio.create_task(watching.work.wait(kind_of(each), PATIENCE_S)) for each in workers[:count]]
        reads = await asked_by(store, 2.2)
        await store.submit([a_run()])
        await until(lambda: any(wait.done() for wait in waits))
        assert sum(wait.done() for wait in waits) == 1
        await store.claim(workers[0], 10, MINUTE, "strict")
        watching.work.pass_on(kind_of(workers[0]))
        await until(lambda: sum(wait.done() for wait in waits) == 2)
        for wait in waits:
            wait.cancel()
        await asyncio.gather(*waits, return_exceptions=True)
        return reads

    assert await reads_of(FEW) + 2 >= await reads_of(MANY)


async def test_when_the_server_stops_all_waits_end(store: Counting, watching: Watching) -> None:
    streams = Streams(watching, 3, 1)
    run = a_run(due_at=CLOCK.now() + MINUTE)
    await store.submit([run])
    waits = [
        asyncio.create_task(watching.lines.wait((run.id, 0), PATIENCE_S)),
        asyncio.create_task(watching.work.wait(Worker(id="", tasks=("t",)), PATIENCE_S)),
        *streams.tasks,
    ]
    await asyncio.sleep(0.1)
    watching.tail._waking.end()
    await asyncio.wait_for(asyncio.gather(*waits), PATIENCE_S / 2)
