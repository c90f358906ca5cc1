"""A thread that notices when an event loop of this process no longer turns, or its thread has ended: nothing on that
loop could."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable

log = logging.getLogger("mainspring")

LOOKS = 6
"""How many looks in a row must find an event loop without an answer. Looks are counted, not seconds: a process that was
suspended finds nothing wrong when it wakes."""


class _Watched:
    """One event loop and its thread."""

    def __init__(
        self, name: str, loop: asyncio.AbstractEventLoop, thread: threading.Thread, on_failed: Callable[[str], None]
    ) -> None:
        self.name = name
        self.loop = loop
        self.thread = thread
        self.on_failed = on_failed
        self.missed = 0
        """How many looks have passed since it was asked, without an answer."""
        self.trouble = ""

    def ask(self) -> None:
        """Schedule an answer on the loop; called on the watchdog's thread."""
        self.missed += 1
        try:
            self.loop.call_soon_threadsafe(self._answer)
        except RuntimeError:
            self.missed = LOOKS + 1  # The loop is closed.

    def _answer(self) -> None:
        self.missed = 0


class Watchdog:
    """Asks every watched event loop for a sign of life."""

    def __init__(self, stall_s: float) -> None:
        self._look_s = stall_s / LOOKS
        self._watched: dict[str, _Watched] = {}
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        thread: threading.Thread,
        on_failed: Callable[[str], None],
    ) -> None:
        """Watch a loop that runs in a thread, until `forget`. If it fails, `on_failed` is called once, on the thread of
        the watchdog, with what is wrong."""
        self._watched[name] = _Watched(name, loop, thread, on_failed)
        if self._thread is None:
            self._thread = threading.Thread(target=self._look, name="mainspring-watchdog", daemon=True)
            self._thread.start()

    def forget(self, name: str) -> None:
        """Stop watching a loop that is about to end."""
        self._watched.pop(name, None)

    def troubles(self) -> dict[str, str]:
        """What is wrong, by name."""
        return {each.name: each.trouble for each in tuple(self._watched.values()) if each.trouble}

    def stop(self) -> None:
        """Watch no more."""
        self._over.set()

    def _look(self) -> None:
        while not self._over.wait(self._look_s):
            for each in tuple(self._watched.values()):
                try:
                    self._look_at(each)
                except Exception:
                    log.exception("the watchdog failed to look at %s", each.name)

    def _look_at(self, watched: _Watched) -> None:
        if watched.trouble:
            return
        if not watched.thread.is_alive():
            self._report(watched, f"the thread of {watched.name} has ended although it was not stopped")
        elif watched.missed > LOOKS:
            stack = sys._current_frames().get(watched.thread.ident or 0)
            where = "" if stack is None else "".join(traceback.format_stack(stack))
            stood_s = watched.missed * self._look_s
            self._report(watched, f"the event loop of {watched.name} has stood still for {stood_s:.0f} s", where)
        else:
            watched.ask()

    def _report(self, watched: _Watched, trouble: str, where: str = "") -> None:
        if watched.name not in self._watched:
            return  # It has been stopped meanwhile.
        watched.trouble = trouble
        log.critical("%s%s", trouble, f"; it is here:\n{where}" if where else "")
        watched.on_failed(trouble)
