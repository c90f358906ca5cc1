"""Events: what happens, as it happens, resumable from the last one that was seen."""

from __future__ import annotations

from collections.abc import AsyncIterator

from mainspring.api.decoding import Given
from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.schemas.queries import EventQuery
from mainspring.api.streaming import SSE, beats, sse
from mainspring.core.model import Event
from mainspring.operations.views import event_view

ALIASES = {
    "job_created": ("job.created",),
    "job.scheduled": ("firing.fired", "run.submitted"),
    "job.completed": ("run.succeeded",),
    "job.failed": ("run.failed",),
    "job.running": ("run.running",),
    "job.submitted": ("run.submitted",),
}
"""What other schedulers call events (docs/sources.md)."""


async def follow_events(call: Call) -> Answer:
    """Server-sent events from now on, or from beyond `Last-Event-ID` (or `after`): each has its position as id."""
    if "kind" in call.query:
        call.query["kind"] = [kind for name in call.query["kind"] for kind in ALIASES.get(name, (name,))]
    resumed = call.headers.get("last-event-id", "")
    if resumed.isascii() and resumed.isdecimal() and len(resumed) < 19:
        position = int(resumed) + 1
    elif "after" in call.query:
        position = call.query["after"] + 1
    else:
        position = await call.desk.store.next_position()
    return Answer(200, media_type=SSE, stream=beats(_events(call, position)))


async def _events(call: Call, position: int) -> AsyncIterator[bytes]:
    async for batch in call.desk.watching.tail.follow(position):
        for offset, event in enumerate(batch.events):
            if _fits(event, call.namespace, call.query):
                place = batch.position + offset
                yield sse(event.kind, event_view(place, event), place)


def _fits(event: Event, namespace: str, query: Given) -> bool:
    return (
        event.namespace == namespace
        and ("kind" not in query or event.kind in query["kind"])
        and query.get("job", event.job) in (event.job, event.job_id)
        and query.get("task", event.task) == event.task
        and query.get("run", event.run_id) == event.run_id
    )


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/events", follow_events, "events:read", "Follow events as they happen.", {200: SSE},
        query=EventQuery, patient=True,
    ),
)  # fmt: skip
