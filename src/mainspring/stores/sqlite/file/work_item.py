"""Work on its way to the thread that does it, and its answer on its way back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, Generic, TypeVar, cast

from mainspring.stores.sqlite.file.transaction import Transaction

T = TypeVar("T")


class WorkItem(Generic[T]):
    """Work to be done, here or in a thread, and its answer."""

    __slots__ = ("answer", "error", "future", "loop", "promised", "takes_in", "work")

    loop: asyncio.AbstractEventLoop
    future: asyncio.Future[T]

    def __init__(self, work: Callable[[Transaction], T], promised: bool = False, takes_in: bool = False) -> None:
        self.work = work
        self.promised = promised
        self.takes_in = takes_in
        """Whether the work takes in the inbox itself."""
        self.answer: T | None = None
        self.error: BaseException | None = None

    def result(self) -> T:
        """The result of work that has been done."""
        if self.error is not None:
            raise self.error
        return cast(T, self.answer)

    def send(self, queue: SimpleQueue[WorkItem[Any] | None]) -> asyncio.Future[T]:
        """Let a thread do it; where the answer will be."""
        self.loop = asyncio.get_running_loop()
        self.future = self.loop.create_future()
        queue.put(self)
        return self.future

    def settle(self) -> None:
        if self.future.done():
            return
        if self.error is not None:
            self.future.set_exception(self.error)
        else:
            self.future.set_result(cast(T, self.answer))


def settle(batch: list[WorkItem[Any]]) -> None:
    """Hand the answers to the loops that wait for them, waking each once."""
    by_loop: dict[asyncio.AbstractEventLoop, list[WorkItem[Any]]] = {}
    for item in batch:
        by_loop.setdefault(item.loop, []).append(item)
    for loop, items in by_loop.items():
        try:
            loop.call_soon_threadsafe(_settle_here, items)
        except RuntimeError:
            continue  # That loop has ended, and its waiters with it.


def _settle_here(items: list[WorkItem[Any]]) -> None:
    for item in items:
        item.settle()
