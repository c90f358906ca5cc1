"""What a process prints about its own work: every start and end on a terminal, elsewhere failures and summaries.

A thread of its own prints, because a reader that does not read must not stop the process.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import TextIO

import click
import msgspec

from mainspring.cli.output.event_lines import describe_event, describe_summary
from mainspring.cli.output.harmless import harmless, harmless_json
from mainspring.core.model import PROVIDED_TASKS, Event
from mainspring.core.tasks.commands import show_command
from mainspring.operations.values.from_rows import event_record, moment
from mainspring.services.activity import Listener, Summary
from mainspring.settings import Settings

KEPT_LINES = 10_000
"""A slow reader delays at most this many lines; further ones are dropped."""
CLOSING_S = 1.0
GATHER_S = 0.03
"""Lines that arrive within this time are written together: one wake-up per line would cost more than the runs."""

_COLORS = {
    "run.succeeded": "green",
    "run.failed": "red",
    "run.retrying": "yellow",
    "run.lost": "yellow",
    "firing.missed": "yellow",
    "worker.dead": "yellow",
}


def listen(printer: LinePrinter, settings: Settings, *, as_json: bool) -> Listener:
    """Print what this process does.

    On a terminal, with `--json` and with a log level of info or less, every start and end is a line. Otherwise failed
    runs and missed firings are lines at once, and a summary follows each minute; a log level above warning leaves out
    the summary.
    """
    detailed = as_json or printer.is_terminal or settings.log_level in ("debug", "info")
    summarizes = not detailed and settings.log_level == "warning"
    print_summary = _summary_as_json if settings.log_format == "json" else _summary_as_text
    return Listener(
        on_event=_event_as_json(printer) if as_json or settings.log_format == "json" else _event_as_text(printer),
        on_summary=(lambda summary: printer.put(*print_summary(summary))) if summarizes else _ignore,
        detailed=detailed,
    )


def _event_as_text(printer: LinePrinter) -> Callable[[Event, str], None]:
    def show(event: Event, args: str) -> None:
        unnamed = event.job is None and event.task in PROVIDED_TASKS
        command = show_command(msgspec.json.decode(args)) if unnamed else ""
        printer.put(harmless(describe_event(event_record(None, event), command)), event.kind)

    return show


def _event_as_json(printer: LinePrinter) -> Callable[[Event, str], None]:
    return lambda event, _: printer.put(_encode(event_record(None, event)), "")


def _summary_as_text(summary: Summary) -> tuple[str, str]:
    return describe_summary(summary), "summary"


def _summary_as_json(summary: Summary) -> tuple[str, str]:
    return _encode({"kind": "worker.summary", **summary._asdict(), "at": moment(summary.at)}), ""


def _encode(value: object) -> str:
    return harmless_json(msgspec.json.encode(value).decode())


def _ignore(_summary: Summary) -> None:
    return None


class LinePrinter:
    """A queue to stdout, or to `file`. `on_closed` is called once the reader has gone."""

    def __init__(self, *, colored: bool, on_closed: Callable[[], None], file: TextIO | None = None) -> None:
        # Looked up now: a later stdout may capture what is written to it as the output of a run.
        self._file = file or sys.stdout
        self._colored = colored
        self._on_closed = on_closed
        self._waiting: deque[tuple[str, str]] = deque()
        self._news = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._print, name="mainspring-lines", daemon=True)
        self._thread.start()

    @property
    def is_terminal(self) -> bool:
        """Whether a person reads the lines as they are printed."""
        return self._file.isatty()

    def put(self, line: str, kind: str) -> None:
        """Print a line in the colour of a kind of event. Callable from any thread; never blocks."""
        if len(self._waiting) < KEPT_LINES:
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
                    time.sleep(GATHER_S)
                self._news.clear()  # Before the lines are taken, so that a later line sets it again.
                lines = [self._styled(*self._waiting.popleft()) for _ in range(len(self._waiting))]
                if lines:
                    click.echo("\n".join(lines), file=self._file, color=self._colored)
        except OSError:
            self._on_closed()

    def _styled(self, line: str, kind: str) -> str:
        if not self._colored:
            return line
        color = _COLORS.get(kind)
        return click.style(line, fg=color) if color else click.style(line, dim=True)
