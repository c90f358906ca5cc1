"""The shell around the application: request ids, security headers, the access log."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
from litestar.types import ASGIApp, Message, Receive, Send
from prometheus_client import Counter, Histogram

from mainspring.api.endpoint import Answer, Endpoint
from mainspring.api.pipeline import Desk, refuse
from mainspring.api.problems import Problem
from mainspring.api.router import Asked, Lane, headers_of
from mainspring.core.instants import format_instant

access_log = logging.getLogger("mainspring.access")
access_log.setLevel(logging.INFO)
access_log.propagate = False
"""JSON, one line per request, for whoever adds a handler: no query, header or body, since those may hold secrets."""

_REQUEST_ID = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"})
_UNROUTED = "unrouted"

SECURITY_HEADERS = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cache-control", b"no-store"),
)
_SECURED = frozenset(name for name, _ in SECURITY_HEADERS)


class Shell:
    """An ASGI application around another."""

    def __init__(
        self,
        inner: ASGIApp,
        desk: Desk,
        lane: Lane,
        is_served: Callable[[str], bool],
        methods_at: Callable[[str], list[str]],
    ) -> None:
        self.inner = inner
        self._desk = desk
        self._lane = lane
        self._counted: dict[tuple[str, str, int], tuple[Counter, Histogram]] = {}
        self._is_served = is_served
        self._methods_at = methods_at

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Pass a request on, or answer it here."""
        if scope["type"] == "lifespan":
            await self.inner(scope, receive, send)
            return
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "there are no web sockets here"})
            return
        notes: dict[str, Any] = {"request_id": self._request_id(scope), "subject": "", "route": _UNROUTED, "status": 0}
        scope["mainspring"] = notes
        began = time.perf_counter()
        try:
            found = self._find(scope["method"], scope["path"])
            if found is not None and not _hides_a_slash(scope):
                endpoint, named = found
                answer = await self._desk.serve(endpoint, Asked(scope, receive, headers_of(scope), named))
                notes["status"] = answer.status
                await _send(answer, send, notes["request_id"].encode())
            else:
                await self._pass_on(scope, receive, self._dressed(send, notes), notes)
        finally:
            self._remember(scope, notes, time.perf_counter() - began)

    def _find(self, method: str, path: str) -> tuple[Endpoint, Mapping[str, str]] | None:
        found = self._lane.find(method, path)
        # Litestar, which serves other spellings of a path, knows no HEAD.
        return self._lane.find(method, path.rstrip("/")) if found is None and method == "HEAD" else found

    async def _pass_on(self, scope: Any, receive: Receive, send: Send, notes: dict[str, Any]) -> None:
        try:
            if not self._is_served(scope["path"]):
                # Who is nobody is told so everywhere, and cannot tell by the answer what there is.
                await self._desk.gatekeeper.identify(headers_of(scope))
            elif scope["method"] not in _METHODS:
                await self._desk.gatekeeper.identify(headers_of(scope))
                allowed = ", ".join(self._methods_at(scope["path"]))
                raise Problem("method-not-allowed", f"here are {allowed}", headers={"Allow": allowed})
            elif _hides_a_slash(scope):
                await self._desk.gatekeeper.identify(headers_of(scope))
                remedy = "a job whose name has a slash is found by /v1/jobs?name=NAME, and has an id"
                raise Problem("not-found", "nothing is served at a path with an escaped slash", remedy=remedy)
        except Exception as error:
            await _send(refuse(error, notes["request_id"]), send)
            return
        await self.inner(scope, receive, send)

    def _request_id(self, scope: Any) -> str:
        for name, value in scope["headers"]:
            if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
                return str(value.decode())
        return self._desk.app.new_id()

    def _dressed(self, send: Send, notes: dict[str, Any]) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                notes["status"] = message["status"]
                given = list(message["headers"])
                own = {name.lower() for name, _ in given}
                given += [pair for pair in SECURITY_HEADERS if pair[0] not in own]
                given.append((b"x-request-id", notes["request_id"].encode()))
                message["headers"] = given
            await send(message)

        return sending

    def _remember(self, scope: Any, notes: dict[str, Any], seconds: float) -> None:
        measures = self._desk.measures
        method = scope["method"] if scope["method"] in _METHODS else "other"
        known = (method, notes["route"], notes["status"])
        counted = self._counted.get(known)
        if counted is None:
            requests = measures.requests.labels(method, notes["route"], str(notes["status"]))
            counted = self._counted[known] = (requests, measures.seconds.labels(method, notes["route"]))
        counted[0].inc()
        if not notes.get("patient"):
            counted[1].observe(seconds)
        if access_log.hasHandlers():
            client = scope.get("client")
            line = {
                "at": format_instant(self._desk.app.clock.now()),
                "request_id": notes["request_id"],
                "method": method,
                "path": (scope.get("raw_path") or b"").decode("latin-1")[:500],
                "status": notes["status"],
                "ms": round(seconds * 1000, 3),
                "subject": notes["subject"],
                "client": client[0] if client else None,
            }
            access_log.info(msgspec.json.encode(line).decode())


def _hides_a_slash(scope: Any) -> bool:
    """Whether a slash is escaped: what looks like a name to those before us must not be a path to us."""
    raw: bytes = scope.get("raw_path") or b""
    return b"%" in raw and b"%2f" in raw.lower()


async def _send(answer: Answer, send: Send, request_id: bytes | None = None) -> None:
    """An answer that is no stream, in all its clothes if a request's id is given."""
    body = answer.encode()
    headers = [(name.lower().encode(), value.encode()) for name, value in answer.headers.items()]
    if request_id is not None:
        own = {name for name, _ in headers}
        headers += SECURITY_HEADERS if own.isdisjoint(_SECURED) else [x for x in SECURITY_HEADERS if x[0] not in own]
        headers.append((b"x-request-id", request_id))
    if answer.status != 204:
        headers += [(b"content-type", answer.media_type.encode()), (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})
