"""FastAPI and Starlette: a lifespan that runs an app, a router of its runs, and its errors as problem documents.

server = FastAPI(lifespan=lifespan(app))
server.include_router(runs_router(app), prefix="/runs")
answer_errors(server)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from fastapi import APIRouter, Request, Response
from starlette.applications import Starlette

from mainspring.errors import MainspringError
from mainspring.integrations.refusals import refusal_of
from mainspring.sdk.app import Mainspring
from mainspring.sdk.handle import RunHandle

Lifespan = Callable[[Any], AbstractAsyncContextManager[Mapping[str, Any]]]
InnerLifespan = Lifespan | Callable[[Any], AbstractAsyncContextManager[None]]


def lifespan(
    app: Mainspring, *, schedule: bool = True, work: bool = True, inner: InnerLifespan | None = None
) -> Lifespan:
    """A lifespan that runs an app as long as the server runs. With several server processes one of them schedules.

    - `schedule=False, work=False`: only open the store, because workers and schedulers are other processes.
    - `inner`: the lifespan that the server has besides; it begins after the app and ends before it.
    """

    @asynccontextmanager
    async def span(server: Any) -> AsyncIterator[Mapping[str, Any]]:
        async with AsyncExitStack() as stack:
            running = app.running(schedule=schedule, work=work) if schedule or work else app
            await stack.enter_async_context(running)
            state = None if inner is None else await stack.enter_async_context(inner(server))
            yield state or {}

    return span


def handle_of(app: Mainspring) -> Callable[[str], RunHandle[Any]]:
    """A dependency that turns the path parameter `run_id` into a handle.

    `run: Annotated[RunHandle[Any], Depends(handle_of(app))]` is the parameter of a route.
    """

    def handle(run_id: str) -> RunHandle[Any]:
        return app.runs.handle(run_id)

    return handle


def runs_router(app: Mainspring) -> APIRouter:
    """Routes for the callers of a service: `GET /{run_id}` shows a run, `POST /{run_id}/cancel` cancels it.

    They ask for no permission: give the router `dependencies` of yours where callers must not see all runs.
    """
    router = APIRouter(tags=["runs"])

    async def show(run_id: str) -> Any:
        """A run: its state, times, attempt and error."""
        return msgspec.to_builtins(await app.runs.get(run_id))

    async def cancel(run_id: str) -> Any:
        """Cancel a run; the answer is its state now."""
        return {"state": await app.runs.handle(run_id).cancel()}

    router.add_api_route("/{run_id}", show, methods=["GET"])
    router.add_api_route("/{run_id}/cancel", cancel, methods=["POST"])
    return router


def answer_errors(server: Starlette) -> None:
    """Answer errors of Mainspring in any route with problem documents.

    An unknown run is 404, a wrong value 422, a state that forbids it 409, a store that is away 503.
    """

    async def answer(request: Request, error: Exception) -> Response:
        assert isinstance(error, MainspringError)
        refusal = refusal_of(error)
        return Response(refusal.body, refusal.status, refusal.headers, refusal.media_type)

    server.add_exception_handler(MainspringError, answer)
