"""`/v1/events`: events as they happen, resumable from the last one that a client has."""

from __future__ import annotations

from collections.abc import AsyncIterator

from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.resources.acting import Acting
from mainspring.api.schemas.queries import EventQuery
from mainspring.api.wire.streaming import SSE, beats, resumed_after, sse
from mainspring.operations.events import Events


async def follow_events(call: Call) -> Answer:
    """Server-sent events from now on, or from beyond `Last-Event-ID` (or `after`): each has its position as id."""
    resumed = resumed_after(call.headers)
    after = call.query.get("after") if resumed is None else resumed
    if after is None:
        after = await call.desk.store.next_position() - 1  # Now, not when the stream is first read.
    return Answer(200, media_type=SSE, stream=beats(_events(call, after)))


async def _events(call: Call, after: int) -> AsyncIterator[bytes]:
    words = {name: call.query[name] for name in ("job", "task", "run") if name in call.query}
    kinds = call.query.get("kind", ())
    async for event in Events(Acting(call).context).follow(after=after, kinds=kinds, **words):
        yield sse(event.kind, event, event.position)


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/events", follow_events, "events:read", "Follow events as they happen.", {200: SSE},
        query=EventQuery, patient=True,
    ),
)  # fmt: skip
