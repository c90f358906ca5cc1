"""Live lines: printed by a thread of their own, since a reader that does not read must not stop a node."""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

import click

from mainspring.cli.output.harmless import harmless

KEPT = 10_000
"""A slow reader delays at most this many lines; further ones are dropped."""
CLOSING_S = 1.0
TOGETHER_S = 0.03
"""Lines that arrive within this time are written together: one wake-up per line would cost more than the runs."""

_COLORS = {
    "run.succeeded": "green",
    "run.failed": "red",
    "run.retrying": "yellow",
    "run.lost": "yellow",
    "firing.missed": "yellow",
    "worker.dead": "yellow",
}


class LinePrinter:
    """A queue to stdout, or to the file that is given for it. `on_closed` is called once nobody reads any more."""

    def __init__(self, *, colored: bool, on_closed: Callable[[], None], file: TextIO | None = None) -> None:
        # Now: what stands for stdout later may take what is written to it for the output of a run.
        self._file = file or sys.stdout
        self._colored = colored
        self._on_closed = on_closed
        self._waiting: deque[tuple[str, str]] = deque()
        self._news = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._print, name="mainspring-lines", daemon=True)
        self._thread.start()

    def put(self, line: str, kind: str) -> None:
        """Print a line, in the colour of the kind of event that it tells. From any thread; never blocks."""
        if len(self._waiting) < KEPT:
            self._waiting.append((line, kind))
            if not self._news.is_set():
                self._news.set()

    def close(self) -> None:
        """Print what is left, unless it takes too long."""
        self._closing = True
        self._news.set()
        self._thread.join(CLOSING_S)

    def _print(self) -> None:
        try:
            while not (self._closing and not self._waiting):
                self._news.wait()
                if not self._closing:
                    time.sleep(TOGETHER_S)
                self._news.clear()  # Before the lines are taken: what comes from here on is news again.
                lines = [self._styled(*self._waiting.popleft()) for _ in range(len(self._waiting))]
                if lines:
                    click.echo("\n".join(lines), file=self._file, color=self._colored)
        except OSError:
            self._on_closed()

    def _styled(self, line: str, kind: str) -> str:
        line = harmless(line)
        if not self._colored:
            return line
        color = _COLORS.get(kind)
        return click.style(line, fg=color) if color else click.style(line, dim=True)
