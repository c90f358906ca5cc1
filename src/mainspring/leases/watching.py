"""Watches in the background that outlive their connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import TypeVar

from mainspring.errors import LeaseUnavailable

log = logging.getLogger("mainspring")

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
"""Between two attempts to open a watch again: short at first, since an endpoint may have been restarted."""
WORTH_IT_S = 0.1
"""Most locks are released before a watch over them would be worth its connection."""


class Watches:
    """The watches of one adapter."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()

    def begin(
        self, watch: Callable[[], AsyncGenerator[T, None]], see: Callable[[T], None], *, after_s: float = 0.0
    ) -> Callable[[], None]:
        """Call `see` with everything that `watch` yields, on the running loop, and open the watch again when it ends.
        The answer stops it, and `see` is not called any more. `after_s` delays the start."""
        stopped = False

        def look(seen: T) -> None:
            if not stopped:
                see(seen)

        task = asyncio.get_running_loop().create_task(_watch(watch, look, after_s))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

        def stop() -> None:
            nonlocal stopped
            stopped = True
            loop = task.get_loop()
            if not loop.is_closed():
                loop.call_soon_threadsafe(task.cancel)

        return stop

    async def close(self) -> None:
        """Stop all of them; those of this loop have ended then."""
        here = asyncio.get_running_loop()
        tasks = tuple(self._tasks)
        for task in tasks:
            if not task.get_loop().is_closed():
                task.get_loop().call_soon_threadsafe(task.cancel)
        await asyncio.gather(*(task for task in tasks if task.get_loop() is here), return_exceptions=True)


async def _watch(watch: Callable[[], AsyncGenerator[T, None]], see: Callable[[T], None], after_s: float) -> None:
    await asyncio.sleep(after_s)
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            async with aclosing(watch()) as stream:
                async for seen in stream:
                    pause_s = FIRST_PAUSE_S
                    see(seen)
        except LeaseUnavailable as error:
            log.debug("a watch is opened again: %s", error)
        except Exception as error:
            log.warning("a watch failed, and is opened again", exc_info=error)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
