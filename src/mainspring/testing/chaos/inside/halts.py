"""Stops that hit the right moment: a process stops itself (SIGSTOP) just before it asks the store for something.

A signal from outside hits between deciding and asking once in thousands of times. Here a process that is about to make
a call that the driver has marked takes the mark, writes down that it stands still, and does. The driver lets it go on.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Final

ANY: Final = "any"
_MOMENT_S: Final = 0.1
"""Until a signal stops all threads of a process, the one that sent it may go on."""


class Halts:
    """Marks are files in the folder of a run, so that every process sees them; only one can take each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ask(self, call: str, about: str = ANY) -> None:
        """The next process that is about to make this call (on this run, if `about` names one) shall stop."""
        (self._folder / f"halt.{call}.{about}").touch()

    def withdraw(self, call: str, about: str = ANY) -> None:
        """Withdraw a halt that has not happened yet."""
        (self._folder / f"halt.{call}.{about}").unlink(missing_ok=True)

    def actor_at(self, call: str, about: str = ANY) -> str | None:
        """The process that stands still because of a mark, if there is one. Reported once."""
        for path in self._folder.glob(f"halted.{call}.{about}.*"):
            path.unlink()
            return path.name.removeprefix(f"halted.{call}.{about}.")
        return None

    def obey(self, call: str, abouts: Iterable[str], actor: str, note: Callable[[], None]) -> None:
        """Stop, if there is a mark for this call; returns after SIGCONT."""
        for about in (ANY, *abouts):
            with suppress(FileNotFoundError):
                os.rename(self._folder / f"halt.{call}.{about}", self._folder / f"halted.{call}.{about}.{actor}")
                note()
                os.kill(os.getpid(), signal.SIGSTOP)
                time.sleep(_MOMENT_S)
                return
