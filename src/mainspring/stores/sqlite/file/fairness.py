"""Which task is served on its own thread in a turn of its loop.

To wake the writer thread and be woken by it takes as long as a commit on a fast disk. But only one of the callers of a
loop's turn is served where it calls, and not for long: the others meet in the thread, and share a commit.
"""

from __future__ import annotations

import asyncio
import time

TURN_S = 0.001
"""For how long one caller may keep its loop's turn."""


class Fairness:
    """Which tasks of each calling event loop were served in its present turn, and since when."""

    def __init__(self) -> None:
        self._served: dict[asyncio.AbstractEventLoop, tuple[asyncio.Task[None] | None, float]] = {}

    def are_others_served(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether another than the running task was served in this turn."""
        served = self._served.get(loop)
        return served is not None and served[0] is not asyncio.current_task(loop)

    def note(self, loop: asyncio.AbstractEventLoop) -> None:
        """The running task was served."""
        if loop not in self._served:
            self._served[loop] = (asyncio.current_task(loop), time.perf_counter())
            loop.call_soon(self._served.pop, loop, None)

    def is_long(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether the turn was kept for long enough."""
        _, since = self._served.get(loop, (None, 0.0))
        return time.perf_counter() - since > TURN_S
