"""Long polls are woken when the store says that something may have changed, instead of asking it all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress

from mainspring.store import Store


class Waking:
    """Lives on the API's loop; the store calls it from any thread."""

    def __init__(self) -> None:
        self._waiters: set[asyncio.Future[None]] = set()
        self._closers: set[asyncio.Future[None]] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._unsubscribe: Callable[[], None] = lambda: None
        self._hinted = False
        self.closing = False

    def attach(self, store: Store) -> None:
        """Listen to a store, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self.closing = False
        self._unsubscribe = store.on_change(self._hint)

    def detach(self) -> None:
        """Stop listening, and release all waiters."""
        self.closing = True
        self._unsubscribe()
        self._wake()

    def end(self) -> None:
        """Release all waiters, since the server is about to stop. Callable from any thread."""
        self.closing = True
        if self._loop is not None:
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._wake)

    def _hint(self) -> None:
        if not self._hinted and self._loop is not None:
            self._hinted = True
            with suppress(RuntimeError):  # The loop has ended, and the store did not know yet.
                self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        self._hinted = False
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._waiters.clear()
        for closer in self._closers if self.closing else ():
            if not closer.done():
                closer.set_result(None)

    async def until_closing(self) -> None:
        """Wait until the server is about to stop."""
        while not self.closing:
            waiter = asyncio.get_running_loop().create_future()
            self._closers.add(waiter)
            try:
                await waiter
            finally:
                self._closers.discard(waiter)

    async def wait(self, seconds: float) -> None:
        """Wait until something may have changed, or the time is over."""
        if seconds <= 0 or self.closing:
            await asyncio.sleep(0)
            return
        waiter = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            await asyncio.wait_for(waiter, seconds)
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)
