"""The desk that every request comes to: who asks, may they, is there room, is it well-formed; then it is served."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, cast
from weakref import finalize

from mainspring.api.auth.access import Caller, check_rates
from mainspring.api.auth.gatekeeper import LOCAL, Gatekeeper, Revoked
from mainspring.api.auth.tokens import Keys, KeyWatch
from mainspring.api.decoding import Given, Receive, decode, is_there, read_body, read_query
from mainspring.api.endpoint import ANYBODY, JSON, PUBLIC, Answer, Call, Endpoint, Stamp, forbidden
from mainspring.api.load.capacity import Capacity, Owner, Place
from mainspring.api.load.guard import Guard, GuardedStore
from mainspring.api.load.limits import Limits
from mainspring.api.load.replies import answer_once, fresh_stamp
from mainspring.api.load.waking import Waking
from mainspring.api.load.watching import Watching
from mainspring.api.problems import Problem, Wrong, nothing_wrong, retry_after, to_problem
from mainspring.api.prometheus import Measures
from mainspring.api.resources.health import Vitals
from mainspring.api.resources.statuses import Statuses
from mainspring.api.resources.tasks import KnownTasks
from mainspring.api.router import Asked, check_once
from mainspring.api.streaming import SSE
from mainspring.core.instants import SECOND, Instant
from mainspring.errors import StoreUnavailable
from mainspring.operations.options import check_name
from mainspring.process.background import is_cancelled
from mainspring.process.metrics import figures_of
from mainspring.sdk.app import Mainspring
from mainspring.services.node import Node
from mainspring.settings import Settings
from mainspring.store import Store
from mainspring.wiring import open_cache

log = logging.getLogger("mainspring")

NAMESPACE_HEADER = "mainspring-namespace"
NOBODY = Caller("anonymous", {})
BYTES_PER_S = 1_000_000
"""A body has a second more for each of these bytes: slower than any store takes it in."""
_JSON_TYPES = ("application/json", "application/merge-patch+json")
_UNDECLARED = ("", "application/x-www-form-urlencoded")
"""What clients send that were not told what they send."""


class _Held:
    """A stream that keeps its place until it ends or is forgotten."""

    def __init__(self, stream: AsyncIterator[bytes]) -> None:
        self._stream = stream
        self.leave: Callable[[], object] = lambda: None

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        try:
            return await anext(self._stream)
        except BaseException:
            self.leave()
            raise


class Desk:
    """What the endpoints share."""

    def __init__(self, app: Mainspring, settings: Settings, keys: Keys | None, node: Callable[[], Node | None]) -> None:
        self.app = app
        self.settings = settings
        self.node = node
        self.rates = check_rates(settings.submit_rates)
        self.capacity = Capacity(settings.requests, settings.watchers)
        self.measures = Measures()
        self.waking = Waking()
        self.watching = Watching(self.waking, lambda: self.store)
        self.guard = Guard(settings, app.clock)
        self.vitals = Vitals()
        self.tasks = KnownTasks(app)
        self._store: Store | None = None
        self.limits = Limits(lambda: self.store, app.clock)
        watch = None if keys is None else KeyWatch(keys, settings, app.clock.monotonic)
        revoked = Revoked(self._revocations, app.clock)
        self.gatekeeper = Gatekeeper(watch, revoked, app.clock.now)

    @property
    def store(self) -> Store:
        """The store, open."""
        assert self._store is not None, "the API has not been started"
        return self._store

    async def _revocations(self) -> Mapping[str, Instant]:
        return await self.store.revocations()

    async def open(self) -> None:
        """Before the first request."""
        self.unguarded = await self.app.open()
        self._store = cast(Store, GuardedStore(self.unguarded, self.guard))
        self.statuses = Statuses(open_cache(self.settings), self.unguarded, self.app.clock)
        self.waking.attach(self.unguarded)
        self.guard.start(self.unguarded)

    def close(self) -> None:
        """After the last. The store is its app's to close."""
        self.guard.stop()
        self.waking.detach()

    async def serve(self, endpoint: Endpoint, request: Asked) -> Answer:
        """The answer to one request, whatever it is."""
        notes = request.scope["mainspring"]
        names: dict[str, str] = {}
        try:
            return await self._serve(endpoint, request, notes, names)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            lost = StoreUnavailable("a call of the store was cut short: whether it was done is not known")
            return refuse(lost, notes["request_id"], names)
        except Exception as error:
            return refuse(error, notes["request_id"], names)

    async def _in_time(self, endpoint: Endpoint, size: int, act: Callable[[], Awaitable[Answer]]) -> Answer:
        """What changes something has one deadline, however many calls of the store it takes; a large body has more."""
        if endpoint.patient or endpoint.method == "GET":
            return await act()
        within_s = self.settings.schedule_timeout / SECOND + size / BYTES_PER_S
        try:
            async with asyncio.timeout(within_s) as limit:
                return await act()
        except TimeoutError:
            if not limit.expired():
                raise
            self.guard.note(well=False)
            late = (
                f"not done within {within_s:.3g} s, so given up: the store is slow, or what is to be written is locked"
            )
            remedy = "try again; with the same Idempotency-Key it is done once, should it have been done after all"
            raise Problem("unavailable", late, remedy=remedy, headers=retry_after(1)) from None

    async def _serve(self, endpoint: Endpoint, request: Asked, notes: dict[str, Any], names: dict[str, str]) -> Answer:
        headers = request.headers
        check_once(request)
        caller, namespace = await self._admit(endpoint, headers, notes)
        notes["route"] = endpoint.path
        notes["patient"] = endpoint.patient
        self.guard.check_room(namespace, grows=endpoint.grows)
        if endpoint.method == "GET" and not (endpoint.vital or endpoint.permission == PUBLIC):
            self.limits.query(caller.subject, self.settings.query_rate)
        query = read_query(request.scope["query_string"], endpoint.query) if endpoint.query else _no_query(request)
        owner = None if caller is LOCAL else (namespace, caller.subject)
        body, given, wrong = await self._read(endpoint, request, owner, names)
        if endpoint.patient and request.scope["method"] == "HEAD":
            return Answer(200, media_type=SSE if SSE in endpoint.answers.values() else JSON)

        async def act(stamp: Stamp) -> Answer:
            call = Call(self, caller, namespace, request.path_params, query, body, given, wrong, headers,
                        notes["request_id"], stamp)  # fmt: skip
            if endpoint.patient and endpoint.method == "PUT":
                return await _watched(endpoint, call, request.receive)
            if endpoint.history:
                return await self.guard.look_back(namespace, endpoint.act, call)
            return await endpoint.act(call)

        async def answer() -> Answer:
            key = headers.get("idempotency-key") if endpoint.method == "POST" else None
            if key is None:
                return await act(fresh_stamp())
            what = f"{endpoint.method} {request.scope['path']}?".encode() + request.scope["query_string"]
            scope = f"{namespace}\n{caller.subject}"
            answered = await answer_once(self.store, scope, key, what + b"\0" + body, act)
            if "Idempotency-Replayed" in answered.headers:
                figures_of(self.unguarded).count("duplicates", "submission")
            return answered

        if endpoint.vital:
            return await answer()
        place = self.capacity.take("waiting" if endpoint.patient else "working", owner)
        return await self._in_place(place, lambda: self._in_time(endpoint, len(body), answer))

    async def _in_place(self, place: Place, answer: Callable[[], Awaitable[Answer]]) -> Answer:
        """Answer a request that holds a place; a stream keeps it until the end."""
        try:
            answered = await answer()
        except BaseException:
            self.capacity.leave(place)
            raise
        if answered.stream is None:
            self.capacity.leave(place)
            return answered
        stream = _Held(answered.stream)
        # Also where the client is gone before the first chunk, and nobody ever begins to read the stream.
        stream.leave = finalize(stream, self.capacity.leave, place)
        return answered._replace(stream=stream)

    async def _admit(self, endpoint: Endpoint, headers: Mapping[str, str], notes: dict[str, Any]) -> tuple[Caller, str]:
        if endpoint.permission == PUBLIC:
            notes["subject"] = NOBODY.subject
            return NOBODY, self.settings.namespace
        caller = await self.gatekeeper.identify(headers, without_store=endpoint.vital)
        notes["subject"] = caller.subject
        named = headers.get(NAMESPACE_HEADER)
        namespace = caller.home(self.settings.namespace) if named is None else check_name(NAMESPACE_HEADER, named)
        if endpoint.permission != ANYBODY and not caller.may(endpoint.permission, namespace):
            raise forbidden(endpoint.permission, namespace)
        return caller, namespace

    async def _read(
        self, endpoint: Endpoint, request: Asked, owner: Owner | None, names: dict[str, str]
    ) -> tuple[bytes, Given, Wrong]:
        headers = request.headers
        declared = headers.get("content-length")
        if endpoint.body is None:
            if declared not in (None, "0") or ("transfer-encoding" in headers and not await _is_empty(request.receive)):
                # The body is not read: whoever declares one and never sends it waits alone.
                raise Problem("bad-request", "this request takes no body", remedy="send none")
            return b"", {}, nothing_wrong()
        limit, timeout_s = self.settings.body_limit, self.settings.body_timeout / SECOND
        if is_there(request.receive):
            body = await read_body(request.receive, declared, limit, timeout_s)
        else:
            with self.capacity.enter("reading", owner):
                body = await read_body(request.receive, declared, limit, timeout_s)
        if not body and not endpoint.needs_body:
            return b"", {}, nothing_wrong()
        check_media_type(headers)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem("unsupported-media-type", "the body is compressed", remedy="send it as it is")
        given, wrong = decode(body, endpoint.body, endpoint.plain)
        return body, given, Wrong(wrong.faults, names)


async def _is_empty(receive: Receive) -> bool:
    """Whether a body of unknown length has already arrived, and is empty."""
    return is_there(receive) and not (await receive()).get("body")


async def _watched(endpoint: Endpoint, call: Call, receive: Receive) -> Answer:
    """Serve a long poll that gives something away: not to a caller who has left meanwhile."""
    leaving = asyncio.ensure_future(receive())
    try:
        return await endpoint.act(call._replace(gone=leaving.done))
    finally:
        leaving.cancel()


def check_media_type(headers: Mapping[str, str]) -> None:
    """Only JSON. A body that is declared as a form, as `curl -d` does unasked, is read as JSON all the same; but not
    from a browser, where a form is the one request that a foreign page can send in the user's name."""
    written = headers.get("content-type", "")
    if written == JSON:
        return
    kind, _, parameters = written.partition(";")
    kind, charset = kind.strip().lower(), parameters.strip().lower().removeprefix("charset=").strip('"')
    from_a_browser = "origin" in headers or "sec-fetch-site" in headers
    known = kind in _JSON_TYPES or (kind in _UNDECLARED and not from_a_browser)
    if not known or charset not in ("", "utf-8", "utf8"):
        raise Problem(
            "unsupported-media-type",
            f"the body is declared as {written[:100]!r}",
            remedy="send `Content-Type: application/json`",
            headers={"Accept": JSON},
        )


def _no_query(request: Asked) -> Given:
    if request.scope["query_string"]:
        raise Problem("bad-request", "this request takes no query", remedy="leave out all after the question mark")
    return {}


def refuse(error: Exception, request_id: str, names: Mapping[str, str] | None = None) -> Answer:
    """The answer to a request that went wrong."""
    problem = to_problem(error, names)
    if problem is None:
        log.error("request %s failed", request_id, exc_info=error)
        problem = Problem("internal", "the server's log tells more", remedy=f"name request {request_id} when you ask")
    elif problem.status >= 500 and problem is not error:
        log.warning("request %s: %s", request_id, error)
    return Answer(problem.status, problem.document(request_id), problem.headers, "application/problem+json")
