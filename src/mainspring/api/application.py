"""The application: the table of endpoints as Litestar routes, inside the shell that every request passes."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, cast

from litestar import Litestar, Request, Response
from litestar.enums import HttpMethod
from litestar.exceptions import HTTPException, MethodNotAllowedException, NotFoundException
from litestar.handlers import HTTPRouteHandler
from litestar.response import Stream
from litestar.types import ASGIApp

from mainspring.api.endpoint import Answer, Endpoint
from mainspring.api.middleware import Shell
from mainspring.api.pipeline import Desk, refuse
from mainspring.api.problems import Problem
from mainspring.api.resources.audit import ENDPOINTS as AUDIT
from mainspring.api.resources.calendars import ENDPOINTS as CALENDARS
from mainspring.api.resources.documents import with_documents
from mainspring.api.resources.events import ENDPOINTS as EVENTS
from mainspring.api.resources.health import ENDPOINTS as HEALTH
from mainspring.api.resources.jobs import ENDPOINTS as JOBS
from mainspring.api.resources.runs import ENDPOINTS as RUNS
from mainspring.api.resources.statuses import ENDPOINTS as STATUSES
from mainspring.api.resources.submissions import ENDPOINTS as SUBMISSIONS
from mainspring.api.resources.work import ENDPOINTS as WORK
from mainspring.api.resources.workers import ENDPOINTS as WORKERS
from mainspring.api.router import Asked, Lane, headers_of

ENDPOINTS = with_documents(
    (
        *JOBS,
        *SUBMISSIONS,
        *RUNS,
        *STATUSES,
        *WORKERS,
        *WORK,
        *CALENDARS,
        *EVENTS,
        *AUDIT,
        *HEALTH,
    )
)
"""All that is served."""


def build_application(desk: Desk, endpoints: Sequence[Endpoint] = ENDPOINTS) -> ASGIApp:
    """The API as an ASGI application. It opens its app's store, and leaves closing it to whoever owns the app."""

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncIterator[None]:
        await desk.open()
        try:
            yield
        finally:
            desk.close()

    unrouted = _Unrouted(desk, endpoints)
    litestar = Litestar(
        [_to_handler(desk, endpoint) for endpoint in endpoints],
        lifespan=[lifespan],
        exception_handlers={Exception: unrouted.answer},
        request_max_body_size=None,
        openapi_config=None,
        logging_config=None,
        debug=False,
    )
    return Shell(litestar, desk, Lane(endpoints), unrouted.is_served, unrouted.methods_at)


def _to_handler(desk: Desk, endpoint: Endpoint) -> HTTPRouteHandler:
    async def handle(request: Request[Any, Any, Any]) -> Response[Any]:
        asked = Asked(request.scope, request.receive, headers_of(request.scope), request.path_params)
        return to_response(await desk.serve(endpoint, asked))

    handle.__name__ = endpoint.operation_id
    path = re.sub(r"\{(\w+)\}", r"{\1:str}", endpoint.path)
    method = HttpMethod(endpoint.method)
    return HTTPRouteHandler(path, http_method=method, status_code=200, opt={"endpoint": endpoint})(handle)


def to_response(answer: Answer) -> Response[Any]:
    """An answer as Litestar sends it."""
    headers = dict(answer.headers)
    if answer.stream is not None:
        return Stream(answer.stream, status_code=answer.status, headers=headers, media_type=answer.media_type)
    return Response(answer.encode(), status_code=answer.status, headers=headers, media_type=answer.media_type)


class _Unrouted:
    """Requests that no endpoint is for. Who is nobody learns nothing by them, not even that."""

    def __init__(self, desk: Desk, endpoints: Sequence[Endpoint]) -> None:
        self._desk = desk
        self._paths: dict[re.Pattern[str], list[str]] = {}
        for endpoint in endpoints:
            pattern = re.compile("".join(_to_regex(part) for part in re.split(r"(\{\w+\})", endpoint.path)) + "/?")
            self._paths.setdefault(pattern, []).append(endpoint.method)
        self._any = re.compile("|".join(pattern.pattern for pattern in self._paths))

    def is_served(self, path: str) -> bool:
        """Whether anything can be done at a path: asked for every request, so in one look."""
        return self._any.fullmatch(path) is not None

    def methods_at(self, path: str) -> list[str]:
        """What can be done at a path."""
        methods = {method for pattern, found in self._paths.items() if pattern.fullmatch(path) for method in found}
        return sorted(methods | ({"HEAD"} if "GET" in methods else set()))

    def answer(self, request: Request[Any, Any, Any], error: Exception) -> Response[Any]:
        """For Litestar, whose own errors these are; all others have been answered by the desk."""
        scope = cast(dict[str, Any], request.scope)  # The shell has put something of ours into it.
        request_id = scope["mainspring"]["request_id"]
        return to_response(refuse(self._problem(request, error), request_id))

    def _problem(self, request: Request[Any, Any, Any], error: Exception) -> Exception:
        if isinstance(error, NotFoundException):
            return Problem("not-found", "nothing is served at this path", remedy="/openapi.json lists what is")
        if isinstance(error, MethodNotAllowedException):
            allowed = ", ".join(self.methods_at(request.scope["path"]))
            return Problem("method-not-allowed", f"here are {allowed}", headers={"Allow": allowed})
        if isinstance(error, HTTPException) and error.status_code < 500:
            return Problem("bad-request", "the request cannot be understood")
        return error


def _to_regex(part: str) -> str:
    return "[^/]+" if part.startswith("{") else re.escape(part)
