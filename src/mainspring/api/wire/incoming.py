"""A request as it arrives: its headers, the checks that need no caller, and the record that is kept of it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

from mainspring.api.endpoint import JSON
from mainspring.api.problems import Problem
from mainspring.api.wire.decoding import Receive

UNROUTED = "unrouted"
"""The route of requests that no endpoint serves."""
SINGLE_HEADERS = frozenset({"authorization", "content-encoding", "content-type", "cookie", "host", "idempotency-key",
                            "if-match", "last-event-id", "mainspring-namespace", "mainspring-ui", "origin",
                            "sec-fetch-site"})  # fmt: skip
"""Headers that decide something. If one is sent twice, a proxy may have used the other value."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_JSON_TYPES = ("application/json", "application/merge-patch+json")
_UNDECLARED_TYPES = ("", "application/x-www-form-urlencoded")
"""What clients such as `curl -d` declare when they are not given a type."""


class RequestRecord:
    """What metrics and the access log record of a request. The pipeline fills it in as it learns more."""

    __slots__ = ("field_names", "is_patient", "request_id", "route", "status", "subject")

    def __init__(self, request_id: str) -> None:
        self.request_id = request_id
        self.subject = ""
        self.route = UNROUTED
        self.status = 0
        self.is_patient = False
        """Whether the request waits on purpose, so that its duration says nothing about the server."""
        self.field_names: dict[str, str] = {}
        """The caller's names of fields that have another name here, for problem documents."""


class HttpRequest(NamedTuple):
    """An HTTP request before it is understood."""

    scope: Any
    receive: Receive
    headers: Mapping[str, str]
    parameters: Mapping[str, str]
    record: RequestRecord


def read_headers(scope: Any) -> dict[str, str]:
    """The headers by name, in lower case. Of a header that was sent twice, the first."""
    return {name.decode("latin-1"): value.decode("latin-1") for name, value in reversed(scope["headers"])}


def read_request_id(scope: Any) -> str | None:
    """The request id that the client chose, if it is a valid one."""
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode())
    return None


def has_escaped_slash(scope: Any) -> bool:
    """Whether the path has an escaped slash: a proxy would take it for part of a name, and we for a separator."""
    raw: bytes = scope.get("raw_path") or b""
    return b"%" in raw and b"%2f" in raw.lower()


def check_single_headers(request: HttpRequest) -> None:
    """Problem if a header that decides something was sent twice."""
    if len(request.headers) == len(request.scope["headers"]):
        return
    sent = Counter(name.decode("latin-1") for name, _ in request.scope["headers"])
    if repeated := sorted(name for name in SINGLE_HEADERS if sent[name] > 1):
        raise Problem("bad-request", f"headers sent more than once: {', '.join(repeated)}", remedy="send each once")


def check_media_type(headers: Mapping[str, str]) -> None:
    """Problem if the body is not declared as JSON.

    A body that is declared as a form, as `curl -d` does by default, is read as JSON as well. Not from a browser: a form
    is the one request that a foreign page can send in the name of the user.
    """
    declared = headers.get("content-type", "")
    if declared == JSON:
        return
    kind, _, parameters = declared.partition(";")
    kind, charset = kind.strip().lower(), parameters.strip().lower().removeprefix("charset=").strip('"')
    from_browser = "origin" in headers or "sec-fetch-site" in headers
    is_json = kind in _JSON_TYPES or (kind in _UNDECLARED_TYPES and not from_browser)
    if not is_json or charset not in ("", "utf-8", "utf8"):
        raise Problem(
            "unsupported-media-type",
            f"the body is declared as {declared[:100]!r}",
            remedy="send `Content-Type: application/json`",
            headers={"Accept": JSON},
        )
