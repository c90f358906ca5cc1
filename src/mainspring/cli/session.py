"""What a command line asked for, besides its own options."""

from __future__ import annotations

import os
import re
import shlex
import sys
from dataclasses import dataclass
from typing import Final, Literal, TextIO
from urllib.parse import urlsplit

_COMMAND: Final = re.compile(r"`mainspring [^`]+(?=`)|(?<=: )mainspring [^`]+$")
"""A command that a text names: between backticks, or at its end after a colon."""
LOCAL: Final = frozenset({"up", "server", "worker", "scale", "ui", "export", "import"}) | frozenset(
    {"token", "db", "backup", "drill", "doctor", "simulate", "completion"}
)
"""Commands that need the store or the machine: they cannot be sent to a server."""


@dataclass(slots=True)
class Session:
    """Filled by the options that every command takes."""

    store: str | None = None
    server: str | None = None
    token: str | None = None
    namespace: str | None = None
    args: tuple[str, ...] = ()
    """The whole command line."""
    program: str = "mainspring"
    """The words that start a command, where texts name one."""
    app: str | None = None
    """The app whose settings hold where a command names none: that of a framework's own program."""
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

    def complete(self, text: str) -> str:
        """A text for people. Its commands start as this one did and get the store, server and namespace that this
        command line names, so that they reach the same jobs and runs."""
        return _COMMAND.sub(lambda found: self._with_place(found[0]), text)

    def _with_place(self, command: str) -> str:
        place = {"--store": self.store, "--server": self.server, "--namespace": self.namespace}
        if command.split()[1] in LOCAL:
            del place["--server"]
        flags = [f"{flag} {_shown(value)}" for flag, value in place.items() if value is not None]
        verb, dashes, program = command.replace("mainspring", self.program, 1).partition(" -- ")
        for flag in flags:  # A remedy names its namespace already.
            verb = verb.replace(f" {flag}", "")
        return " ".join([verb, *flags]) + dashes + program


def _shown(url: str) -> str:
    """A value for a command line. A password stays where it is."""
    return "URL" if urlsplit(url).password else shlex.quote(url)


def is_attended() -> bool:
    """Whether a person can answer a question."""
    return sys.stdin.isatty() and sys.stderr.isatty()
