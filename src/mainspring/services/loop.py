"""The one shape of every loop: `turn` does one pass and says when to look again; the rest (waiting, waking, trouble)
is here."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from random import Random
from typing import TypeVar

from mainspring.clock import Clock
from mainspring.errors import MainspringError, StoreFailed, StoreUnavailable

log = logging.getLogger("mainspring")

T = TypeVar("T")

FIRST_BACKOFF_S = 0.05
LONGEST_BACKOFF_S = 5.0


async def within(clock: Clock, seconds: float, call: Awaitable[T]) -> T:
    """The answer of a call, if it comes in time; StoreUnavailable otherwise, and the call is cancelled."""
    answer = asyncio.ensure_future(call)
    either = asyncio.get_running_loop().create_future()  # Several times as quick as `asyncio.wait`.

    def wake(_answer: asyncio.Future[T] | None = None) -> None:
        if not either.done():
            either.set_result(None)

    answer.add_done_callback(wake)
    alarm = clock.alarm(seconds, wake)
    try:
        await either
        if answer.done():
            return answer.result()
        raise StoreUnavailable(f"no answer within {seconds:.1f} s")
    finally:
        if answer.done():
            _forget(answer)
        else:
            answer.add_done_callback(_forget)
            answer.cancel()
        alarm.cancel()


def _forget(answer: asyncio.Future[T]) -> None:
    """Nobody waits for it any more, so nobody is to miss it: else its end would be logged as an error."""
    if not answer.cancelled():
        answer.exception()


class Loop(ABC):
    """Subclasses write `turn`. A turn that fails is repeated later and later, never given up, and never dies
    silently."""

    name: str

    def __init__(self, clock: Clock, random: Random) -> None:
        self.clock = clock
        self.turned_at = clock.monotonic()
        """When the last turn ended well: shows whether the loop is alive."""
        self._random = random
        self._failures = 0
        self._stopping = False
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None
        self._resting = asyncio.Event()
        self._resting.set()

    @abstractmethod
    async def turn(self) -> float:
        """One pass; the answer is in how many seconds to look again at the latest."""

    def wake(self) -> None:
        """Look again now; but not where the last turn failed, since that would make trouble worse. To be called on
        the loop's own thread."""
        self._woken = True
        if self._may_go_on():
            self._rouse()

    def _rouse(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _may_go_on(self) -> bool:
        return self._stopping or (self._woken and not self._failures)

    def stop(self) -> None:
        """End after the current turn."""
        self._stopping = True
        self.wake()

    async def halt(self) -> None:
        """Stop, and return when no turn is under way any more."""
        self.stop()
        await self._resting.wait()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    async def run(self) -> None:
        """Turn until stopped."""
        while not self._stopping:
            self._woken = False
            self._resting.clear()
            try:
                delay = await self._turn_safely()
            finally:
                self._resting.set()
            if delay > 0:
                await self._wait(delay)
            else:
                await self.clock.sleep(0)  # A store that answers at once must not let one loop keep all others waiting.

    async def _turn_safely(self) -> float:
        try:
            delay = await self.turn()
        except StoreFailed:
            raise  # No later turn of this process will fare better: the process has to end.
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
        pause = min(pause * (0.5 + 0.5 * self._random.random()), self._longest_pause())
        expected = isinstance(error, MainspringError)
        log.warning("%s: %s; trying again in %.2f s", self.name, error, pause, exc_info=None if expected else error)
        return pause

    def _longest_pause(self) -> float:
        """How long this loop may wait for its next try."""
        return LONGEST_BACKOFF_S

    async def _wait(self, seconds: float) -> None:
        if self._may_go_on():
            return
        self._waiter = asyncio.get_running_loop().create_future()
        alarm = self.clock.alarm(seconds, self._rouse)
        try:
            await self._waiter
        finally:
            alarm.cancel()
            self._waiter = None
