"""A circuit breaker around the calls of a backend beside the store: broker, status cache, rate limiter."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from mainspring.clock import Clock
from mainspring.core.load.breaker import Breaker, Policy, admit, note
from mainspring.core.model import Event
from mainspring.errors import BackendUnavailable, BrokerUnavailable, MainspringError
from mainspring.services.loop import log
from mainspring.store import Store

T = TypeVar("T")

POLICY: Final = Policy(share=0.5, least=2, window_s=1.0, pause_s=0.5, longest_pause_s=5.0, probes=2)
SLOW_S: Final = 0.2
"""An answer that takes longer counts as a failure: the store would have answered long before."""

LONG_S: Final = POLICY.window_s / 2
"""A failure that took longer counts twice: two of them would not be within one window."""


class CircuitBreaker:
    """One for each use that a process makes of a backend. While it is open, calls fail at once. That it opens or closes
    is logged, counted and recorded as an event, in the words of `lost` and `back`."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        process: str,
        *,
        kind: str = "broker",
        lost: str = "runs are claimed from the store",
        back: str = "runs are delivered again",
        unavailable: type[BackendUnavailable] = BrokerUnavailable,
    ) -> None:
        self._store = store
        self._clock = clock
        self._process = process
        self._kind, self._lost, self._back = kind, lost, back
        self._unavailable = unavailable
        self._state = Breaker(POLICY, began_at=clock.monotonic())
        self._closed = True
        self._recordings: set[asyncio.Task[None]] = set()

    @property
    def is_closed(self) -> bool:
        """Whether the backend is used."""
        return self._closed

    async def call(self, make: Callable[[], Awaitable[T]]) -> T:
        """The answer of the backend; `unavailable` if it has none, or must not be asked now."""
        began = self._clock.monotonic()
        self._state, admitted = admit(self._state, began)
        if not admitted:
            raise self._unavailable(f"the {self._kind} has not answered lately, and is asked again in a moment")
        try:
            answer = await make()
        except BackendUnavailable as error:
            self._note(False, str(error))
            if self._clock.monotonic() - began >= LONG_S:
                self._note(False, str(error))
            raise
        except BaseException:
            self._note(True, "")  # Not the backend's fault; but a probe must have an end.
            raise
        took = self._clock.monotonic() - began
        self._note(took < SLOW_S, f"an answer took {took:.1f} s")
        return answer

    def _note(self, well: bool, why: str) -> None:
        self._state = note(self._state, self._clock.monotonic(), well=well)
        self._store.metrics.breakers[self._kind] = self._state.state
        if self._closed and self._state.state == "open":
            self._closed = False
            self._report("lost", f"{self._lost}: {why}")
        elif not self._closed and self._state.state == "closed":
            self._closed = True
            self._report("back", self._back)

    def _report(self, change: str, why: str) -> None:
        log.warning("%s %s: %s", self._kind, change, why)
        self._store.metrics.count(self._kind, change)
        recording = asyncio.get_running_loop().create_task(self._record(f"{self._kind}.{change}", why))
        self._recordings.add(recording)
        recording.add_done_callback(self._recordings.discard)

    async def _record(self, kind: str, why: str) -> None:
        try:
            await self._store.record_events([Event(kind, self._store.now(), worker=self._process, reason=why)])
        except MainspringError as error:
            log.warning("the event %s could not be recorded: %s", kind, error)
