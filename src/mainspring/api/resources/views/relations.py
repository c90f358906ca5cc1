"""What belongs to a run or a job, and what the stored events say."""

from __future__ import annotations

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.resources.acting import Acting
from mainspring.api.resources.views.asked import asked
from mainspring.api.schemas.paging import limit_of
from mainspring.api.schemas.views import EventPageQuery, RunEventQuery, SpanQuery, TimelineQuery
from mainspring.operations.views import records
from mainspring.operations.views.history import StoredEvents
from mainspring.operations.views.relations import Relations


async def relate_run(request: Request) -> Response:
    """What a run waits for, what waits for it, the other runs of its firing, and what it repeats."""
    return Response(200, await Relations(Acting(request).context).of_run(request.named("run_id")))


async def relate_job(request: Request) -> Response:
    """The jobs that a job follows, and those that follow it."""
    return Response(200, await Relations(Acting(request).context).of_job(request.named("job_id")))


async def list_run_events(request: Request) -> Response:
    """The stored events of a run, in order."""
    words = {**asked(request), "limit": limit_of(request.query)}
    return Response(200, await StoredEvents(Acting(request).context).of_run(request.named("run_id"), **words))


async def list_events(request: Request) -> Response:
    """Stored events in order, beyond a position or since an instant: by default, of the last hour."""
    words = {**asked(request), "limit": limit_of(request.query)}
    return Response(200, await StoredEvents(Acting(request).context).page(**words))


async def show_timeline(request: Request) -> Response:
    """When runs were executed, from `since` (an hour ago) to `until` (now)."""
    return Response(200, await StoredEvents(Acting(request).context).spans(**asked(request)))


async def show_worker_spans(request: Request) -> Response:
    """When a worker executed which runs, from `since` (an hour ago) to `until` (now)."""
    words = {**asked(request), "worker": request.named("worker_id")}
    return Response(200, await StoredEvents(Acting(request).context).spans(**words))


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/runs/{run_id}/relations", relate_run, "runs:read", "What belongs to a run.",
        {200: records.RunRelations},
    ),
    Endpoint(
        "GET", "/v1/jobs/{job_id}/relations", relate_job, "jobs:read", "The jobs before and after a job.",
        {200: records.JobRelations},
    ),
    Endpoint(
        "GET", "/v1/runs/{run_id}/events", list_run_events, "events:read", "The events of a run.",
        {200: records.EventPage}, query=RunEventQuery, history=True,
    ),
    Endpoint(
        "GET", "/v1/events:page", list_events, "events:read", "List stored events.", {200: records.EventPage},
        query=EventPageQuery, history=True,
    ),
    Endpoint(
        "GET", "/v1/timeline", show_timeline, "events:read", "When runs were executed.", {200: records.Spans},
        query=TimelineQuery, history=True,
    ),
    Endpoint(
        "GET", "/v1/workers/{worker_id}/spans", show_worker_spans, "events:read", "When a worker executed which runs.",
        {200: records.Spans}, query=SpanQuery, history=True,
    ),
)  # fmt: skip
