"""Errors of the driver, the server and the network, in our words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import asyncpg

from mainspring.errors import (
    MainspringError,
    StoreError,
    StoreFull,
    StoreMismatch,
    StoreReadOnly,
    StoreRefused,
    StoreUnavailable,
    Unstorable,
)
from mainspring.process.urls import show_url

DRIVER_ERRORS = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)
"""Errors of a connection; a timeout is an OSError."""

_Words = tuple[type[StoreError], str]
_SCHEMA: _Words = (StoreMismatch, "the schema of {url} is not as expected ({text}): run `mainspring db status`")
_STATES: dict[str, _Words] = {
    "28P01": (StoreRefused, "{url} does not let {user} in: check the user and the password in the URL ({text})"),
    "28000": (StoreRefused, "{url} does not let {user} in: check the URL, and the server's pg_hba.conf ({text})"),
    "3D000": (StoreRefused, "there is no such database at {url}: create it with `createdb`, or correct the URL"),
    "53100": (StoreFull, "the disk of {url} is full: nothing was written. Free some space and try again"),
    "53300": (StoreUnavailable, "{url} has no connection left ({text}): lower pool_size, or raise max_connections"),
    "25006": (StoreReadOnly, "{url} cannot be written: it is a replica, or was made read-only"),
    "42501": (StoreReadOnly, "{user} lacks a permission at {url} ({text}): grant it, or connect as the owner"),
    "42P01": _SCHEMA,
    "3F000": _SCHEMA,
    "42703": _SCHEMA,
    "42883": _SCHEMA,
}
_PASSING = ("08", "53", "55", "57", "40", "25", "0A")
"""Classes of errors after which the same call may succeed: connections, resources, locks, shutdown, conflicts, a
transaction that was ended, a statement whose tables have changed."""


@contextmanager
def mapped_errors(url: str) -> Iterator[None]:
    """Errors of the driver and of the network become ours at this edge."""
    try:
        yield
    except MainspringError:
        raise
    except Exception as error:
        explained = explain(error, url)
        if explained is None:
            raise
        raise explained from error


def explain(error: BaseException, url: str) -> MainspringError | None:
    """The error to raise for an error of the driver; None for one that is not the driver's."""
    shown, text = show_url(url), (str(error).strip() or type(error).__name__).splitlines()[0]
    match error:
        case asyncpg.PostgresError():
            return _explain_state(str(error.sqlstate), text, url)
        case asyncpg.DataError() | UnicodeError() | OverflowError():
            return Unstorable("data", text, "cannot be stored")
    message = f"the connection to {shown} failed: {text}"
    if isinstance(error, ConnectionRefusedError):
        message = f"no server answers at {shown}: is PostgreSQL running there? ({text})"
    elif isinstance(error, TimeoutError):
        message = f"{shown} did not answer in time"
    elif isinstance(error, asyncpg.InternalClientError):
        message = f"the connection to {shown} broke off"  # The driver's text describes its own internals.
    return StoreUnavailable(message) if isinstance(error, DRIVER_ERRORS) else None


def _explain_state(state: str, text: str, url: str) -> MainspringError:
    if state.startswith("22"):
        return Unstorable("data", text, "cannot be stored")
    passing = (StoreUnavailable if state.startswith(_PASSING) else StoreError, "{url}: {text}")
    kind, words = _STATES.get(state, passing)
    return kind(words.format(url=show_url(url), text=text, user=urlsplit(url).username or "this user"))
