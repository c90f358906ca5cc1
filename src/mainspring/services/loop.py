"""The one shape of every loop: `turn` does one pass and says when to look again; the rest (waiting, waking, trouble)
is here."""

from __future__ import annotations

import asyncio
import logging
from random import Random
from typing import ClassVar

from mainspring.clock import Clock
from mainspring.errors import StoreUnavailable

log = logging.getLogger("mainspring")

FIRST_BACKOFF_S = 0.05
LONGEST_BACKOFF_S = 5.0


class Loop:
    """Subclasses write `turn`. A turn that fails is repeated later and later, never given up, and never dies
    silently."""

    name: ClassVar[str]

    def __init__(self, clock: Clock, random: Random) -> None:
        self.clock = clock
        self.turned_at = clock.monotonic()
        """When the last turn ended well: shows whether the loop is alive."""
        self._random = random
        self._failures = 0
        self._stopping = False
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None

    async def turn(self) -> float:
        """One pass; the answer is in how many seconds to look again at the latest."""
        raise NotImplementedError(self.name)

    def wake(self) -> None:
        """Look again now. To be called on the loop's own thread."""
        self._woken = True
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def stop(self) -> None:
        """End after the current turn."""
        self._stopping = True
        self.wake()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    async def run(self) -> None:
        """Turn until stopped."""
        while not self._stopping:
            self._woken = False
            delay = await self._turn_safely()
            if delay > 0:
                await self._wait(delay)

    async def _turn_safely(self) -> float:
        try:
            delay = await self.turn()
        except Exception as error:
            return self._back_off(error)
        if self._failures:
            log.info("%s: works again after %d failures", self.name, self._failures)
        self._failures = 0
        self.turned_at = self.clock.monotonic()
        return delay

    def _back_off(self, error: Exception) -> float:
        """Half of the pause is random, so that nodes that lost one database do not all come back at the same moment."""
        self._failures += 1
        pause = min(FIRST_BACKOFF_S * 2.0 ** min(self._failures - 1, 10), LONGEST_BACKOFF_S)
        pause *= 0.5 + 0.5 * self._random.random()
        expected = isinstance(error, StoreUnavailable)
        log.warning("%s: %s; trying again in %.2f s", self.name, error, pause, exc_info=None if expected else error)
        return pause

    async def _wait(self, seconds: float) -> None:
        if self._woken or self._stopping:
            return
        waiter = self._waiter = asyncio.get_running_loop().create_future()
        timer = asyncio.ensure_future(self.clock.sleep(seconds))
        timer.add_done_callback(lambda _: None if waiter.done() else waiter.set_result(None))
        try:
            await waiter
        finally:
            timer.cancel()
            self._waiter = None
