"""The shape of every loop: `turn` does one pass and returns when to look again. Waiting, waking and retrying are
here."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from random import Random
from typing import TypeVar

from mainspring.clock import Clock
from mainspring.errors import MainspringError, StoreFailed, StoreUnavailable
from mainspring.process.background import is_cancelled

log = logging.getLogger("mainspring")

T = TypeVar("T")

FIRST_BACKOFF_S = 0.05
LONGEST_BACKOFF_S = 5.0


async def within(clock: Clock, seconds: float, call: Awaitable[T]) -> T:
    """The result of a call, if it arrives in time. Otherwise the call is cancelled; raises StoreUnavailable."""
    answer = asyncio.ensure_future(call)
    either = asyncio.get_running_loop().create_future()  # Several times faster than `asyncio.wait`.

    def wake(_answer: asyncio.Future[T] | None = None) -> None:
        if not either.done():
            either.set_result(None)

    answer.add_done_callback(wake)
    alarm = clock.alarm(seconds, wake)
    try:
        await either
        if not answer.done():
            raise StoreUnavailable(f"no answer within {seconds:.1f} s")
        if answer.cancelled():
            raise StoreUnavailable("something else cancelled the call")
        return answer.result()
    finally:
        if answer.done():
            _forget(answer)
        else:
            answer.add_done_callback(_forget)
            answer.cancel()
        alarm.cancel()


def _forget(answer: asyncio.Future[T]) -> None:
    """Retrieve the exception of a call that is no longer awaited: asyncio would log it as an error."""
    if not answer.cancelled():
        answer.exception()


class Loop(ABC):
    """Subclasses implement `turn`. A turn that fails is retried with growing pauses, without end, and logged."""

    name: str

    def __init__(self, clock: Clock, random: Random) -> None:
        self.clock = clock
        self.turned_at = clock.monotonic()
        """When the last successful turn ended: shows whether the loop is alive."""
        self.progress = 0
        """Incremented at the beginning and at the end of each turn."""
        self._due_at = self.turned_at
        self._random = random
        self._failures = 0
        self._stopping = False
        self._woken = False
        self._waiter: asyncio.Future[None] | None = None
        self._resting = asyncio.Event()
        self._resting.set()

    @abstractmethod
    async def turn(self) -> float:
        """Do one pass; return in how many seconds to look again at the latest."""

    def wake(self) -> None:
        """Look again now, unless the last turn failed: retrying sooner would make matters worse. Must be called on the
        thread of the loop."""
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
        """Stop, and return once no turn is under way."""
        self.stop()
        await self._resting.wait()

    @property
    def stopping(self) -> bool:
        """Whether `stop` was called."""
        return self._stopping

    @property
    def is_due(self) -> bool:
        """Whether a turn is under way, or should be: then `progress` must grow soon."""
        return not self._resting.is_set() or self.clock.monotonic() >= self._due_at

    async def run(self) -> None:
        """Repeat `turn` until stopped."""
        while not self._stopping:
            self._woken = False
            self.progress += 1
            self._resting.clear()
            try:
                delay = await self._turn_safely()
            finally:
                self._resting.set()
            self.progress += 1
            self._due_at = self.clock.monotonic() + delay
            if delay > 0:
                await self._wait(delay)
            else:
                await self.clock.sleep(0)  # Let other loops run even where the store answers at once.

    async def _turn_safely(self) -> float:
        try:
            delay = await self.turn()
        except asyncio.CancelledError as error:
            if is_cancelled():
                raise
            # Something that the turn awaited was cancelled, not this loop.
            return self._back_off(error)
        except StoreFailed:
            raise  # No later turn of this process can succeed: the process has to end.
        except Exception as error:
            return self._back_off(error)
        if self._failures:
            log.info("%s: recovered after %d failures", self.name, self._failures)
        self._failures = 0
        self.turned_at = self.clock.monotonic()
        return delay

    def jitter(self, pause_s: float) -> float:
        """Half of a pause is random, so that nodes that lost one database do not all return at the same moment."""
        return pause_s * (0.5 + 0.5 * self._random.random())

    def _back_off(self, error: BaseException) -> float:
        self._failures += 1
        pause = min(self.jitter(self._next_pause(self._failures)), self._longest_pause())
        expected = isinstance(error, MainspringError)
        problem = str(error) or repr(error)
        log.warning("%s: %s; retrying in %.2f s", self.name, problem, pause, exc_info=None if expected else error)
        return pause

    def _next_pause(self, failures: int) -> float:
        """How long to wait after this many failures in a row."""
        return min(FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 10), LONGEST_BACKOFF_S)

    def _longest_pause(self) -> float:
        """The longest pause between retries of this loop."""
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
