"""The ASGI application: finds the endpoint of a request, lets the pipeline serve it, sends the response, records it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from mainspring.api.context import ApiContext
from mainspring.api.endpoint import Endpoint, Response
from mainspring.api.pipeline import Pipeline, refuse
from mainspring.api.problems import Problem
from mainspring.api.request_log import RequestLog
from mainspring.api.resources.calendars import ENDPOINTS as CALENDARS
from mainspring.api.resources.events import ENDPOINTS as EVENTS
from mainspring.api.resources.jobs import ENDPOINTS as JOBS
from mainspring.api.resources.overview import ENDPOINTS as OVERVIEW
from mainspring.api.resources.runs import ENDPOINTS as RUNS
from mainspring.api.resources.submissions import ENDPOINTS as SUBMISSIONS
from mainspring.api.resources.system.audit import ENDPOINTS as AUDIT
from mainspring.api.resources.system.documents import with_documents
from mainspring.api.resources.system.health import ENDPOINTS as HEALTH
from mainspring.api.resources.system.installation import ENDPOINTS as INSTALLATION
from mainspring.api.resources.system.sessions import ENDPOINTS as SESSIONS
from mainspring.api.resources.system.statuses import ENDPOINTS as STATUSES
from mainspring.api.resources.views.actions import ENDPOINTS as ACTIONS
from mainspring.api.resources.views.queues import ENDPOINTS as QUEUES
from mainspring.api.resources.views.relations import ENDPOINTS as RELATIONS
from mainspring.api.resources.views.tallies import ENDPOINTS as TALLIES
from mainspring.api.resources.work import ENDPOINTS as WORK
from mainspring.api.resources.workers import ENDPOINTS as WORKERS
from mainspring.api.router import METHODS, Router
from mainspring.api.wire.decoding import Receive
from mainspring.api.wire.incoming import HttpRequest, RequestRecord, has_escaped_slash, read_headers, read_request_id
from mainspring.api.wire.responses import Send, send_response

ENDPOINTS = with_documents(
    (
        *JOBS,
        *SUBMISSIONS,
        *RUNS,
        *STATUSES,
        *WORKERS,
        *OVERVIEW,
        *ACTIONS,
        *QUEUES,
        *RELATIONS,
        *TALLIES,
        *WORK,
        *CALENDARS,
        *EVENTS,
        *AUDIT,
        *INSTALLATION,
        *SESSIONS,
        *HEALTH,
    )
)
"""The table of all endpoints: what is not in it is not served."""


class Application:
    """Serves a table of endpoints. Its context has to be open while it does."""

    def __init__(self, context: ApiContext, endpoints: Sequence[Endpoint] = ENDPOINTS) -> None:
        self._context = context
        self.router = Router(endpoints)
        self._pipeline = Pipeline(context)
        self._log = RequestLog(context.metrics, context.app.clock)

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008, "reason": "web sockets are not served"})
            return
        scope = _below(self._context.settings.base_path, scope)
        record = RequestRecord(read_request_id(scope) or self._context.app.new_id())
        began = time.perf_counter()
        try:
            response = await self._respond(scope, receive, record)
            record.status = response.status
            await send_response(response, record.request_id, receive, send)
        finally:
            self._log.observe(scope, record, time.perf_counter() - began)

    async def _respond(self, scope: Any, receive: Receive, record: RequestRecord) -> Response:
        match = self.router.find(scope["method"], scope["path"])
        headers = read_headers(scope)
        try:
            if match is None or has_escaped_slash(scope):
                raise await self._unrouted(scope, headers)
            if "//" in scope["path"]:
                await self._context.gatekeeper.identify(headers)
        except Exception as error:
            return refuse(error, record)
        return await self._pipeline.respond(
            match.endpoint, HttpRequest(scope, receive, headers, match.parameters, record)
        )

    async def _unrouted(self, scope: Any, headers: dict[str, str]) -> Problem:
        """Why no endpoint serves a request. A caller without a token cannot find out by it which paths exist."""
        allowed = ", ".join(self.router.allowed_methods(scope["path"]))
        is_plain = scope["method"] in METHODS and "//" not in scope["path"] and not has_escaped_slash(scope)
        if not (allowed and is_plain):
            await self._context.gatekeeper.identify(headers)
        if not allowed:
            return Problem("not-found", "nothing is served at this path", remedy="/openapi.json lists all paths")
        if not has_escaped_slash(scope) or scope["method"] not in METHODS:
            return Problem("method-not-allowed", f"this path takes {allowed}", headers={"Allow": allowed})
        remedy = "a job whose name has a slash is found by /v1/jobs?name=NAME, and has an id"
        return Problem("not-found", "nothing is served at a path with an escaped slash", remedy=remedy)


def _below(base_path: str, scope: Any) -> Any:
    """The request without the base path. A proxy that removes it itself is served, too."""
    if not base_path or not f"{scope['path']}/".startswith(f"{base_path}/"):
        return scope
    raw = scope.get("raw_path") or scope["path"].encode()
    return {**scope, "path": scope["path"][len(base_path) :] or "/", "raw_path": raw[len(base_path) :] or b"/"}
