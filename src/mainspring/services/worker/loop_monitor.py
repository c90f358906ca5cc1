"""Watches the event loop on which tasks run: reports the task that blocks it, and work that overruns its deadline while
that loop cannot notice."""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.executor import AttemptContext
from mainspring.services.loop import Loop, log
from mainspring.services.worker.runner import Runner
from mainspring.settings import Settings

LOOKS = 4
"""Looks within `blocked_after`."""
AGAIN = 10.0
"""A loop that stays blocked is reported again after ten times as long."""
_OURS = "/mainspring/services/"


class LoopMonitor(Loop):
    """Runs on the worker's own loop, which no task can block, and pings the loop of the tasks."""

    name = "loop_monitor"

    def __init__(
        self,
        runner: Runner,
        task_loop: asyncio.AbstractEventLoop,
        on_deaf: Callable[[AttemptContext], None],
        settings: Settings,
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__(clock, random)
        self._runner = runner
        self._task_loop = task_loop
        self._on_deaf = on_deaf
        self._blocked_after_s = settings.blocked_after / SECOND
        self._deaf_after_s = settings.deaf_after / SECOND
        self._asked_at: float | None = None
        self._report_after_s = self._blocked_after_s
        self._thread = 0

    @property
    def blocked_s(self) -> float:
        """For how long the loop of the tasks has not answered the ping."""
        asked_at = self._asked_at  # The other thread sets it, too.
        return 0.0 if asked_at is None else self.clock.monotonic() - asked_at

    @property
    def is_blocked(self) -> bool:
        """Whether that is longer than it should be."""
        return self.blocked_s >= self._blocked_after_s

    async def turn(self) -> float:
        if self._asked_at is None:
            self._asked_at = self.clock.monotonic()
            self._task_loop.call_soon_threadsafe(self._answer)
        elif self.blocked_s >= self._report_after_s:
            self._report()
            self._report_after_s *= AGAIN
        if self.is_blocked:
            for attempt in self._runner.overrunning(self._deaf_after_s):
                self._on_deaf(attempt)
        return self._blocked_after_s / LOOKS

    def _answer(self) -> None:
        """On the loop of the tasks."""
        self._thread = threading.get_ident()
        if self.is_blocked:
            log.warning("the event loop of the tasks answers again after %.1f s", self.blocked_s)
        self._asked_at, self._report_after_s = None, self._blocked_after_s

    def _report(self) -> None:
        attempt = self._runner.attempt_of(asyncio.current_task(self._task_loop))
        stack = "".join(self.stack())
        subject = "a task" if attempt is None else f"task {attempt.claim.task} (run {attempt.claim.run_id})"
        log.warning(
            "%s has blocked the event loop for %.1f s, and with it all other async tasks of this worker. Run what "
            'blocks in a thread (asyncio.to_thread), or the task in a process (isolation="process"). Its stack:\n%s',
            *(subject, self.blocked_s, stack),
        )
        if attempt is not None:
            attempt.write("log", f"this run has blocked the event loop of its worker for {self.blocked_s:.1f} s:")
            for line in stack.splitlines()[-2:]:
                attempt.write("log", line)

    def stack(self) -> list[str]:
        """The stack of the thread of the tasks, without the frames of the worker."""
        frame = sys._current_frames().get(self._thread)
        if frame is None:
            return []
        lines = traceback.format_stack(frame)
        first = max((number for number, line in enumerate(lines) if _OURS in line), default=-1)
        return lines[first + 1 :] or lines
