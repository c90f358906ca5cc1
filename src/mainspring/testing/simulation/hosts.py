"""Processes as the loop sees them: every callback belongs to one, so that one can be frozen or killed as a whole.

A callback inherits its owner through its context, as tasks do. Frozen, nothing of a process runs, and all of it goes on
later, in order; killed, nothing of it ever runs again, not even a `finally`.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import suppress
from contextvars import Context, ContextVar, copy_context
from typing import Any, TypeVar, TypeVarTuple

from mainspring.testing.simulation.loop import Stuck, VirtualLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

OWNER: ContextVar[Host | None] = ContextVar("mainspring_simulated_process", default=None)
MOST_STEPS = 200_000
"""So many callbacks without time passing are no work, but a loop that spins."""


class Host:
    """What a simulated process is to the loop. `kill` is final; whoever starts the process again makes a new one."""

    def __init__(self, loop: HostingLoop) -> None:
        self._loop = loop
        self._parked: list[asyncio.Handle] = []
        self.frozen = False
        self.dead = False
        self.context = copy_context()
        self.context.run(OWNER.set, self)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as part of this process."""
        return self._loop.create_task(work, context=self.context)

    def admit(self, handle: asyncio.Handle) -> bool:
        """Whether a callback may run now; of a frozen process it is kept for later."""
        if self.dead:
            return False
        if self.frozen:
            self._parked.append(handle)
            return False
        return True

    def freeze(self) -> None:
        """Stop the process where it is."""
        self.frozen = True

    def thaw(self) -> None:
        """Let it go on."""
        self.frozen = False
        parked, self._parked = self._parked, []
        for handle in parked:
            self._loop.admit_late(handle)

    def kill(self) -> None:
        """End it between two steps."""
        self.dead = True
        self._parked.clear()


def _owner(context: Context | None) -> Host | None:
    return OWNER.get() if context is None else context.get(OWNER)


class _Handle(asyncio.Handle):
    def __init__(
        self, callback: Callable[..., object], args: Sequence[Any], loop: HostingLoop, context: Context | None
    ) -> None:
        super().__init__(callback, args, loop, context)
        self._host = _owner(context)

    def _run(self) -> None:
        if self._host is None or self._host.admit(self):
            super()._run()


class _TimerHandle(asyncio.TimerHandle):
    def __init__(
        self,
        when: float,
        callback: Callable[..., object],
        args: Sequence[Any],
        loop: HostingLoop,
        context: Context | None,
    ) -> None:
        super().__init__(when, callback, args, loop, context)
        self._host = _owner(context)

    def _run(self) -> None:
        if self._host is None or self._host.admit(self):
            super()._run()


class HostingLoop(VirtualLoop):
    """The virtual loop, for processes that can be frozen and killed."""

    _ready: deque[asyncio.Handle]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._unfinished: list[asyncio.Task[Any]] = []
        self._prune_at = 1_000
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._timed = 0
        self._steps = 0
        self._buried = False
        self.set_exception_handler(self._note_error)
        self.errors: list[str] = []
        """What went wrong in callbacks and in tasks that nobody awaited: a bug in the program or in the simulator."""

    def _note_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._buried:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _run_once(self) -> None:
        """What the ready-made one does, in a third of the time: there are no sockets to look at, and nobody debugs."""
        ready, timers = self._ready, self._timers
        while timers and timers[0][2].cancelled():
            heapq.heappop(timers)
        if not ready and not self._stopping:
            if not timers:
                raise Stuck("every task waits for something that will never happen")
            self.pass_time(timers[0][0] - self.time())
            self._steps = 0
        now = self.time()
        while timers and timers[0][0] <= now:
            ready.append(heapq.heappop(timers)[2])
        self._steps += len(ready)
        if self._steps > MOST_STEPS:
            raise Stuck(f"{MOST_STEPS} steps were taken and no time passed: {list(ready)[:3]}")
        for _ in range(len(ready)):
            handle = ready.popleft()
            if not handle.cancelled():
                handle._run()

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """As ever; but remembered, so that what a killed process left is not ended by the garbage collector."""
        task = super().create_task(coro, name=name, context=context)
        self._unfinished.append(task)
        if len(self._unfinished) > self._prune_at:
            self._unfinished = [each for each in self._unfinished if not each.done()]
            self._prune_at = 1_000 + 2 * len(self._unfinished)
        return task

    def _call_soon(self, callback: Callable[..., object], args: Sequence[Any], context: Context | None) -> _Handle:
        handle = _Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As ever; owned by the process that asks."""
        timer = _TimerHandle(when, callback, args, self, context)
        self._timed += 1
        heapq.heappush(self._timers, (when, self._timed, timer))
        return timer

    def admit_late(self, handle: asyncio.Handle) -> None:
        """Run a callback that was kept back."""
        if not handle.cancelled():
            self._ready.append(handle)

    def bury(self) -> None:
        """End what was left unfinished. Nothing may be recorded any more."""
        self._buried = True
        for task in self._unfinished:
            if not task.done():
                with suppress(RuntimeError):  # A task that awaits in its clean-up cannot be ended more gently.
                    task.get_coro().close()
