"""`manage.py mainspring …`: every command of Mainspring, with Django's settings loaded.

Where a command takes APP and none is given, it is the app of the setting MAINSPRING_APP. All other commands use that
app's store and its other settings.
"""

from __future__ import annotations

import sys
from argparse import REMAINDER
from collections.abc import Sequence
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser

from mainspring.cli.main import run

_PROGRAM = "python manage.py mainspring"
_TAKE_AN_APP = {("up",), ("worker",), ("server",), ("job", "sync")}


class Command(BaseCommand):
    """Runs `mainspring` as if it had been called by itself."""

    help = "Run a command of Mainspring: manage.py mainspring up, worker, job list, …"

    def run_from_argv(self, argv: Sequence[str]) -> None:
        """The words after the command are Mainspring's own, options included."""
        sys.exit(_run(argv[2:]))

    def add_arguments(self, parser: CommandParser) -> None:
        """All words are Mainspring's own."""
        parser.add_argument("words", nargs=REMAINDER)

    def handle(self, *args: Any, **options: Any) -> None:
        """For `call_command("mainspring", "job", "list")`."""
        if code := _run(options["words"]):
            raise CommandError(f"mainspring ended with exit code {code}", returncode=code)


def _run(words: Sequence[str]) -> int:
    app = getattr(settings, "MAINSPRING_APP", None)
    return run(words if app is None else _with_app(list(words), app), program=_PROGRAM, app=app)


def _with_app(words: list[str], app: str) -> list[str]:
    """The words of a command, with the app after the command itself, where it takes one and none is given."""
    for command in _TAKE_AN_APP:
        end = len(command)
        has_own = words[end : end + 1] and not words[end].startswith("-")
        if tuple(words[:end]) == command and not has_own:
            return [*words[:end], app, *words[end:]]
    return words
