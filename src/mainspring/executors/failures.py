"""Failures as text to be stored, without anything that could be turned back into code."""

from __future__ import annotations

import traceback
from pathlib import Path

from mainspring.core.instants import Duration, parse_duration
from mainspring.core.model import Failure
from mainspring.core.runs.retry import error_names
from mainspring.errors import InvalidInput, RetryIn
from mainspring.executor import Outcome, plain

_OURS = str(Path(__file__).resolve().parent.parent)
_LONGEST_MESSAGE = 4_000
_LONGEST_TRACEBACK = 16_000


def failed(error: BaseException, *, final: bool = False, unfit: bool = False) -> Outcome:
    """The outcome of an attempt that raised; `final` if it would raise the same again, `unfit` if the arguments were
    not those of the function."""
    if isinstance(error, RetryIn):
        try:
            asked = parse_duration(error.delay, "delay")
        except InvalidInput as invalid:
            return failed(invalid, final=final, unfit=unfit)
    else:
        asked = None
    names = tuple(plain(name) for name in error_names(type(error)))
    message = plain(_message(error)[:_LONGEST_MESSAGE])
    kind = names[0].removeprefix("mainspring.errors.")
    failure = Failure(kind, message, plain(_user_traceback(error)))
    return Outcome("failed", failure=failure, error_types=names, asked=asked, final=final, unfit=unfit)


def failed_by(kind: str, message: str, *more: str, final: bool = False, asked: Duration | None = None) -> Outcome:
    """The outcome of an attempt that failed for a reason with a name of ours; `more` are the error's more general
    types."""
    types = tuple(f"mainspring.{each}" for each in (kind, *more))
    return Outcome("failed", failure=Failure(kind, plain(message)), error_types=types, final=final, asked=asked)


def _message(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return "(its message could not be read)"


def _user_traceback(error: BaseException) -> str:
    """The traceback from the first frame of the user's code on."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OURS):
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames, limit=-30))
    return text if len(text) <= _LONGEST_TRACEBACK else text[:8_000] + "\n... cut ...\n" + text[-8_000:]
