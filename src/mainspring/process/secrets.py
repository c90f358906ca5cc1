"""Secrets that a process was started with: read once, then taken out of its environment.

A variable that is deleted from `os.environ` is not passed on to what the process starts, but stays in the memory that
`/proc/PID/environ` shows; so that is overwritten, too. What was taken out can still be read here, by this process.
"""

from __future__ import annotations

import ctypes
import os
import re
import tomllib
from collections import ChainMap
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote

import msgspec

from mainspring.settings import PREFIX, Settings

RUN_SECRETS = f"{PREFIX}SECRET_"
"""How the variables begin that hold secrets for runs."""
SIGNING = (f"{PREFIX}SECRET", f"{PREFIX}TOKEN")
"""Credentials of the API. Nothing that executes runs needs them."""
MASK = "***"
_URLS = ("store", "broker", "cache", "lease", "sink", "listen")
"""Settings whose URLs may hold passwords."""
_PASSWORD = re.compile(r"://[^/@:]*:([^@/]+)@|[?&](?:\w+_)?password=([^&]+)")
_SHORTEST = 4
"""Shorter values are not masked: they would turn up everywhere by chance."""
_ENV_START, _ENV_END = 47, 48
"""Which words of /proc/self/stat, after the name in brackets, say where the memory of the environment is."""

Mask = Callable[[str], str]

_taken: dict[str, str] = {}


def environment() -> Mapping[str, str]:
    """The environment of this process, with what was taken out of it."""
    return ChainMap(dict(os.environ), _taken) if _taken else os.environ


def is_secret(name: str, value: str) -> bool:
    """Whether a variable holds a secret."""
    if name in SIGNING or name.startswith(RUN_SECRETS):
        return True
    return name.startswith(PREFIX) and name[len(PREFIX) :].lower() in _URLS and bool(_PASSWORD.search(value))


def withhold(*, forget: Iterable[str] = ()) -> None:
    """Take all secrets out of the environment. Those to `forget` are not kept here either."""
    names = [name for name, value in os.environ.items() if is_secret(name, value)]
    for name in names:
        value = os.environ.pop(name)
        if name not in forget:
            _taken[name] = value
    with suppress(OSError, ValueError, IndexError):
        _overwrite(names)


def hand_on() -> dict[str, str]:
    """What a process that executes functions of this app needs of it: the way to the store, and no more."""
    kept = {name: value for name, value in _taken.items() if not name.startswith(RUN_SECRETS)}
    return {name: value for name, value in kept.items() if name not in SIGNING}


def take_over(secrets: Mapping[str, str]) -> None:
    """Keep what another process has handed on."""
    _taken.update(secrets)


def _overwrite(names: Iterable[str]) -> None:
    """Blank the values in the memory in which the kernel has left the environment. No pointer leads there any more:
    `unsetenv` has seen to that."""
    words = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    start, end = int(words[_ENV_START]), int(words[_ENV_END])
    block = ctypes.string_at(start, end - start) if end > start else b""
    for name in names:
        mark = b"\0" + name.encode() + b"="
        found = (b"\0" + block).find(mark)
        if found >= 0:
            begin = found + len(mark) - 1
            ctypes.memset(start + begin, ord("x"), block.index(b"\0", begin) - begin)


def secrets_of(settings: Settings) -> list[str]:
    """What a process with these settings must not let out: keys, tokens, passwords, secrets of runs."""
    found = [value for value in (settings.secret, settings.token) if value]
    found += [value for name, value in environment().items() if name.startswith(RUN_SECRETS)]
    for name in _URLS:
        url = getattr(settings, name) or ""
        for match in _PASSWORD.finditer(url):
            password = match[1] or match[2]
            found.append(f":{password}@")
            # One that is also the name of the user or of the database is no secret, but a word.
            if password not in re.split(r"\W+", url.replace(f":{password}@", "@")):
                found += [password, unquote(password)]
    return found


def masker(values: Iterable[str]) -> Mask:
    """A function that replaces each of these values, in all the ways in which it may be written, by `***`."""
    forms: set[str] = set()
    for value in values:
        # As it is, as JSON and `repr` show it, and line by line: output comes so.
        forms |= {value, msgspec.json.encode(value).decode()[1:-1], repr(value)[1:-1], *value.splitlines()}
    ordered = sorted((form for form in forms if len(form) >= _SHORTEST), key=len, reverse=True)
    if not ordered:
        return _unchanged
    pattern = re.compile("|".join(map(re.escape, ordered)))
    return lambda text: pattern.sub(MASK, text)


def _unchanged(text: str) -> str:
    return text


def find_exposed(settings: Settings, file: Path, *, to_commands: bool) -> list[str]:
    """What is wrong with the files in which this process finds its secrets, in words: others can read them; or, where
    commands have its own user, those can."""
    holding = {}
    if names := _secrets_in(file):
        holding[file] = f"{file} holds {' and '.join(names)}"
    if settings.token_keys is not None and settings.token_algorithm == "HS256":
        keys = Path(settings.token_keys)
        holding[keys] = f"{keys} holds what signs tokens"
    found = []
    for path, words in holding.items():
        with suppress(OSError):
            if path.stat().st_mode & 0o077:
                found.append(f"{words}, and other users of this machine can read it: chmod 600 {path}")
            elif to_commands and os.access(path, os.R_OK):
                found.append(
                    f"{words}, and commands, which have this user, can read it: keep it in the environment, let the "
                    "server be another process with another user, or isolate commands (isolation = sandbox)"
                )
    return found


def _secrets_in(file: Path) -> list[str]:
    written: dict[str, object] = {}
    with suppress(OSError, ValueError):
        written = tomllib.loads(file.read_text("utf-8"))
    return [name for name, value in written.items() if is_secret(PREFIX + name.upper(), str(value))]
