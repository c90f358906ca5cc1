"""What a command line asked for, besides its own options."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from typing import Literal, TextIO


@dataclass(slots=True)
class Session:
    """Filled by the options that every command takes."""

    store: str | None = None
    server: str | None = None
    token: str | None = None
    namespace: str | None = None
    args: tuple[str, ...] = ()
    """The whole command line."""
    as_json: bool = False
    color: Literal["auto", "always", "never"] = "auto"
    debug: bool = False
    stdout: TextIO | None = None
    """The stream for JSON lines, if they must not mix with other output on stdout."""

    def keep_stdout(self) -> None:
        """Keep the standard output of this process for JSON, if that was asked for: whatever else is written there, by
        the app, its tasks or the programs that those start, goes to the standard error."""
        if self.as_json and self.stdout is None:
            sys.stdout.flush()
            self.stdout = os.fdopen(os.dup(1), "w", encoding="utf-8")
            os.dup2(2, 1)

    def colored(self, stream: TextIO | None = None) -> bool:
        """Whether to use colours on a stream (stdout): by flag, by NO_COLOR, by whether a person reads it."""
        if self.color != "auto":
            return self.color == "always"
        return not os.environ.get("NO_COLOR") and (stream or sys.stdout).isatty()


def is_attended() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()
