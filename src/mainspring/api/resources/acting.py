"""The operations of one request: on behalf of its caller, within the caller's limits, with the same ids for the same
idempotency key. A verb on one job, run, queue or worker is no more than a row of the table of endpoints."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, Literal

import msgspec

from mainspring.api.auth.access import Permission
from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.schemas.bodies import ReasonBody
from mainspring.core.model import EventBatch
from mainspring.operations.context import Actor, Context
from mainspring.operations.jobs.jobs import Jobs
from mainspring.operations.runs import Runs
from mainspring.operations.values.from_rows import as_stored
from mainspring.store import Store

OWNER = "api"
"""The app that jobs made over HTTP belong to. No code declares it, so that no sync calls them undeclared."""
LONGEST_WAIT_S = 300.0


class Acting:
    """The operations that a request may call. `headers` shows the rest of the caller's rate limit, once something was
    counted."""

    __slots__ = ("_request", "context", "headers")

    def __init__(self, request: Request) -> None:
        self._request = request
        self.headers: dict[str, str] = {}
        self.context = Context(
            request.context.app,
            namespace=request.namespace,
            store=request.context.store,
            actor=Actor(request.caller.subject, request.request_id),
            app=OWNER,
            origin="api",
            new_ids=self._new_ids,
            admit=self._admit,
            follower=self,
            read=as_stored,
        )

    @property
    def jobs(self) -> Jobs:
        """What can be done with jobs."""
        return Jobs(self.context)

    @property
    def runs(self) -> Runs:
        """What can be done with runs."""
        return Runs(self.context)

    def _new_ids(self, count: int) -> list[str]:
        return self._request.stamp.ids(count, self._request.context.app.new_ids)

    async def _admit(self, kind: Literal["runs", "jobs"], count: int) -> None:
        spend = self._request.spend if kind == "runs" else self._request.spend_definitions
        self.headers.update(await spend(count))

    def events(self, store: Store, position: int) -> AsyncIterator[EventBatch]:
        """See `Follower`: one reader serves all streams of the server."""
        return self._request.context.watching.tail.follow(position)

    async def more_lines(self, run_id: str, after: int) -> bool:
        """See `Follower`: one read of the store serves all streams of the server."""
        await self._request.context.watching.lines.wait((run_id, after), LONGEST_WAIT_S)
        return not self._request.context.waking.closing


def verb(
    name: str,
    path: str,
    operation: Callable[[Acting], Callable[..., Awaitable[Any]]],
    permission: Permission,
    summary: str,
    described: str,
    answers: Mapping[int, Any],
    *,
    body: type[msgspec.Struct] = ReasonBody,
    respond: Callable[[str, Any], Response] = lambda named, done: Response(200, done),
    **row: Any,
) -> Endpoint:
    """The row of a verb: its operation takes the name that is in the path, and the fields of the body by name.
    `respond` makes the response, of that name and of what the operation returned."""
    parameter = path.partition("{")[2].partition("}")[0]

    async def act(request: Request) -> Response:
        request.wrong.settle()
        acting, named = Acting(request), request.named(parameter)
        response = respond(named, await operation(acting)(named, **request.given))
        return response._replace(headers={**acting.headers, **response.headers})

    act.__name__, act.__doc__ = name, described
    return Endpoint("POST", path, act, permission, summary, answers, body, needs_body=False, **row)
