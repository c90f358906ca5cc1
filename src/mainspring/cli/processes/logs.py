"""Sets up logging: to stderr, as text or JSON, with the run of each record, without secrets and control characters."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from mainspring.cli.output.harmless import harmless, harmless_json
from mainspring.executor import CURRENT, RunContext
from mainspring.settings import LogFormat


class _Formatter(logging.Formatter):
    """Masks the formatted text: a secret may be in a message, its arguments or a traceback."""

    def __init__(self, mask: Callable[[str], str]) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s %(message)s")
        self._mask = mask

    def format(self, record: logging.LogRecord) -> str:
        return self._mask(self._write(record, CURRENT.get(None)))

    def _write(self, record: logging.LogRecord, run: RunContext | None) -> str:
        text = harmless(super().format(record))  # A message may contain what a stranger sent.
        if run is None:
            return text
        first, newline, rest = text.partition("\n")
        job = "" if run.job is None else f" job={run.job}"
        return f"{first} [run={run.id} task={run.task}{job}]{newline}{rest}"


class _JsonFormatter(_Formatter):
    """Writes one JSON object per line."""

    def _write(self, record: logging.LogRecord, run: RunContext | None) -> str:
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if run is not None:
            line |= {"run": run.id, "task": run.task, "job": run.job, "attempt": run.attempt}
            if (trace := run.context.get("traceparent", "").split("-"))[1:]:
                line |= {"trace": trace[1], "span": trace[2]}
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return harmless_json(msgspec.json.encode(line).decode())


def set_up_logging(level: int, form: LogFormat, mask: Callable[[str], str]) -> None:
    """Log to stderr, apart from the data on stdout. An app with its own handlers keeps them, unless JSON is asked
    for."""
    root = logging.getLogger()
    if root.handlers and form == "text":
        return
    handler = logging.StreamHandler(sys.stderr)
    handler.setLevel(level)
    handler.setFormatter(_JsonFormatter(mask) if form == "json" else _Formatter(mask))
    root.handlers[:] = [handler]
    root.setLevel(level)
