"""What tasks log and print in this process, passed to the log of their run."""

from __future__ import annotations

import logging
import sys
from typing import Any, TextIO, cast

from mainspring.executor import CURRENT
from mainspring.settings import Settings

OURS = "mainspring"
"""The logger of the program itself: what it says is not said by a task, wherever it happens."""


def run_level(settings: Settings) -> int:
    """From which level on the log of a run has what its task logs: from info on, unless the process logs more."""
    return min(logging.INFO, logging.getLevelNamesMapping()[settings.log_level.upper()])


class RunHandler(logging.Handler):
    """Passes what is logged within a run to its log. The current run is a context variable, so this holds on the event
    loop, in threads and in processes alike."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """One record, as lines."""
        run = CURRENT.get(None)
        if run is None or record.name.partition(".")[0] == OURS:
            return
        try:
            for line in self.format(record).splitlines():
                run.log(line)
        except Exception:
            self.handleError(record)


class RunStream:
    """Stands in for `sys.stdout` or `sys.stderr`: what is written within a run goes to its log; on a terminal, where a
    developer may be watching, also there. Everything else goes where it went before."""

    def __init__(self, inner: TextIO, stream: str) -> None:
        self._inner = inner
        self._stream = stream
        self._shown = inner.isatty()

    def write(self, text: str) -> int:
        """Write a text."""
        run = CURRENT.get(None)
        if run is not None:
            run.print(self._stream, text)
            if not self._shown:
                return len(text)
        return self._inner.write(text)

    def writelines(self, lines: Any) -> None:
        """Write several texts."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Only the real stream holds anything back."""
        self._inner.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def hear_logging(level: int) -> None:
    """From now on, what is logged within a run at this level or above is in its log. What the handlers that are there
    already show does not change."""
    root = logging.getLogger()
    for handler in root.handlers:
        if handler.level < root.level:
            handler.setLevel(root.level)
    root.addHandler(RunHandler(level))
    root.setLevel(min(root.level, level))


def hear_prints() -> None:
    """From now on, what is printed within a run is in its log."""
    if not isinstance(sys.stdout, RunStream):
        sys.stdout = cast(TextIO, RunStream(sys.stdout, "stdout"))
        sys.stderr = cast(TextIO, RunStream(sys.stderr, "stderr"))
