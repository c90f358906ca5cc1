"""Keeps the loops of a node alive. A loop that ends without being stopped, or stalls, is logged and restarted. If that
does not help, the process ends, so that its supervisor (systemd, Kubernetes) starts a new one."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable
from functools import partial

from mainspring.clock import Alarm, Clock
from mainspring.core.instants import SECOND, Duration
from mainspring.errors import StoreFailed
from mainspring.process.background import where
from mainspring.services.loop import LONGEST_BACKOFF_S, Loop, log

EXIT_FAILED = 70
"""EX_SOFTWARE: this process failed and could not recover."""
LOOKS = 6
"""After this many looks that find a loop in the same turn, it counts as stalled. Looks are counted rather than seconds,
so that a suspended process finds no loop stalled when it resumes."""
MOST_RESTARTS = 8
"""How many restarts without a successful turn between them end the process."""
FIRST_PAUSE_S = 0.1


def end_process(why: str) -> None:
    """End this process immediately, with the exit code of a failure."""
    log.critical("ending this process: %s", why)
    os._exit(EXIT_FAILED)


class _Watched:
    """What the supervisor knows of one loop."""

    def __init__(self, loop: Loop) -> None:
        self.loop = loop
        self.task: asyncio.Task[None] | None = None
        self.restarts = 0
        """Since its last successful turn."""
        self.restarted_at = loop.turned_at
        self.progress = -1
        self.looks = 0
        """How many looks in a row have found it in the same turn."""
        self.cancelled = False
        """Whether its task was cancelled because it had stalled."""


class Supervisor:
    """Runs loops as tasks of the running event loop. `count(metric, loop)` counts restarts and stalls. `on_failed` is
    called once, when a loop cannot be kept alive."""

    def __init__(
        self,
        loops: Iterable[Loop],
        clock: Clock,
        stall_after: Duration,
        count: Callable[[str, str], None] = lambda metric, loop: None,
        on_failed: Callable[[str], None] = end_process,
    ) -> None:
        self._watched = [_Watched(loop) for loop in loops]
        self._clock = clock
        self._look_s = stall_after / SECOND / LOOKS
        self._count = count
        self._on_failed = on_failed
        self._alarm: Alarm | None = None
        self._over = False
        self.on_store_failed: Callable[[StoreFailed], None] = lambda error: on_failed(str(error))
        """Called instead when a loop ends because this process may no longer use its store."""
        self.failed = ""
        """Why this supervisor gave up; empty while it has not."""

    @property
    def tasks(self) -> list[asyncio.Task[None]]:
        """The current or last task of each loop."""
        return [each.task for each in self._watched if each.task is not None]

    def start(self) -> None:
        """Start all loops."""
        for each in self._watched:
            self._begin(each)
        self._alarm = self._clock.alarm(self._look_s, self._look)

    def release(self) -> None:
        """Stop watching: the loops are about to end."""
        self._over = True
        if self._alarm is not None:
            self._alarm.cancel()

    def troubles(self) -> dict[str, str]:
        """What is wrong, by loop; empty if all of them run."""
        found = {"node": self.failed} if self.failed else {}
        for each in self._watched:
            if each.loop.stopping or each.task is None:
                continue
            if each.task.done():
                found[each.loop.name] = "has ended"
            elif each.looks >= LOOKS:
                found[each.loop.name] = f"has made no progress for {each.looks * self._look_s:.0f} s"
        return found

    def _begin(self, watched: _Watched) -> None:
        loop = watched.loop
        if self._over or loop.stopping:
            return
        watched.progress, watched.looks, watched.cancelled = -1, 0, False
        watched.task = asyncio.get_running_loop().create_task(loop.run(), name=loop.name)
        watched.task.add_done_callback(partial(self._ended, watched))

    def _ended(self, watched: _Watched, task: asyncio.Task[None]) -> None:
        loop = watched.loop
        error = None if task.cancelled() else task.exception()
        if self._over or loop.stopping:
            if error is not None and not isinstance(error, StoreFailed):  # That is why all of them end.
                log.error("loop %s failed as it ended: %r", loop.name, error, exc_info=error)
            return
        if isinstance(error, StoreFailed):
            self.on_store_failed(error)
            return
        if loop.turned_at > watched.restarted_at:
            watched.restarts = 0
        watched.restarts += 1
        watched.restarted_at = loop.turned_at
        why = "it was cancelled" if task.cancelled() else repr(error) if error is not None else "it returned"
        self._count("loop_restarts", loop.name)
        if watched.restarts > MOST_RESTARTS:
            self._give_up(f"loop {loop.name} ended {watched.restarts} times in a row, most recently because {why}")
            return
        pause_s = loop.jitter(min(FIRST_PAUSE_S * 2.0 ** (watched.restarts - 1), LONGEST_BACKOFF_S))
        log.error(
            "loop %s ended without being stopped (%s): restarting it in %.2f s",
            *(loop.name, why, pause_s),
            exc_info=error,
        )
        self._clock.alarm(pause_s, partial(self._begin, watched))

    def _look(self) -> None:
        if self._over:
            return
        for each in self._watched:
            if each.task is not None and not each.task.done() and not each.loop.stopping:
                self._look_at(each, each.task)
        self._alarm = self._clock.alarm(self._look_s, self._look)

    def _look_at(self, watched: _Watched, task: asyncio.Task[None]) -> None:
        loop = watched.loop
        if loop.progress != watched.progress or not loop.is_due:
            watched.progress, watched.looks = loop.progress, 0
            return
        watched.looks += 1
        if watched.looks < LOOKS:
            return
        stood_s = watched.looks * self._look_s
        if not watched.cancelled:
            watched.cancelled = True
            self._count("loop_stalls", loop.name)
            log.error(
                "loop %s has made no progress for %.0f s in %s: cancelling and restarting it",
                *(loop.name, stood_s, where(task)),
            )
            task.cancel()
        elif watched.looks >= 2 * LOOKS:
            self._give_up(f"loop {loop.name} has made no progress for {stood_s:.0f} s and cannot be cancelled")

    def _give_up(self, why: str) -> None:
        if not self.failed:
            self.failed = why
            log.critical("%s", why)
            self._on_failed(why)
