"""A watch in the background that outlives its connections."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from typing import TypeVar

from mainspring.errors import LeaseUnavailable

log = logging.getLogger("mainspring")

T = TypeVar("T")

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 2.0
"""Between two attempts to open a watch again: short at first, since an endpoint may have been restarted."""


def keep_watching(
    watch: Callable[[], AsyncIterator[T]], see: Callable[[T], None], *, after_s: float = 0.0
) -> Callable[[], None]:
    """Call `see` with everything that `watch` yields, on the running loop, and open the watch again when it ends, until
    the answer is called. `after_s` delays the start: most locks are released before a watch would be worth it."""
    task = asyncio.get_running_loop().create_task(_watch(watch, see, after_s))
    _watching.add(task)
    task.add_done_callback(_watching.discard)

    def stop() -> None:
        loop = task.get_loop()
        if not loop.is_closed():
            loop.call_soon_threadsafe(task.cancel)

    return stop


_watching: set[asyncio.Task[None]] = set()


async def _watch(watch: Callable[[], AsyncIterator[T]], see: Callable[[T], None], after_s: float) -> None:
    await asyncio.sleep(after_s)
    pause_s = FIRST_PAUSE_S
    while True:
        try:
            stream = watch()
            async with aclosing(stream):  # type: ignore[type-var]
                async for seen in stream:
                    pause_s = FIRST_PAUSE_S
                    see(seen)
        except LeaseUnavailable as error:
            log.debug("a watch is opened again: %s", error)
        except Exception as error:
            log.warning("a watch failed, and is opened again", exc_info=error)
        await asyncio.sleep(pause_s)
        pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
