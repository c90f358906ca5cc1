"""What went wrong between here and a server, as errors of Mainspring: what, why, and what to do."""

from __future__ import annotations

import os
import ssl
from base64 import urlsafe_b64decode
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from mainspring.api.problems import MEDIA_TYPE, PREFIX
from mainspring.clock import SystemClock
from mainspring.core.instants import SECOND, Instant
from mainspring.errors import (
    Conflict,
    InvalidFields,
    InvalidInput,
    MainspringError,
    NotAllowed,
    NotFound,
    RunGone,
    ServerError,
    ServerMismatch,
    ServerUnavailable,
)
from mainspring.operations.problems import Problem
from mainspring.version import VERSION

_FAMILIES: dict[str, type[MainspringError]] = {
    "unauthenticated": NotAllowed,
    "forbidden": NotAllowed,
    "not-found": NotFound,
    "conflict": Conflict,
    "idempotency-conflict": Conflict,
    "in-progress": Conflict,
    "stale-claim": Conflict,
    "precondition-failed": Conflict,
    "rate-limited": ServerUnavailable,
    "overloaded": ServerUnavailable,
    "unavailable": ServerUnavailable,
}
_TOKEN = "give a token with --token or MAINSPRING_TOKEN; `mainspring token create` makes one where the secret is"


def check_url(text: object) -> str:
    """The address of a server, without a slash at the end; InvalidInput if it is not one."""
    remedy = "write it like http://127.0.0.1:8321 or https://jobs.example.org"
    try:
        parts = urlsplit(text.strip()) if isinstance(text, str) else None
        if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise ValueError
    except ValueError:
        raise InvalidInput("server", text, "is not the URL of a server", remedy) from None
    if parts.username or parts.password:
        shown = f"{parts.scheme}://…@{parts.hostname}"
        raise InvalidInput("server", shown, "has a user or a password in it", "leave them out, and give a token")
    if parts.query or parts.fragment:
        raise InvalidInput("server", text, "goes on after its path", remedy)
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/').removesuffix('/v1')}"


def problem_of(answer: httpx.Response) -> Problem | None:
    """The problem document of an answer, if the answer is one."""
    if answer.headers.get("content-type", "").partition(";")[0] != MEDIA_TYPE:
        return None
    try:
        problem = msgspec.json.decode(answer.content, type=Problem)
    except msgspec.MsgspecError:
        return None
    return problem if problem.type.startswith(PREFIX) else None


def kind_of(problem: Problem) -> str:
    """The last word of its type."""
    return problem.type.removeprefix(PREFIX)


def to_error(problem: Problem, sent: Mapping[str, object]) -> MainspringError:
    """A problem as the error that a store would have given, where it is one."""
    kind, remedy = kind_of(problem), problem.remedy or ""
    if problem.errors:
        faults = [(each.field, _value(sent, each.field), each.fault, each.remedy) for each in problem.errors]
        return InvalidInput(*faults[0]) if len(faults) == 1 else InvalidFields(faults)
    if kind == "unauthenticated":
        remedy = _TOKEN
    if kind == "internal":
        return ServerError(f"something unexpected happened on the server ({problem.detail}); {remedy}")
    if gone := problem.firing or None:
        return RunGone(problem.detail, gone.job, gone.fire_at, gone.outcome, gone.reason)
    family = _FAMILIES.get(kind, ServerError)
    return family(f"{problem.detail}; {remedy}" if remedy else problem.detail)


def expired_at(token: str) -> Instant | None:
    """When a token ceased to be good by what it says itself; None if it does not say so. The server keeps it to itself,
    for it owes no explanation to strangers."""
    try:
        part = token.split(".")[1]
        claims = msgspec.json.decode(urlsafe_b64decode(part + "=" * (-len(part) % 4)), type=dict[str, Any])
        expiry = int(claims["exp"]) * SECOND
    except (ValueError, LookupError, TypeError):
        return None
    return expiry if expiry < SystemClock().now() else None


def _value(sent: Mapping[str, object], field: str) -> object:
    """What was sent under a name, as far as that is known."""
    value: object = sent
    for part in field.replace("[", ".").replace("]", "").split("."):
        if isinstance(value, Mapping):
            value = value.get(part)
        elif isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return None
    return value


def strange(url: str, answer: httpx.Response) -> ServerError:
    """The error for an answer that Mainspring would not give."""
    if answer.status_code in (502, 503, 504):
        return ServerUnavailable(
            f"what stands before the server at {url} answers {answer.status_code} {answer.reason_phrase}: the server "
            "itself may be down or starting; try again soon"
        )
    if answer.is_redirect:
        there = answer.headers.get("location", "elsewhere")
        return ServerMismatch(f"{url} sends its callers on to {there}: name the server where it really is")
    said = f"{answer.status_code} {answer.reason_phrase}".strip()
    kind = answer.headers.get("content-type", "no type").partition(";")[0]
    return ServerMismatch(
        f"what answers at {url} is not Mainspring's API (it said {said}, {kind}): check the URL, its port and its path"
    )


def mismatched(url: str, version: str | None, why: str) -> ServerMismatch:
    """The error for a server of another version than this program."""
    theirs = f"mainspring {version}" if version else "of an unknown version"
    return ServerMismatch(
        f"the server at {url} is {theirs}, this program is mainspring {VERSION}, and they do not understand each "
        f"other here ({why}): use the same version on both sides"
    )


def unreached(url: str, error: httpx.HTTPError) -> ServerError:
    """The error for a request that got no answer."""
    if fault := tls_fault(error):
        return _untrusted(url, fault)
    match error:
        case httpx.ConnectError() | httpx.ConnectTimeout():
            return ServerUnavailable(
                f"there is no server at {url} ({_reason(error)}): check the URL, and that it runs: `mainspring server`"
            )
        case httpx.RemoteProtocolError() if "illegal" in str(error):
            return ServerMismatch(f"what answers at {url} does not speak HTTP ({error}): check its port, or try https")
        case httpx.TimeoutException():
            return ServerUnavailable(f"the server at {url} did not answer in time: try again, or give it more time")
    why = str(error).rstrip(".") or type(error).__name__
    return ServerUnavailable(f"the connection to {url} was lost ({why}): try again; if it stays so, check the port")


def _untrusted(url: str, fault: ssl.SSLError) -> ServerError:
    if isinstance(fault, ssl.SSLCertVerificationError):
        remedy = "check the name in the URL; if the authority is your own, name its certificate in SSL_CERT_FILE"
        return ServerMismatch(f"the certificate of {url} is not good ({fault.verify_message}): {remedy}")
    plain = url.replace("https://", "http://", 1)
    why = (fault.reason or str(fault)).replace("_", " ").lower()
    return ServerMismatch(f"what answers at {url} does not speak TLS ({why}): did you mean {plain}?")


def _reason(error: httpx.TransportError) -> str:
    """Why there is no connection, as the system puts it."""
    if isinstance(error, httpx.ConnectTimeout):
        return "it did not accept a connection in time"
    cause = _find(error, OSError)
    if not isinstance(cause, OSError):
        return str(error)
    known = cause.errno is not None and cause.errno > 0
    return (os.strerror(cause.errno or 0) if known else cause.strerror or str(cause)).lower()


def tls_fault(error: BaseException) -> ssl.SSLError | None:
    """The TLS verification failure behind an error: it would come again."""
    found = _find(error, ssl.SSLError)
    return found if isinstance(found, ssl.SSLError) else None


def _find(error: BaseException, kind: type[BaseException]) -> BaseException | None:
    """The last error of a kind among those that led to one."""
    found: BaseException | None = None
    seen: BaseException | None = error
    while seen is not None:
        found = seen if isinstance(seen, kind) else found
        seen = seen.__cause__ or seen.__context__
    return found
