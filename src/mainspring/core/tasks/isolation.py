"""How far a program or a function is kept from its host, and how much of it it may use."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from mainspring.core.instants import Duration, format_duration, parse_duration
from mainspring.core.runs.retry import Length
from mainspring.errors import InvalidInput

Level = Literal["none", "process", "limits", "sandbox"]
Size = int | str
"""Bytes, as a number or like `"512MB"`; a kB is 1000 bytes, a KiB 1024."""

_UNITS = {"": 1, "b": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "tb": 10**12}
_UNITS |= {"kib": 2**10, "mib": 2**20, "gib": 2**30, "tib": 2**40}
_SHOWN = (("bytes", 1), ("kB", 10**3), ("MB", 10**6), ("GB", 10**9), ("KiB", 2**10), ("MiB", 2**20), ("GiB", 2**30))
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")
_LIMITS = ("cpu", "memory", "processes", "files", "file_size", "disk", "output")
_SWITCHES = ("network", "ignore_oom")
_WORDS = ("user", "read", "write", *_SWITCHES)
_SANDBOX_ONLY = ("read", "write", "network")


# Not a Struct, for the same reason as Retry: what a user writes is not what is stored.
@dataclass(frozen=True, slots=True, init=False)
class Isolation:
    """Where a run is executed, and what it may use. The fields are what is stored: durations in microseconds, sizes in
    bytes."""

    level: Level
    cpu: Duration | None
    memory: int | None
    processes: int | None
    files: int | None
    file_size: int | None
    disk: int | None
    output: int | None
    user: str | None
    read: tuple[str, ...]
    write: tuple[str, ...]
    network: bool
    ignore_oom: bool = False

    def __init__(
        self,
        level: Level,
        *,
        cpu: Length | None = None,
        memory: Size | None = None,
        processes: int | None = None,
        files: int | None = None,
        file_size: Size | None = None,
        disk: Size | None = None,
        output: Size | None = None,
        user: str | None = None,
        read: Iterable[str] = (),
        write: Iterable[str] = (),
        network: bool = False,
        ignore_oom: bool = False,
    ) -> None:
        """`level` is one of

        - `"none"`: a command as the worker's own user, a function in the worker itself;
        - `"process"`: a function in its own process, which can be killed;
        - `"limits"`: a fresh process with the limits given, its own user if the worker is root, an empty
          environment and private temporary folders;
        - `"sandbox"`: as well, a read-only system, no other processes in sight, no network unless `network`, and of
          other folders only those to `read` and to `write`.

        Limits: `cpu` (time), `memory`, `processes`, `files` (open at once), `file_size` (of each), `disk` (of each
        private temporary folder), `output` (more ends the run). A run of which a process was killed because the run
        used up its `memory` fails, however it ends; with `ignore_oom` its end decides.
        """
        if level not in get_args(Level):
            choices = ", ".join(get_args(Level))
            raise InvalidInput("isolation", level, "is not known", f"choose one of {choices}")
        fields: dict[str, object] = {
            "level": level,
            "cpu": None if cpu is None else _some(parse_duration(cpu, "cpu"), "cpu"),
            "memory": _read_size(memory, "memory"),
            "processes": _read_count(processes, "processes"),
            "files": _read_count(files, "files"),
            "file_size": _read_size(file_size, "file_size"),
            "disk": _read_size(disk, "disk"),
            "output": _read_size(output, "output"),
            "user": user,
            "read": _read_paths(read, "read"),
            "write": _read_paths(write, "write"),
            "network": network,
            "ignore_oom": ignore_oom,
        }
        for name, value in fields.items():
            object.__setattr__(self, name, value)
        _check_level(self)

    @property
    def confined(self) -> bool:
        """Whether the level confines the run beyond its own process."""
        return self.level in ("limits", "sandbox")

    def __str__(self) -> str:
        shown = [f"{name} {_show(name, value)}" for name in _LIMITS if (value := getattr(self, name)) is not None]
        return ", ".join([self.level, *shown])


def parse_isolation(text: str) -> Isolation:
    """An isolation as one text: a level, and what goes with it, as in `sandbox,memory=512MB,read=/srv,network`."""
    level, *rest = (part.strip() for part in text.split(","))
    words: dict[str, Any] = {}
    for part in rest:
        name, given, value = part.partition("=")
        if name not in (*_LIMITS, *_WORDS) or (not given and name not in _SWITCHES):
            raise InvalidInput("isolation", part, "is not known", "write it like sandbox,memory=512MB,network")
        if name in ("read", "write"):
            words[name] = [*words.get(name, ()), value]
        elif name in _SWITCHES:
            if given and value not in ("true", "false"):
                raise InvalidInput("isolation", part, "is neither true nor false", f"write {name}, or leave it out")
            words[name] = value != "false"
        elif name in ("processes", "files"):
            words[name] = int(value) if value.isdecimal() else value
        else:
            words[name] = value
    return Isolation(cast(Level, level), **words)


def format_isolation(isolation: Isolation) -> str:
    """The text that `parse_isolation` reads."""
    given = {name: value for name in _LIMITS if (value := getattr(isolation, name)) is not None}
    words = [f"{name}={_show(name, value).removesuffix(' bytes').replace(' ', '')}" for name, value in given.items()]
    words += [] if isolation.user is None else [f"user={isolation.user}"]
    paths = [f"{name}={path}" for name in ("read", "write") for path in getattr(isolation, name)]
    return ",".join([isolation.level, *words, *paths, *(name for name in _SWITCHES if getattr(isolation, name))])


def parse_size(value: Size, field: str) -> int:
    """A number of bytes; InvalidInput if it is not one."""
    if isinstance(value, int) and not isinstance(value, bool):
        return _some(value, field)
    match = _SIZE.fullmatch(value.strip().lower()) if isinstance(value, str) else None
    if match is None or match[2] not in _UNITS:
        raise InvalidInput(field, value, "is not a size", 'write it like "512MB" or "2GiB"')
    return _some(int(float(match[1]) * _UNITS[match[2]]), field)


def format_size(size: int) -> str:
    """A number of bytes for people."""
    fitting = [(size // factor, unit) for unit, factor in _SHOWN if size % factor == 0]
    count, unit = min(fitting)
    return f"{count} {unit}"


def _show(name: str, value: int) -> str:
    if name == "cpu":
        return format_duration(value)
    return str(value) if name in ("processes", "files") else format_size(value)


def _some(value: int, field: str) -> int:
    if value <= 0:
        raise InvalidInput(field, value, "is nothing at all", "choose a value above zero")
    return value


def _read_size(value: Size | None, field: str) -> int | None:
    return None if value is None else parse_size(value, field)


def _read_count(value: int | None, field: str) -> int | None:
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
        raise InvalidInput(field, value, "is not a count", "give a whole number from 1 up")
    return value


def _read_paths(paths: Iterable[str], field: str) -> tuple[str, ...]:
    found = tuple(paths) if not isinstance(paths, str) else (paths,)
    for path in found:
        if not isinstance(path, str) or not path.startswith("/") or "\0" in path or "/../" in f"{path}/":
            raise InvalidInput(field, path, "is not an absolute path", 'write it like "/srv/data"')
    return found


def _check_level(isolation: Isolation) -> None:
    given = [name for name in (*_LIMITS, *_WORDS) if getattr(isolation, name)]
    if given and not isolation.confined:
        problem = f"holds only from level limits on, not at {isolation.level}"
        raise InvalidInput(given[0], getattr(isolation, given[0]), problem, 'choose "limits" or "sandbox"')
    for name in _SANDBOX_ONLY:
        if getattr(isolation, name) and isolation.level != "sandbox":
            raise InvalidInput(name, getattr(isolation, name), "holds only in a sandbox", 'choose level "sandbox"')
