"""A context manager that is entered and left in one task, whichever tasks ask for it: cancel scopes need that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Lifetime(Generic[T]):
    """Holds a context open between `begin` and `end`, on one event loop."""

    def __init__(self, manager: Callable[[], AbstractAsyncContextManager[T, Any]]) -> None:
        self._manager = manager
        self._over: asyncio.Future[None] | None = None
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> T:
        """Enter the context; its value. Its errors are raised here."""
        loop = asyncio.get_running_loop()
        begun: asyncio.Future[T] = loop.create_future()
        self._over = loop.create_future()
        self._task = asyncio.create_task(self._live(begun, self._over))
        try:
            both: list[asyncio.Future[Any]] = [self._task, begun]
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        if not begun.done():
            begun.cancel()
            self._task.result()
        return begun.result()

    async def end(self, error: BaseException | None = None) -> None:
        """Leave the context, if it was entered and not left before, with an error of its body if there is one. Its
        errors are raised here."""
        task, over, self._task = self._task, self._over, None
        if task is None or over is None:
            return
        if not over.done() and not task.done():
            if error is None:
                over.set_result(None)
            else:
                over.set_exception(error)
        await task

    async def _live(self, begun: asyncio.Future[T], over: asyncio.Future[None]) -> None:
        async with self._manager() as value:
            begun.set_result(value)
            await over
