"""Lets a process replace itself: it executes the same command again, under the same pid, with the work that is left."""

from __future__ import annotations

import logging
import os
import sys
import time
from contextlib import suppress

import msgspec

from mainspring.process.secrets import environment
from mainspring.services.worker.worker import UnfinishedWork
from mainspring.store import Store

EXIT_REPLACED = 75
"""The exit code of a worker that had to end because a run did not, and that cannot execute itself again."""
_VARIABLE = "_MAINSPRING_LEGACY"

log = logging.getLogger("mainspring")


class _Handover(msgspec.Struct):
    unfinished: UnfinishedWork
    stop_at: float | None
    """When to stop, on the monotonic clock, which continues across exec."""


class Succession:
    """Settles what the previous process left, and passes on what this one leaves."""

    def __init__(self, stop_after_s: float | None) -> None:
        """Must be created before anything changes the environment or the working folder. `stop_after_s` is the time
        from the command line, counted from the start of the first process."""
        self._unfinished, stop_at = _inherit()
        if stop_at is None and stop_after_s is not None:
            stop_at = time.monotonic() + stop_after_s
        self._stop_at = stop_at
        self._environ = dict(environment())
        self._folder = os.getcwd()

    @property
    def stop_after_s(self) -> float | None:
        """In how many seconds this process stops by itself."""
        return None if self._stop_at is None else max(self._stop_at - time.monotonic(), 0.001)

    async def settle(self, store: Store) -> None:
        """Report what the previous process could not report while it lived."""
        if self._unfinished is not None:
            await self._unfinished.settle(store)
            self._unfinished = None

    def pass_on(self, unfinished: UnfinishedWork, *, stopping: bool) -> None:
        """Execute this program again, with its first environment and folder; end instead if it is stopping anyway.
        Callable from any thread: exec ends all others."""
        try:
            if stopping:
                raise OSError("it was asked to stop")
            file = os.memfd_create("mainspring-unfinished", 0)
            with os.fdopen(os.dup(file), "wb") as handover:
                handover.write(msgspec.json.encode(_Handover(unfinished, self._stop_at)))
            os.lseek(file, 0, os.SEEK_SET)
            os.set_inheritable(file, True)
            os.chdir(self._folder)
            argv = [sys.executable, *sys.orig_argv[1:]]
            os.execve(sys.executable, argv, {**self._environ, _VARIABLE: f"{os.getpid()}:{file}"})
        except (OSError, AttributeError) as error:
            log.critical("this process cannot execute itself again, and ends: %s", error)
            os._exit(EXIT_REPLACED)


def _inherit() -> tuple[UnfinishedWork | None, float | None]:
    pid, _, file = os.environ.pop(_VARIABLE, "").partition(":")
    if pid != str(os.getpid()):
        return None, None
    with os.fdopen(int(file), "rb") as handover:
        found = msgspec.json.decode(handover.read(), type=_Handover)
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass  # Children of the previous program.
    return found.unfinished, found.stop_at
