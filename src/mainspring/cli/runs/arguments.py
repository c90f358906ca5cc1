"""What is to be done, as typed: a task with arguments, or a command."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import click
import msgspec

from mainspring.core.tasks.commands import split_command
from mainspring.errors import InvalidInput

COMMAND = "command"
"""The task that executes an argument list."""
HTTP = "http"
"""The task that makes an HTTP call."""
PROVIDED = (COMMAND, HTTP)


class TaskChoice(NamedTuple):
    """A task and its arguments; None where nothing was said."""

    task: str | None
    args: dict[str, object] | None


def read_work(
    task: str | None, command: str | None, argv: Sequence[str], pairs: Sequence[str], http: str | None = None
) -> TaskChoice:
    """A task (`--task`, `--arg`), a command as one text (`--command`) or as words (after `--`), or an HTTP call
    (`--http`, `--arg`)."""
    if sum((task is not None, command is not None, bool(argv), http is not None)) > 1:
        raise click.UsageError("Give one of a task, --command, a command after --, and --http.")
    if http is not None:
        return TaskChoice(HTTP, {"url": http, **read_pairs(pairs)})
    if command is None and not argv:
        return TaskChoice(task, read_pairs(pairs) if pairs else None)
    if pairs:
        raise InvalidInput("arg", pairs[0], "is for tasks", "write the arguments into the command itself")
    return TaskChoice(COMMAND, {"argv": list(argv) if command is None else split_command(command, shell="-- sh -c")})


def read_pairs(pairs: Sequence[str]) -> dict[str, object]:
    """`name=value` each: JSON where it is JSON (`n=3`, `on=true`, `ids=[1,2]`), a text otherwise."""
    arguments: dict[str, object] = {}
    for pair in pairs:
        name, separator, text = pair.partition("=")
        if not separator or not name:
            raise InvalidInput("arg", pair, "has no name", "write it like --arg name=value")
        if name in arguments:
            raise InvalidInput("arg", pair, f"gives {name} a second value", "give each argument once")
        arguments[name] = _read_value(text)
    return arguments


def _read_value(text: str) -> object:
    try:
        value: object = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    return value
