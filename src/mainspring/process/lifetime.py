"""A context manager that is entered and left in one task, whichever tasks ask for it: cancel scopes need that."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager


class Lifetime:
    """Holds a context open between `begin` and `end`, on one event loop."""

    def __init__(self, manager: Callable[[], AbstractAsyncContextManager[object]]) -> None:
        self._manager = manager
        self._over = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Enter the context; its errors are raised here."""
        begun = asyncio.Event()
        self._task = asyncio.create_task(self._live(begun))
        entering = asyncio.create_task(begun.wait())
        try:
            await asyncio.wait({self._task, entering}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            self._task.cancel()
            raise
        finally:
            entering.cancel()
        if self._task.done():
            self._task.result()

    async def end(self) -> None:
        """Leave the context; its errors are raised here, once."""
        self._over.set()
        task, self._task = self._task, None
        if task is not None:
            await task

    async def _live(self, begun: asyncio.Event) -> None:
        async with self._manager():
            begun.set()
            await self._over.wait()
