"""Waiting callers cost the store nothing of their own: one reader of the process asks for all of them.

Streams of events share a tail of the outbox, followers of output one question about all that they follow, and workers
over HTTP one about each kind of work. A shared answer is never older than the moment at which a caller asked.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Hashable, Iterable, Sequence
from typing import Final, Generic, TypeVar

from mainspring.api.load.waking import Waking
from mainspring.core.instants import SECOND
from mainspring.core.model import EventBatch, Worker
from mainspring.errors import StoreError
from mainspring.store import Store

K = TypeVar("K", bound=Hashable)

EVENTS_LOOK_S: Final = 0.25
LINES_LOOK_S: Final = 0.2
WORK_LOOK_S: Final = 1.0
GAP_S: Final = 0.01
"""The shortest interval between two reads, however often something changes."""
SHORTEST_S: Final = 0.001
BATCH: Final = 200
MOST_KEPT: Final = 500
"""How many transactions of events are kept for slow streams; a stream that is further behind reads for
itself."""

Look = Callable[[Sequence[K]], Awaitable[tuple[Iterable[K], float]]]
"""Returns the keys with news, and after how long to look again at the latest."""


class Shared(Generic[K]):
    """Many wait for news about keys; one look serves all of them. Lives on the API's loop."""

    def __init__(self, waking: Waking, look: Look[K], look_s: float, *, one_by_one: bool = False) -> None:
        """`one_by_one`: of the waiters for one key, news is for the one that came first; see `pass_on`."""
        self._waking = waking
        self._look = look
        self._look_s = look_s
        self._one_by_one = one_by_one
        self._waiting: dict[K, deque[asyncio.Future[None]]] = {}
        self._task: asyncio.Task[None] | None = None

    async def wait(self, key: K, seconds: float) -> None:
        """Wait until there may be news, the server stops, or the time is over."""
        if seconds <= 0 or self._waking.closing:
            return
        loop = asyncio.get_running_loop()
        news: asyncio.Future[None] = loop.create_future()
        self._waiting.setdefault(key, deque()).append(news)
        if self._task is None:
            self._task = loop.create_task(self._watch())
        try:
            await asyncio.wait({news}, timeout=seconds)
        except asyncio.CancelledError:
            if news.done():
                self.pass_on(key)  # The notified waiter has left: the news is for the next.
            raise
        finally:
            self._leave(key, news)

    def pass_on(self, key: K) -> None:
        """There may be news for the next waiter."""
        for news in self._waiting.get(key, ()):
            if not news.done():
                news.set_result(None)
                if self._one_by_one:
                    return

    def _leave(self, key: K, news: asyncio.Future[None]) -> None:
        others = self._waiting.get(key)
        if others is not None:
            if news in others:
                others.remove(news)
            if not others:
                del self._waiting[key]

    async def _watch(self) -> None:
        pause_s = self._look_s
        try:
            while self._waiting and not self._waking.closing:
                await self._waking.wait(pause_s)
                pause_s = await self._look_once()
                await asyncio.sleep(GAP_S)
        finally:
            self._task = None
            if self._waking.closing:
                for key in list(self._waiting):
                    for news in self._waiting[key]:
                        if not news.done():
                            news.set_result(None)

    async def _look_once(self) -> float:
        if not self._waiting or self._waking.closing:
            return self._look_s
        try:
            found, pause_s = await self._look(list(self._waiting))
        except StoreError:
            return self._look_s  # Waiters go on; a new caller gets the error.
        for key in found:
            self.pass_on(key)
        return pause_s


class Tail:
    """The newest events, read once for all streams of this process."""

    def __init__(self, waking: Waking, store: Callable[[], Store]) -> None:
        self._waking = waking
        self._store = store
        self._kept: deque[EventBatch] = deque(maxlen=MOST_KEPT)
        self._from: int | None = None
        """The position from which on all events are kept; None while there is no reader."""
        self._next = 0
        self._waiters: set[asyncio.Future[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._streams = 0

    async def follow(self, position: int) -> AsyncIterator[EventBatch]:
        """All events from a position on, until the server stops."""
        self._streams += 1
        try:
            while not self._waking.closing:
                if self._task is None:
                    self._task = asyncio.get_running_loop().create_task(self._read())
                for batch in await self._since(position):
                    yield batch
                    position = batch.position + len(batch.events)
        finally:
            self._streams -= 1

    async def _since(self, position: int) -> list[EventBatch]:
        """What is known from a position on; if nothing is, wait for it."""
        if self._from is None or position < self._from:
            found = await self._store().events_since(position, BATCH)
            if found or (self._from is not None and position >= self._from):
                return found
        else:
            found = [batch.since(position) for batch in self._kept if batch.position + len(batch.events) > position]
            if found:
                return found
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait({waiter}, timeout=EVENTS_LOOK_S if self._from is None else None)
        finally:
            self._waiters.discard(waiter)
        return []

    async def _read(self) -> None:
        try:
            while self._streams and not self._waking.closing:
                try:
                    batches = await self._look()
                except StoreError:
                    batches = []
                if batches:
                    await asyncio.sleep(GAP_S)
                else:
                    await self._waking.wait(EVENTS_LOOK_S)
                    await asyncio.sleep(GAP_S)
        finally:
            self._task, self._from = None, None
            self._kept.clear()
            self._tell()

    async def _look(self) -> list[EventBatch]:
        if self._from is None:
            self._from = self._next = await self._store().next_position()
            self._tell()
        batches = await self._store().events_since(self._next, BATCH)
        for batch in batches:
            if len(self._kept) == MOST_KEPT:
                self._from = self._kept[1].position
            self._kept.append(batch)
            self._next = batch.position + len(batch.events)
        if batches:
            self._tell()
        return batches

    def _tell(self) -> None:
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)


class Watching:
    """All that the waiters of one server share."""

    def __init__(self, waking: Waking, store: Callable[[], Store]) -> None:
        self._store = store
        self.tail = Tail(waking, store)
        self.lines: Shared[tuple[str, int]] = Shared(waking, self._find_lines, LINES_LOOK_S)
        """Keys are runs and the number of the last line that is known of each: more lines, or the end of the run."""
        self.work: Shared[Worker] = Shared(waking, self._find_work, WORK_LOOK_S, one_by_one=True)
        """Keys are kinds of workers: see `kind_of`."""

    async def _find_lines(self, keys: Sequence[tuple[str, int]]) -> tuple[Iterable[tuple[str, int]], float]:
        store, first = self._store(), dict[str, int]()
        for run_id, number in keys:
            first[run_id] = min(number, first.get(run_id, number))
        news = {run.id for run in await store.finished(list(first))} | set(await store.have_written(first))
        return [key for key in keys if key[0] in news], LINES_LOOK_S

    async def _find_work(self, kinds: Sequence[Worker]) -> tuple[Iterable[Worker], float]:
        store, found, pause_s = self._store(), [], WORK_LOOK_S
        for kind in kinds:
            due_at = await store.next_due(kind)
            if due_at is None:
                continue
            left_s = (due_at - store.now()) / SECOND
            if left_s <= 0:
                found.append(kind)
            else:
                pause_s = min(pause_s, max(left_s, SHORTEST_S))
        return found, pause_s


def kind_of(worker: Worker) -> Worker:
    """What workers that may take the same runs have in common."""
    return Worker(
        id="",
        namespace=worker.namespace,
        queues=tuple(sorted(worker.queues)),
        regions=tuple(sorted(worker.regions)),
        tasks=tuple(sorted(worker.tasks)),
        priorities=worker.priorities,
    )
