"""Error groups: which failures are of one kind. A pure function of the failure, so every process finds the same."""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import Final

import msgspec

from mainspring.core.model import Failure, Run

LONGEST: Final = 300
_VARIABLE: Final = re.compile(
    r"0x[0-9a-fA-F]+"
    r"|\b[0-9a-fA-F]{8}-[0-9a-fA-F-]{27}\b"
    r"|\b(?=[0-9A-Za-z]*\d)[0-9A-Za-z]{12,}\b"
    r"|(?<!\w)'[^']*'|\"[^\"]*\""  # The apostrophe of "can't" begins no quotation.
    r"|\d+(?:[.:,]\d+)*"
)
_PLACE: Final = re.compile(r'File "([^"\n]+)", line (\d+), in ([^\n]+)')


class ErrorKind(msgspec.Struct, frozen=True):
    """A kind of failure: its type, its message without what varies, and the place that raised it."""

    id: str
    type: str
    message: str
    place: str


def kind_of_error(run: Run) -> ErrorKind:
    """The kind of failure that ended a run: by its error, or by its reason where it has none (a lost worker)."""
    failure = _failure(run.error)
    if failure is None:
        failure = Failure("", run.reason)
    message = generalized(failure.message)
    place = _place(failure.traceback)
    number = blake2b("\0".join((failure.type, message, place)).encode("utf-8", "replace"), digest_size=8)
    return ErrorKind(number.hexdigest(), failure.type, message, place)


def generalized(message: str) -> str:
    """The first line of a message, with numbers, ids and quoted texts replaced by `*`."""
    line = (message.strip().splitlines() or [""])[0]
    return _VARIABLE.sub("*", line[: 4 * LONGEST])[:LONGEST]


def _failure(error: str | None) -> Failure | None:
    try:
        return None if error is None else msgspec.convert(_complete(msgspec.json.decode(error)), Failure)
    except (msgspec.MsgspecError, TypeError, ValueError):
        return None


def _complete(error: dict[str, str]) -> dict[str, str]:
    return {"type": "", "message": "", **error}


def _place(traceback: str) -> str:
    """The innermost frame of a traceback, by the last two parts of its path. Lines move with every edit of a file, so
    the line counts only where the function has no name."""
    frames = _PLACE.findall(traceback)
    if not frames:
        return ""
    path, line, function = frames[-1]
    file = "/".join(re.split(r"[\\/]", path)[-2:])
    return f"{file}:{line}" if function.startswith("<") else f"{file} {function}"
