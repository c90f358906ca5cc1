"""Errors as people and scripts get them: what, why, what to do next, an exit code; no traceback unless asked for."""

from __future__ import annotations

import errno
import json
import sys
import traceback
from collections.abc import Mapping

import click

from mainspring.cli.output.harmless import harmless, harmless_json
from mainspring.cli.session import Session
from mainspring.errors import (
    AppLoadError,
    InvalidFields,
    InvalidInput,
    MainspringError,
    NotAllowed,
    RunFailed,
    StoreReadOnly,
)

_OPTIONS = {
    "period": "every",
    "jobs": "after",
    "calendars": "calendar",
    "start_at": "start",
    "end_at": "end",
    "regions": "region",
    "tags": "tag",
    "schedule": "cron",
    "run_at": "at",
    "timezone": "tz",
    "args": "arg",
}
"""Options that are called otherwise than what they set, here or on a server."""
_FORBIDDEN = (errno.EACCES, errno.EPERM, errno.EROFS)
_OF_FILES = {
    **dict.fromkeys(_FORBIDDEN, "run it as a user who may write there, or name another place"),
    **dict.fromkeys((errno.ENOSPC, errno.EDQUOT), "free some space, or name another place"),
    **dict.fromkeys((errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ENAMETOOLONG), "name another place"),
}
"""What to do about files and folders that a command could not use."""
FAILED, USAGE, RUN_FAILED, NOT_ALLOWED, INTERRUPTED = 1, 2, 3, 4, 130


def explain(error: Exception, session: Session) -> int:
    """Print an error on stderr; returns its exit code."""
    if isinstance(error, click.exceptions.Abort):
        click.echo("Stopped.", err=True)
        return INTERRUPTED
    if session.debug:
        traceback.print_exception(error)
    if isinstance(error, click.ClickException):
        if session.as_json:
            _tell_json(error.format_message(), {})
        else:
            error.show()
        return error.exit_code
    if session.as_json:
        message, parts = _parts(error)
        more = [_fault(each) for each in error.faults] if isinstance(error, InvalidFields) else []
        _tell_json(message, {**parts, "errors": more} if more else parts)
    else:
        _print(error, session)
    return _code(error)


def _code(error: Exception) -> int:
    match error:
        case InvalidInput() | AppLoadError(user_traceback=""):
            # An app that is not where the command says, or a value that the app's file gives wrongly.
            return USAGE
        case RunFailed():
            return RUN_FAILED
        case StoreReadOnly() | NotAllowed():
            return NOT_ALLOWED
        case OSError() if error.filename and error.errno in _FORBIDDEN:
            return NOT_ALLOWED
    return FAILED


def _print(error: Exception, session: Session) -> None:
    if isinstance(error, AppLoadError) and error.user_traceback:
        click.echo(harmless(error.user_traceback.rstrip()), err=True)
    for each in error.faults if isinstance(error, InvalidFields) else [error]:
        _tell_one(each, session)


def _tell_one(error: Exception, session: Session) -> None:
    message, parts = _parts(error)
    message = harmless(session.complete(message))
    red = session.colored(sys.stderr)
    click.echo(f"{click.style('Error:', fg='red', bold=True) if red else 'Error:'} {message}", err=True, color=red)
    if remedy := parts.get("remedy"):
        click.echo(f"Try:   {harmless(session.complete(remedy))}", err=True)


def _parts(error: Exception) -> tuple[str, dict[str, str]]:
    if isinstance(error, InvalidInput):
        name, bracket, rest = error.field.partition("[")
        field = f"{_OPTIONS.get(name, name)}{bracket}{rest}"
        whole = Exception.__str__(error)
        shown = whole.removeprefix(error.field).removesuffix(f"; {error.remedy}" if error.remedy else "")
        return field + shown, {"field": field, "value": str(error.value), "remedy": error.remedy}
    if isinstance(error, MainspringError):
        return str(error), {}
    if isinstance(error, OSError) and error.filename and error.errno in _OF_FILES:
        return f"{error.filename}: {error.strerror}", {"remedy": _OF_FILES[error.errno]}
    remedy = "run it again with --debug, and report what it shows"
    return f"something unexpected happened: {type(error).__name__}: {error}", {"remedy": remedy}


def _fault(error: Exception) -> dict[str, str]:
    message, parts = _parts(error)
    return {"error": message, **parts}


def _tell_json(message: str, parts: Mapping[str, object]) -> None:
    click.echo(harmless_json(json.dumps({"error": message, **parts}, ensure_ascii=False)), err=True)
