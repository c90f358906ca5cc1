"""The pipeline that every request passes: authorize, admit, read, hold a slot, then call the endpoint in time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from mainspring.api.auth.access import Caller
from mainspring.api.auth.gatekeeper import LOCAL
from mainspring.api.context import ApiContext
from mainspring.api.endpoint import AUTHENTICATED, JSON, PUBLIC, Endpoint, Request, Response, Stamp, forbidden
from mainspring.api.load.capacity import Owner, Slot
from mainspring.api.load.replies import answer_once, fresh_stamp
from mainspring.api.problems import MEDIA_TYPE, Problem, Wrong, nothing_wrong, retry_after, to_problem
from mainspring.api.wire.decoding import Given, Receive, decode, read_body, read_query
from mainspring.api.wire.incoming import HttpRequest, RequestRecord, check_media_type, check_single_headers
from mainspring.api.wire.streaming import SSE
from mainspring.core.instants import SECOND
from mainspring.errors import StoreUnavailable
from mainspring.operations.jobs.options import check_name
from mainspring.process.background import is_cancelled

log = logging.getLogger("mainspring")

NAMESPACE_HEADER = "mainspring-namespace"
ANONYMOUS = Caller("anonymous", {})
BYTES_PER_S = 1_000_000
"""The deadline of a request grows by a second for each of these bytes: every store takes them in faster."""

PUBLIC_BODY_LIMIT = 16_384
"""Bytes of a body that needs no token. Small, because such bodies are bounded by the connections alone."""


class Pipeline:
    """Turns HTTP requests into responses."""

    def __init__(self, context: ApiContext) -> None:
        self._context = context

    async def respond(self, endpoint: Endpoint, request: HttpRequest) -> Response:
        """The response to a request. Every error is a response, too: a problem document."""
        try:
            with self._context.join_trace(request.headers):
                return await self._respond(endpoint, request)
        except asyncio.CancelledError:
            if is_cancelled():
                raise
            lost = StoreUnavailable("a call of the store was cut short: whether it was done is not known")
            return refuse(lost, request.record)
        except Exception as error:
            return refuse(error, request.record)

    async def _respond(self, endpoint: Endpoint, incoming: HttpRequest) -> Response:
        check_single_headers(incoming)
        caller, namespace = await self._authorize(endpoint, incoming)
        self._admit(endpoint, caller, namespace)
        owner = None if caller is LOCAL else (namespace, caller.subject)
        request = await self._read(endpoint, incoming, caller, namespace, owner)
        if callable(endpoint.grows):
            self._context.guard.check_room(namespace, grows=endpoint.grows(request.given))
        if endpoint.patient and incoming.scope["method"] == "HEAD":
            return Response(200, media_type=SSE if SSE in endpoint.answers.values() else JSON)

        async def answer() -> Response:
            return await self._answer_once(endpoint, incoming, request)

        if endpoint.vital:
            return await answer()
        slot = self._context.capacity.take("waiting" if endpoint.patient else "working", owner)
        return await self._holding(slot, lambda: self._in_time(endpoint, len(request.body), answer))

    async def _authorize(self, endpoint: Endpoint, request: HttpRequest) -> tuple[Caller, str]:
        """The caller and its namespace; Problem if it may not call the endpoint there."""
        context, record, headers = self._context, request.record, request.headers
        if endpoint.permission == PUBLIC:
            record.subject = ANONYMOUS.subject
            caller, namespace = ANONYMOUS, context.settings.namespace
        else:
            caller = await context.gatekeeper.identify(headers, without_store=endpoint.vital)
            record.subject = caller.subject
            named = headers.get(NAMESPACE_HEADER)
            home = caller.home(context.settings.namespace)
            namespace = home if named is None else check_name(NAMESPACE_HEADER, named)
            if endpoint.permission != AUTHENTICATED and not caller.may(endpoint.permission, namespace):
                raise forbidden(endpoint.permission, namespace)
        record.route, record.is_patient = endpoint.path, endpoint.patient
        return caller, namespace

    def _admit(self, endpoint: Endpoint, caller: Caller, namespace: str) -> None:
        """Problem if the namespace is under too much pressure, or the caller exceeds its rate limit."""
        self._context.guard.check_room(namespace, grows=endpoint.grows is True)
        if endpoint.method == "GET" and not (endpoint.vital or endpoint.permission == PUBLIC):
            self._context.limits.query(caller.subject, self._context.settings.query_rate)

    async def _read(
        self, endpoint: Endpoint, request: HttpRequest, caller: Caller, namespace: str, owner: Owner | None
    ) -> Request:
        """The request as the endpoint gets it: query and body decoded, with every fault noted."""
        query = _read_query(endpoint, request)
        body, given, wrong = await self._read_body(endpoint, request, owner)
        return Request(self._context, caller, namespace, request.parameters, query, body, given, wrong,
                       request.headers, request.record.request_id, fresh_stamp())  # fmt: skip

    async def _read_body(
        self, endpoint: Endpoint, request: HttpRequest, owner: Owner | None
    ) -> tuple[bytes, Given, Wrong]:
        headers, declared = request.headers, request.headers.get("content-length")
        if endpoint.body is None:
            # Some clients send an empty chunked body. Anything else is refused without being read or waited for.
            if declared not in (None, "0") or ("transfer-encoding" in headers and not await _is_empty(request.receive)):
                raise Problem("bad-request", "this request takes no body", remedy="send none")
            return b"", {}, nothing_wrong()
        body = await self._receive_body(endpoint, request, owner)
        if not body and not endpoint.needs_body:
            return b"", {}, nothing_wrong()
        check_media_type(headers)
        if headers.get("content-encoding", "identity").lower() != "identity":
            raise Problem("unsupported-media-type", "the body is compressed", remedy="send it uncompressed")
        given, wrong = decode(body, endpoint.body)
        return body, given, Wrong(wrong.faults, request.record.field_names)

    async def _receive_body(self, endpoint: Endpoint, request: HttpRequest, owner: Owner | None) -> bytes:
        settings = self._context.settings
        declared, timeout_s = request.headers.get("content-length"), settings.body_timeout / SECOND
        if endpoint.permission == PUBLIC:  # It needs no token, so it must not take a slot from callers with one.
            return await read_body(request.receive, declared, PUBLIC_BODY_LIMIT, timeout_s)
        with self._context.capacity.enter("reading", owner):
            return await read_body(request.receive, declared, settings.body_limit, timeout_s)

    async def _answer_once(self, endpoint: Endpoint, incoming: HttpRequest, request: Request) -> Response:
        """Call the endpoint; or, for an idempotency key that was used before, return the earlier response."""

        async def act(stamp: Stamp) -> Response:
            return await self._call(endpoint, incoming.receive, request._replace(stamp=stamp))

        key = request.headers.get("idempotency-key") if endpoint.method == "POST" else None
        if key is None:
            return await act(request.stamp)
        scope = incoming.scope
        asked = f"{endpoint.method} {scope['path']}?".encode() + scope["query_string"] + b"\0" + request.body
        owner = f"{request.namespace}\n{request.caller.subject}"
        response = await answer_once(self._context.store, owner, key, asked, act)
        if "Idempotency-Replayed" in response.headers:
            self._context.unguarded.metrics.count("duplicates", "submission")
        return response

    async def _call(self, endpoint: Endpoint, receive: Receive, request: Request) -> Response:
        if endpoint.patient and endpoint.method == "PUT":
            return await _call_while_connected(endpoint, request, receive)
        if endpoint.history:
            return await self._context.guard.look_back(request.namespace, endpoint.act, request)
        return await endpoint.act(request)

    async def _in_time(self, endpoint: Endpoint, size: int, answer: Callable[[], Awaitable[Response]]) -> Response:
        """A change has one deadline, however many calls of the store it makes. A large body extends it."""
        if endpoint.patient or endpoint.method == "GET":
            return await answer()
        within_s = self._context.settings.schedule_timeout / SECOND + size / BYTES_PER_S
        try:
            async with asyncio.timeout(within_s) as deadline:
                return await answer()
        except TimeoutError:
            if not deadline.expired():
                raise
            self._context.guard.note(well=False)
            detail = f"not done within {within_s:.3g} s: the store is slow, or another change locks what this changes"
            remedy = "try again; the same Idempotency-Key makes sure that it is done once"
            raise Problem("unavailable", detail, remedy=remedy, headers=retry_after(1)) from None

    async def _holding(self, slot: Slot, answer: Callable[[], Awaitable[Response]]) -> Response:
        """Answer a request that holds a slot. A stream holds it until it has been sent."""
        try:
            response = await answer()
        except BaseException:
            self._context.capacity.leave(slot)
            raise
        if response.stream is None:
            self._context.capacity.leave(slot)
            return response
        return response._replace(release=lambda: self._context.capacity.leave(slot))


async def _is_empty(receive: Receive) -> bool:
    """Whether a body of unknown length has arrived already, and is empty."""
    try:
        async with asyncio.timeout(0):
            message = await receive()
    except TimeoutError:
        return False
    return not message.get("body") and not message.get("more_body", False)


def _read_query(endpoint: Endpoint, request: HttpRequest) -> Given:
    if endpoint.query is not None:
        return read_query(request.scope["query_string"], endpoint.query)
    if request.scope["query_string"] and not endpoint.ignores_query:
        raise Problem("bad-request", "this request takes no query", remedy="leave out everything after the `?`")
    return {}


async def _call_while_connected(endpoint: Endpoint, request: Request, receive: Receive) -> Response:
    """Call a long poll that hands something over, such as work, and let it see whether the caller has disconnected."""
    leaving = asyncio.ensure_future(receive())
    try:
        return await endpoint.act(request._replace(gone=leaving.done))
    finally:
        leaving.cancel()


def refuse(error: Exception, record: RequestRecord) -> Response:
    """The response to a request that failed. What is not expected is logged, and not shown."""
    problem = to_problem(error, record.field_names)
    if problem is None:
        log.error("request %s failed", record.request_id, exc_info=error)
        remedy = f"report it with request id {record.request_id}"
        problem = Problem("internal", "the server failed; its log has the details", remedy=remedy)
    elif problem.status >= 500 and problem is not error:
        log.warning("request %s: %s", record.request_id, error)
    return Response(problem.status, problem.document(record.request_id), problem.headers, MEDIA_TYPE)
