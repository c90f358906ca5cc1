"""The line to a server: one request after the other, tried again where that is safe, and answers as what they mean.

What is safe to send again: what changes nothing (GET), what comes to the same (PUT without a version), and every POST,
since each has an idempotency key. Of others, only what certainly was not done: no connection, or refused at the door.
"""

from __future__ import annotations

import asyncio
import random
import secrets
import ssl
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from email.utils import parsedate_to_datetime
from types import MappingProxyType
from typing import NamedTuple, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary

import httpx
import msgspec

from mainspring.client.errors import (
    expired_at,
    kind_of,
    mismatched,
    problem_of,
    strange,
    tls_fault,
    to_error,
    unreached,
)
from mainspring.client.servers import Server, Servers
from mainspring.clock import SystemClock
from mainspring.core.instants import SECOND, Duration, Instant, format_instant, from_datetime
from mainspring.core.runs.retry import GiveUp, Retry, decide
from mainspring.errors import InvalidInput
from mainspring.operations.problems import Problem
from mainspring.version import VERSION

T = TypeVar("T")
Query = Mapping[str, object]

RETRY = Retry(6, delay="200ms", factor=2.0, cap="20s", jitter=0.5)
"""About ten seconds in all: enough for a server that is restarted behind its address, or for another to take over what
one that died was working on."""
CONNECT_S = 5.0
SILENCE_S = 45.0
"""A stream that is silent for this long is dead: servers send something every 15 s."""
SKEW: Duration = 2 * SECOND
"""Servers report the time in whole seconds: less is no difference."""
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)
_REFUSED = ("rate-limited", "overloaded", "in-progress")
_ELSEWHERE = ("not-found", "method-not-allowed", "bad-request")
"""What a server says to a request that only another version serves."""


class Request(NamedTuple):
    """What to ask."""

    method: str
    path: str
    query: Query = MappingProxyType({})
    body: Mapping[str, object] | None = None
    headers: Mapping[str, str] = MappingProxyType({})
    key: str | None = None
    """The idempotency key of a POST; one of its own unless given."""
    patience_s: float = 0.0
    """How much longer than usual the answer may take."""

    @property
    def repeatable(self) -> bool:
        """Whether sending it twice is the same as sending it once."""
        return self.method in ("GET", "POST") or (self.method == "PUT" and "If-Match" not in self.headers)


class Connection:
    """The connection of one caller to a server, or to any of several that share a store."""

    def __init__(self, url: str, token: str | None, namespace: str | None, timeout_s: float, retry: Retry) -> None:
        self._clock = SystemClock()
        self.servers = Servers(url, self._clock.monotonic)
        self.retry = retry
        self._token = token
        self._timeout_s = timeout_s
        self._skew: Duration = 0
        self._headers = {"User-Agent": f"mainspring/{VERSION}", "Accept": "application/json"}
        if token and not (token.isascii() and token.isprintable() and " " not in token):
            raise InvalidInput("token", "…", "has characters that no token has", "copy it anew, whole and alone")
        if token:
            self._headers["Authorization"] = f"Bearer {token}"
        if namespace:
            self._headers["Mainspring-Namespace"] = namespace
        self._clients: WeakKeyDictionary[asyncio.AbstractEventLoop, httpx.AsyncClient] = WeakKeyDictionary()

    @property
    def url(self) -> str:
        """The addresses of the servers."""
        return ",".join(server.url for server in self.servers.all)

    def now(self) -> Instant:
        """The server's clock, as far as it is known."""
        return self._clock.now() + self._skew

    async def ask(self, request: Request, shape: type[T]) -> T:
        """The answer to a request, of the given shape."""
        answer = await self.send(request)
        try:
            return msgspec.json.decode(answer.content, type=shape)
        except msgspec.ValidationError as error:
            url = next(each.url for each in self.servers.all if str(answer.url).startswith(each.url))
            raise mismatched(url, await self._version(url), str(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError):
            raise strange(self.url, answer) from None

    async def send(self, request: Request) -> httpx.Response:
        """The answer to a request: a success, or one of our errors is raised."""
        if request.method == "POST":
            key = request.key or secrets.token_urlsafe(18)
            request = request._replace(headers={**request.headers, "Idempotency-Key": key})
        request = request._replace(headers={**_trace_headers(), **request.headers})
        failures = 0
        tried: set[Server] = set()
        while True:
            server = self.servers.choose(tried)
            answer, fault = await self._try(request, server)
            if answer is not None and answer.is_success:
                return answer
            tried.add(server)
            again = _may_repeat(request, answer, fault)
            if again and self.servers.has_other(tried):
                continue  # Another server may do it at once: only when all have been asked is it time to wait.
            failures += 1
            tried.clear()
            wait = self._wait(failures, None if answer is None else answer.headers.get("retry-after"))
            if not again or wait is None:
                raise await self._error(request, answer, fault, server.url) from fault
            await asyncio.sleep(wait)

    async def _try(self, request: Request, server: Server) -> tuple[httpx.Response | None, httpx.TransportError | None]:
        try:
            answer = await self._once(request, server.url)
        except httpx.TransportError as error:
            self.servers.note(server, well=False)
            return None, error
        self._note_time(answer)
        self.servers.note(server, well=not _is_ill(answer))
        return answer, None

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncGenerator[httpx.Response, None]:
        """The answer to a request whose body goes on; errors as for others, but nothing is tried again."""
        timeout = httpx.Timeout(self._timeout_s, connect=CONNECT_S, read=SILENCE_S)
        headers = {**self._headers, **request.headers}
        server = self.servers.choose()
        url = f"{server.url}{request.path}"
        try:
            async with self._client().stream(
                request.method, url, params=_flat(request.query), headers=headers, timeout=timeout
            ) as answer:
                self.servers.note(server, well=not _is_ill(answer))
                if not answer.is_success:
                    await answer.aread()
                    raise await self._error(request, answer, None, server.url)
                yield answer
        except httpx.TransportError as error:
            self.servers.note(server, well=False)
            raise unreached(server.url, error) from error

    async def close(self) -> None:
        """Let go of the connections of this loop."""
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.aclose()

    async def pause(self, failures: int) -> bool:
        """Wait before the next attempt at a stream that broke; False if no attempt is left."""
        wait = self._wait(failures, None)
        if wait is not None:
            await asyncio.sleep(wait)
        return wait is not None

    async def _once(self, request: Request, url: str) -> httpx.Response:
        content = None if request.body is None else msgspec.json.encode(request.body)
        headers = {**self._headers, **({"Content-Type": "application/json"} if content is not None else {})}
        timeout = httpx.Timeout(self._timeout_s + request.patience_s, connect=CONNECT_S)
        return await self._client().request(
            request.method,
            f"{url}{request.path}",
            params=_flat(request.query),
            content=content,
            headers={**headers, **request.headers},
            timeout=timeout,
        )

    def _client(self) -> httpx.AsyncClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            # Certificates take 50 ms to load. Where none is needed none is trusted, should one be shown after all.
            verify = True if "https:" in self.url else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            self._clients[loop] = httpx.AsyncClient(verify=verify)
        return self._clients[loop]

    def _wait(self, failures: int, asked: str | None) -> float | None:
        """Seconds until the next attempt; None if there is none, or if the server asks for more than we would wait."""
        wished = int(asked) * SECOND if asked is not None and asked.isdecimal() else None
        if wished is not None and wished > self.retry.cap:
            return None
        decision = decide(self.retry, failures, (), random.random(), wished)
        return None if isinstance(decision, GiveUp) else decision.delay / SECOND

    async def _error(
        self, request: Request, answer: httpx.Response | None, fault: httpx.TransportError | None, url: str
    ) -> Exception:
        if answer is None:
            assert fault is not None
            return unreached(url, fault)
        problem = problem_of(answer)
        if problem is None:
            return strange(url, answer)
        if kind_of(problem) == "unauthenticated" and (ended := expired_at(self._token or "")):
            detail = f"the token has expired, at {format_instant(ended)}"
            problem = msgspec.structs.replace(problem, detail=detail)
        if _may_be_unserved(problem):
            version = await self._version(url)
            if version != VERSION:
                return mismatched(url, version, problem.detail)
        return to_error(problem, request.body or request.query)

    async def _version(self, url: str) -> str | None:
        """The server's, if it names one."""
        try:
            answer = await self._once(Request("GET", "/openapi.json"), url)
            return str(answer.json()["info"]["version"]) if answer.is_success else None
        except (httpx.HTTPError, ValueError, LookupError, TypeError):
            return None

    def _note_time(self, answer: httpx.Response) -> None:
        try:
            reported = from_datetime(parsedate_to_datetime(answer.headers["date"]))
        except (LookupError, ValueError, InvalidInput):
            return
        skew = reported - self._clock.now()
        self._skew = skew if abs(skew) > SKEW else 0


def path_of(*parts: str) -> str:
    """A path below /v1, whatever the parts are made of."""
    return "/v1/" + "/".join(quote(part, safe=":") for part in parts)


def _flat(query: Query) -> httpx.QueryParams:
    """Lists as repeated parameters; None is left out."""
    pairs: list[tuple[str, str | int | float | bool | None]] = []
    for name, value in query.items():
        for each in value if isinstance(value, list | tuple) else [value]:
            if each is not None:
                pairs.append((name, str(each).lower() if isinstance(each, bool) else str(each)))
    return httpx.QueryParams(pairs)


def _may_repeat(request: Request, answer: httpx.Response | None, fault: httpx.TransportError | None) -> bool:
    if fault is not None:
        return not tls_fault(fault) and (request.repeatable or isinstance(fault, _UNSENT))
    assert answer is not None
    problem = problem_of(answer)
    if problem is not None and kind_of(problem) in _REFUSED:
        return True
    return answer.status_code in (502, 503, 504) and request.repeatable


def _is_ill(answer: httpx.Response) -> bool:
    """Whether another server may do better: this one has lost its store, or something before it has lost the server."""
    problem = problem_of(answer) if answer.is_closed else None
    return answer.status_code in (502, 503, 504) and (problem is None or kind_of(problem) == "unavailable")


def _may_be_unserved(problem: Problem) -> bool:
    """Whether an older server would say so to what only a newer one serves."""
    kind = kind_of(problem)
    if kind == "not-found":
        return problem.detail.startswith("nothing is served")
    if kind == "invalid-input":
        return any(
            "is not a field" in each.fault or "is not a parameter" in each.fault for each in problem.errors or ()
        )
    return kind in _ELSEWHERE


def _trace_headers() -> dict[str, str]:
    """The headers that name the caller's trace, if the program uses OpenTelemetry."""
    headers: dict[str, str] = {}
    if "opentelemetry.trace" in sys.modules:
        from opentelemetry.propagate import inject  # It is optional.

        inject(headers)
    return headers
