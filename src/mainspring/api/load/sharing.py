"""Shared reads: the overview of a namespace, and the news of what has changed, are read once for all viewers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

from mainspring.api.load.waking import Waking
from mainspring.api.load.watching import Tail
from mainspring.core.model import EventBatch
from mainspring.operations.views.overview_records import News
from mainspring.store import Store

T = TypeVar("T")

FRESH_S: Final = 1.0
"""All callers within this time of the start of a computation get the same answer."""
KEPT_S: Final = 10.0
"""The same for the load ahead, whose answer also depends on the number of the latest change of a job. A job that was
removed counts for this long."""
COUNTED_S: Final = 2.0
"""The same for the number of a namespace's workers, so that not every registration reads them all."""
NEWS_S: Final = 0.5
"""News is gathered for this long, so that a page hears at most twice a second what to fetch again."""
MOST_NAMED: Final = 200
"""News names at most this many jobs and runs, and then only says that there are more."""


class Fresh(Generic[T]):
    """Answers by key, each computed at most once in a time, however many ask. Lives on the API's loop."""

    def __init__(self, fresh_s: float = FRESH_S) -> None:
        self._fresh_s = fresh_s
        self._answers: dict[str, tuple[float, asyncio.Task[T]]] = {}

    async def get(self, key: str, compute: Callable[[], Awaitable[T]]) -> T:
        """The answer for a key, as of the start of its computation. A caller that disconnects does not cancel it for
        the others."""
        now = asyncio.get_running_loop().time()
        began, task = self._answers.get(key, (0.0, None))
        if task is None or now - began >= self._fresh_s or (task.done() and (task.cancelled() or task.exception())):
            self._answers = {each: kept for each, kept in self._answers.items() if now - kept[0] < self._fresh_s}
            task = asyncio.ensure_future(compute())
            self._answers[key] = (now, task)
        return await asyncio.shield(task)


class _Reader:
    """Gathers the news of one namespace for all of its viewers."""

    def __init__(self) -> None:
        self.viewers = 0
        self.edition: asyncio.Future[News] = asyncio.get_running_loop().create_future()
        self.position: asyncio.Task[int] | None = None
        """Where it begins: asked once, also if many viewers come back together."""
        self.task: asyncio.Task[None] | None = None


class Newsroom:
    """One reader per namespace follows the events and sends all viewers the jobs and runs that have changed."""

    def __init__(self, waking: Waking, tail: Tail, store: Callable[[], Store]) -> None:
        self._waking = waking
        self._tail = tail
        self._store = store
        self._readers: dict[str, _Reader] = {}

    async def follow(self, namespace: str) -> AsyncIterator[News]:
        """News until the server stops. The first asks the viewer to read everything: it may have missed something."""
        reader = self._readers.setdefault(namespace, _Reader())
        reader.viewers += 1
        try:
            if reader.task is None:
                reader.position = reader.position or asyncio.ensure_future(self._store().next_position())
                position = await asyncio.shield(reader.position)
                reader.task = reader.task or asyncio.ensure_future(self._read(namespace, reader, position))
            edition = reader.edition
            yield News([], [], more=True)
            while not self._waking.closing:
                yield await asyncio.shield(edition)
                edition = reader.edition
        except asyncio.CancelledError:
            if not reader.edition.cancelled():
                raise
        finally:
            reader.viewers -= 1
            if not reader.viewers and self._readers.get(namespace) is reader:
                del self._readers[namespace]
                if reader.task is not None:
                    reader.task.cancel()

    async def _read(self, namespace: str, reader: _Reader, position: int) -> None:
        gathered: tuple[dict[str, None], dict[str, None]] = ({}, {})
        batches = self._tail.follow(position)
        following: asyncio.Task[EventBatch] | None = None
        loop = asyncio.get_running_loop()
        due_at: float | None = None
        try:
            while True:
                following = following or asyncio.ensure_future(anext(batches))
                left = None if due_at is None else max(due_at - loop.time(), 0)
                await asyncio.wait({following}, timeout=left)
                if following.done():
                    _gather(namespace, following.result(), *gathered)
                    following = None
                if due_at is None and any(gathered):
                    due_at = loop.time() + NEWS_S
                elif due_at is not None and loop.time() >= due_at:
                    self._publish(reader, *gathered)
                    gathered, due_at = ({}, {}), None
        except StopAsyncIteration:  # The server stops.
            pass
        finally:
            if following is not None:
                following.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await following
            reader.edition.cancel()

    def _publish(self, reader: _Reader, jobs: dict[str, None], runs: dict[str, None]) -> None:
        finished, reader.edition = reader.edition, asyncio.get_running_loop().create_future()
        more = len(jobs) > MOST_NAMED or len(runs) > MOST_NAMED
        finished.set_result(News(list(jobs)[:MOST_NAMED], list(runs)[:MOST_NAMED], more))


def _gather(namespace: str, batch: EventBatch, jobs: dict[str, None], runs: dict[str, None]) -> None:
    for event in batch.events:
        if event.namespace != namespace:
            continue
        if event.job_id is not None and len(jobs) <= MOST_NAMED:
            jobs[event.job_id] = None
        if event.run_id is not None and len(runs) <= MOST_NAMED:
            runs[event.run_id] = None
