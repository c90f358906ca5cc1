"""Passes what tasks log and print in this process to the log of their run."""

from __future__ import annotations

import io
import logging
import sys
from typing import Any, BinaryIO, TextIO, cast

from mainspring.executor import CURRENT
from mainspring.settings import Settings

OURS = "mainspring"
"""The logger of Mainspring itself, whose records never belong to a run."""


def run_level(settings: Settings) -> int:
    """The lowest level of records that go to the log of a run: info, or less if the process logs less."""
    return min(logging.INFO, logging.getLevelNamesMapping()[settings.log_level.upper()])


class RunHandler(logging.Handler):
    """Passes records that are logged within a run to its log. The current run is a context variable, so this works on
    the event loop, in threads and in processes."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record, as lines."""
        run = CURRENT.get(None)
        if run is None or record.name.partition(".")[0] == OURS:
            return
        try:
            for line in self.format(record).splitlines():
                run.log(line)
        except Exception:
            self.handleError(record)


class RunStream(io.TextIOBase):
    """Replaces `sys.stdout` or `sys.stderr`. What is written within a run goes to its log and, if the stream is a
    terminal, also there. Everything else goes to the stream that it replaces."""

    def __init__(self, inner: TextIO, stream: str) -> None:
        self._inner = inner
        self._stream = stream
        self._shown = inner.isatty()

    def write(self, text: str, /) -> int:
        """Write a text."""
        run = CURRENT.get(None)
        if run is not None:
            run.print(self._stream, text)
            if not self._shown:
                return len(text)
        return self._inner.write(text)

    def flush(self) -> None:
        """Flush the stream that this one replaces: only it buffers."""
        self._inner.flush()

    def close(self) -> None:
        """Leave the stream open: the process still needs it."""

    def writable(self) -> bool:
        """A standard stream can always be written to."""
        return True

    def isatty(self) -> bool:
        """Whether a person reads the stream."""
        return self._shown

    def fileno(self) -> int:
        """The descriptor of the stream, which bypasses the log of the run."""
        return self._inner.fileno()

    def reconfigure(self, **options: Any) -> None:
        """Change the stream, as `TextIOWrapper.reconfigure` does."""
        cast(io.TextIOWrapper, self._inner).reconfigure(**options)

    @property
    def name(self) -> str:
        """The name of the stream, as in `<stdout>`."""
        return self._inner.name

    @property
    def buffer(self) -> BinaryIO:
        """The binary stream below, which bypasses the log of the run."""
        return self._inner.buffer

    @property
    def encoding(self) -> str:  # type: ignore[override]  # CPython has no setter, though typeshed says so.
        """The encoding of the stream."""
        return self._inner.encoding

    @property
    def errors(self) -> str | None:  # type: ignore[override]  # CPython has no setter, though typeshed says so.
        """What happens to characters that the encoding lacks."""
        return self._inner.errors


def hear_logging(level: int) -> None:
    """Pass records of this level or above to the log of their run. Existing handlers show what they showed before."""
    root = logging.getLogger()
    for handler in root.handlers:
        if handler.level < root.level:
            handler.setLevel(root.level)
    root.addHandler(RunHandler(level))
    root.setLevel(min(root.level, level))


def hear_prints() -> None:
    """Pass what runs print to their logs."""
    if not isinstance(sys.stdout, RunStream):
        sys.stdout = cast(TextIO, RunStream(sys.stdout, "stdout"))
        sys.stderr = cast(TextIO, RunStream(sys.stderr, "stderr"))
