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

from mainspring.testing.simulation.world.loop import Stuck, VirtualLoop

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

OWNER: ContextVar[Host | None] = ContextVar("mainspring_simulated_process", default=None)
MOST_STEPS = 200_000
"""After this many callbacks without time passing, the loop counts as spinning."""


class Host:
    """What a simulated process is to the loop. `kill` is final; a restart makes a new one."""

    def __init__(self, loop: HostingLoop) -> None:
        self._loop = loop
        self._parked: list[_Step] = []
        self.frozen = False
        self.dead = False
        self.halted = False
        """Frozen or dead: the one thing that the loop looks at before each step."""
        self.context = copy_context()
        self.context.run(OWNER.set, self)

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run something as part of this process."""
        return self._loop.create_task(work, context=self.context)

    def keep_back(self, step: _Step) -> None:
        """A callback may not run now: of a frozen process it is kept for later, of a dead one it is forgotten."""
        if not self.dead:
            self._parked.append(step)

    def freeze(self) -> None:
        """Stop the process where it is."""
        self.frozen = self.halted = True

    def thaw(self) -> None:
        """Let it go on."""
        self.frozen, self.halted = False, self.dead
        parked, self._parked = self._parked, []
        for step in parked:
            self._loop.admit_late(step)

    def kill(self) -> None:
        """End it between two steps."""
        self.dead = self.halted = True
        self._parked.clear()


class _Step(asyncio.TimerHandle):
    """A callback that is to run. Slimmer than the ready-made ones: hundreds of thousands are made for one seed."""

    __slots__ = ()

    def __init__(
        self, when: float, callback: Callable[..., object], args: Sequence[Any], context: Context | None
    ) -> None:
        self._when = when
        self._callback = callback
        self._args = args
        self._context = copy_context() if context is None else context
        self._cancelled = False

    def cancel(self) -> None:
        self._cancelled = True
        self._callback, self._args = lambda: None, ()  # What it would have needed may go.

    def __repr__(self) -> str:
        return f"<{self._callback!r} at {self._when}>"


class HostingLoop(VirtualLoop):
    """The virtual loop, for processes that can be frozen and killed."""

    _ready: deque[_Step]
    _stopping: bool

    def __init__(self) -> None:
        super().__init__()
        self._unfinished: list[asyncio.Task[Any]] = []
        self._prune_at = 1_000
        self._timers: list[tuple[float, int, _Step]] = []
        self._timed = 0
        self._buried = False
        self.set_exception_handler(self._note_error)
        self.errors: list[str] = []
        """What went wrong in callbacks and in tasks that were not awaited: a bug in the program or in the simulator."""

    def _note_error(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        if not self._buried:
            self.errors.append(f"{context.get('message')}: {context.get('exception')!r}")

    def _run_once(self) -> None:
        """Not once, but until the loop is stopped, and quicker than the ready-made one: there are no sockets to look
        at, and there is no debugger."""
        ready, take, owner = self._ready, self._ready.popleft, OWNER
        steps = 0
        while not self._stopping:
            if ready:
                step, steps = take(), steps + 1
                if steps > MOST_STEPS:
                    raise Stuck(f"{MOST_STEPS} steps were taken and no time passed: {list(ready)[:3]}")
            else:
                step, steps = self._next_timer(), 0
            if step._cancelled:
                continue
            context = step._context
            host = context.get(owner)
            if host is not None and host.halted:
                host.keep_back(step)
                continue
            try:
                context.run(step._callback, *step._args)
            except (SystemExit, KeyboardInterrupt):
                raise
            except BaseException as error:
                self.call_exception_handler({"message": f"in {step._callback!r}", "exception": error})

    def _next_timer(self) -> _Step:
        """Let time pass until it is due."""
        if not self._timers:
            raise Stuck("every task waits for something that will never happen")
        when, _, step = heapq.heappop(self._timers)
        if when > self._virtual_s and not step._cancelled:
            self._virtual_s = when
        return step

    def create_task(
        self,
        coro: Generator[Any, None, T] | Coroutine[Any, Any, T],
        *,
        name: object = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """As ever; but remembered, so that what a killed process left is not ended by the garbage collector."""
        task = asyncio.Task(coro, loop=self, name="simulated" if name is None else str(name), context=context)
        self._unfinished.append(task)
        if len(self._unfinished) > self._prune_at:
            self._unfinished = [each for each in self._unfinished if not each.done()]
            self._prune_at = 1_000 + 2 * len(self._unfinished)
        return task

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """As ever; owned by the process that asks."""
        step = _Step(0.0, callback, args, context)
        self._ready.append(step)
        return step

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.Handle:
        """There are no threads."""
        return self.call_soon(callback, *args, context=context)

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As ever; owned by the process that asks."""
        return self.call_at(self._virtual_s + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> asyncio.TimerHandle:
        """As ever; owned by the process that asks."""
        timer = _Step(when, callback, args, context)
        self._timed += 1
        heapq.heappush(self._timers, (when, self._timed, timer))
        return timer

    def nap(self, seconds: float) -> asyncio.Future[None]:
        """What `asyncio.sleep` does, without a coroutine."""
        rest: asyncio.Future[None] = asyncio.Future(loop=self)
        if seconds > 0:
            self.call_at(self._virtual_s + seconds, _end, rest)
        else:
            self.call_soon(_end, rest)
        return rest

    def admit_late(self, step: _Step) -> None:
        """Run a callback that was kept back."""
        if not step.cancelled():
            self._ready.append(step)

    def bury(self) -> None:
        """End what was left unfinished. Nothing may be recorded any more."""
        self._buried = True
        for task in self._unfinished:
            if not task.done():
                with suppress(RuntimeError):  # A task that awaits in its clean-up cannot be ended more gently.
                    task.get_coro().close()


def _end(rest: asyncio.Future[None]) -> None:
    if not rest.done():
        rest.set_result(None)
