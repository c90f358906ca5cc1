"""The tasks that Mainspring itself provides: the arguments of each."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from mainspring.core.tasks.commands import split_command
from mainspring.core.tasks.containers import ContainerSpec
from mainspring.errors import InvalidInput

SECRET = "$secret"
"""`{"$secret": "NAME"}`, wherever it stands in arguments, is replaced in the worker by the secret of that name."""
_SECRET_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,199}")

_Code = Annotated[int, msgspec.Meta(ge=-64, le=255)]


WarningSignal = Literal["HUP", "INT", "QUIT", "USR1", "USR2", "TERM", "ALRM", "WINCH"]
"""Signals that programs can be taught to understand."""


class CommandSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A program to run."""

    argv: Annotated[list[str], msgspec.Meta(min_length=1)] | Annotated[str, msgspec.Meta(min_length=1)]
    """The program and its arguments. One text is split into words as a shell would, without running one: so what only a
    shell could do (`a | b`, `$(date)`, `*.tmp`) is refused, unless it is quoted."""
    shell: bool = False
    """Let `/bin/sh` run the text. The worker must allow it."""
    cwd: str | None = None
    env: dict[str, str] = {}
    stdin: Any = None
    """What it can read: a text as it is, anything else as JSON."""
    success: tuple[_Code, ...] = (0,)
    """Exit codes that mean success. A signal is a negative code."""
    final: tuple[_Code, ...] = ()
    """Exit codes that are not retried."""
    retried: tuple[_Code, ...] | None = None
    """If given, only these exit codes are retried."""
    warn: WarningSignal | None = None
    """The signal that it gets at its soft deadline; none unless given."""
    result: Literal["line", "file"] | None = None
    """Take the result from its last line of output, or from the file that `$MAINSPRING_RESULT` names; JSON in both."""

    def __post_init__(self) -> None:
        """No system could start a program with a NUL in its words."""
        words = [self.argv] if isinstance(self.argv, str) else self.argv
        if any("\0" in word for word in (*words, self.cwd or "", *self.env, *self.env.values())):
            raise ValueError("embedded null byte")
        if any("=" in name or not name for name in self.env):
            raise ValueError("a variable of the environment needs a name without =")
        if self.shell and not isinstance(self.argv, str):
            raise ValueError("a shell takes one text, not a list")


_Status = Annotated[int, msgspec.Meta(ge=100, le=599)]


class HttpSpec(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An HTTP call. In `url`, `headers`, `body` and `json`, `${name}` stands for a value of `data`, or for a fact of
    the run: `run_id`, `attempt`, `job`, `fire_at`."""

    url: Annotated[str, msgspec.Meta(min_length=8, max_length=8000)]
    method: Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] | None = None
    """GET unless there is something to send, POST then."""
    headers: dict[str, str] = {}
    body: str | None = None
    json: Any = msgspec.UNSET
    """Sent as JSON. A text that is nothing but `${name}` becomes the value itself, whatever its type."""
    data: dict[str, Any] = {}
    expect: tuple[_Status, ...] = ()
    """Statuses that mean success; all from 200 to 299 unless given."""
    retried: tuple[_Status, ...] = (408, 425, 429, 500, 502, 503, 504)
    """Statuses after which it is tried again; after others that are not expected it is not."""
    sign: str | None = None
    """The key of a signature in the header `Mainspring-Signature`; give it as a secret."""
    redirects: Annotated[int, msgspec.Meta(ge=0, le=20)] = 5
    """How many redirects are followed. Each is checked like the first address."""

    def __post_init__(self) -> None:
        """What could never be sent."""
        scheme, separator, rest = self.url.partition("://")
        if scheme.lower() not in ("http", "https") or not separator or not rest:
            raise ValueError("the url must begin with https:// or http://")
        if self.body is not None and self.json is not msgspec.UNSET:
            raise ValueError("give body or json, not both")
        for name, value in self.headers.items():
            if not _HEADER.fullmatch(name) or "\n" in value or "\r" in value or "\0" in value:
                raise ValueError(f"{name!r} cannot be a header")


_HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
SPECS: dict[str, type[msgspec.Struct]] = {"command": CommandSpec, "http": HttpSpec, "container": ContainerSpec}


def check_spec(task: str, args: Mapping[str, object]) -> None:
    """Refuse arguments that a provided task could not take; those of other tasks are not its business."""
    spec = SPECS.get(task)
    if spec is None:
        return
    try:
        read = msgspec.convert(without_secrets(args), spec, str_keys=True)
    except (msgspec.ValidationError, RecursionError) as error:
        remedy = f"{task} takes {', '.join(spec.__struct_fields__)}"
        raise InvalidInput("args", args, f"are no arguments of {task}: {error}", remedy) from None
    if isinstance(read, CommandSpec) and isinstance(read.argv, str) and not read.shell:
        split_command(read.argv, "args.argv")


def is_secret(value: object) -> bool:
    """Whether a value is a reference to a secret."""
    return isinstance(value, dict) and len(value) == 1 and SECRET in value


def secret_name(reference: Mapping[str, object]) -> str:
    """The name in a reference; InvalidInput if it could not be one."""
    name = reference[SECRET]
    if not isinstance(name, str) or not _SECRET_NAME.fullmatch(name):
        raise InvalidInput(SECRET, name, "is not the name of a secret", "use letters, digits, underscores, dots")
    return name


def without_secrets(value: Any, found: str = "") -> Any:
    """A copy in which every reference to a secret is a text, as it will be."""
    if is_secret(value):
        secret_name(value)
        return found
    if isinstance(value, Mapping):
        return {name: without_secrets(each, found) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [without_secrets(each, found) for each in value]
    return value
