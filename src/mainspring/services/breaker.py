"""Whether the broker (or what else is asked before the store) is used: a breaker around its calls, and who is told when
it opens or closes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from mainspring.clock import Clock
from mainspring.core.load.breaker import Breaker, Policy, admit, note
from mainspring.core.model import Event
from mainspring.errors import BackendUnavailable, BrokerUnavailable, MainspringError
from mainspring.process.metrics import Figures, figures_of
from mainspring.services.loop import log
from mainspring.store import Store

T = TypeVar("T")

POLICY: Final = Policy(share=0.5, least=2, window_s=1.0, pause_s=0.5, longest_pause_s=5.0, probes=2)
SLOW_S: Final = 0.2
"""A broker that takes longer than this is no better than none: the store has answered long before."""

LONG_S: Final = POLICY.window_s / 2
"""Who waited in vain for so long need not do so twice: and two such waits would not be within one window."""


class Switch:
    """One for each use that a process makes of it. `lost` and `back` say what that means."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        who: str,
        *,
        kind: str = "broker",
        lost: str = "runs are claimed from the store",
        back: str = "runs are delivered again",
        unavailable: type[BackendUnavailable] = BrokerUnavailable,
        figures: Figures | None = None,
    ) -> None:
        self._store = store
        self._clock = clock
        self._who = who
        self._kind, self._lost, self._back = kind, lost, back
        self._unavailable = unavailable
        self._breaker = Breaker(POLICY, began_at=clock.monotonic())
        self._closed = True
        self._figures = figures or figures_of(store)
        self._tellings: set[asyncio.Task[None]] = set()

    @property
    def is_closed(self) -> bool:
        """Whether the broker is relied on."""
        return self._closed

    async def call(self, make: Callable[[], Awaitable[T]]) -> T:
        """The answer of the backend; `unavailable` if it has none, or must not be asked now."""
        began = self._clock.monotonic()
        self._breaker, let = admit(self._breaker, began)
        if not let:
            raise self._unavailable(f"the {self._kind} has not answered lately, and is asked again in a moment")
        try:
            answer = await make()
        except BackendUnavailable as error:
            self._note(False, str(error))
            if self._clock.monotonic() - began >= LONG_S:
                self._note(False, str(error))
            raise
        except BaseException:
            self._note(True, "")  # Not the broker's fault; but a probe must not be waited for.
            raise
        took = self._clock.monotonic() - began
        self._note(took < SLOW_S, f"an answer took {took:.1f} s")
        return answer

    def _note(self, well: bool, why: str) -> None:
        self._breaker = note(self._breaker, self._clock.monotonic(), well=well)
        self._figures.breakers[self._kind] = self._breaker.state
        if self._closed and self._breaker.state == "open":
            self._closed = False
            self._tell(f"{self._kind}.lost", f"{self._lost}: {why}")
        elif not self._closed and self._breaker.state == "closed":
            self._closed = True
            self._tell(f"{self._kind}.back", self._back)

    def _tell(self, kind: str, why: str) -> None:
        log.warning("%s: %s", kind.replace(".", " "), why)
        self._figures.count(self._kind, kind.partition(".")[2])
        telling = asyncio.get_running_loop().create_task(self._record(kind, why))
        self._tellings.add(telling)
        telling.add_done_callback(self._tellings.discard)

    async def _record(self, kind: str, why: str) -> None:
        try:
            await self._store.tell([Event(kind, self._store.now(), worker=self._who, reason=why)])
        except MainspringError as error:
            log.warning("that %s could not be told as an event: %s", kind, error)
