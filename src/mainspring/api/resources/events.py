"""`/v1/events`: events as they happen, resumable from the last one that a client has."""

from __future__ import annotations

from collections.abc import AsyncIterator

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.resources.acting import Acting
from mainspring.api.resources.views.asked import asked
from mainspring.api.schemas.queries import EventQuery
from mainspring.api.wire.streaming import SSE, beats, resumed_after, sse
from mainspring.operations.events import Events


async def follow_events(request: Request) -> Response:
    """Server-sent events from now on, or from beyond `Last-Event-ID` (or `after`): each has its position as id."""
    resumed = resumed_after(request.headers)
    after = request.query.get("after") if resumed is None else resumed
    if after is None:
        after = await request.context.store.next_position() - 1  # Now, not when the stream is first read.
    return Response(200, media_type=SSE, stream=beats(_events(request, after)))


async def _events(request: Request, after: int) -> AsyncIterator[bytes]:
    words = {**asked(request), "after": after}
    async for event in Events(Acting(request).context).follow(**words):
        yield sse(event.kind, event, event.position)


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/events", follow_events, "events:read", "Follow events as they happen.", {200: SSE},
        query=EventQuery, patient=True,
    ),
)  # fmt: skip
