"""What belongs to a run or a job, and what the stored events say."""

from __future__ import annotations

from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.resources.acting import Acting
from mainspring.api.resources.views.asked import asked
from mainspring.api.schemas.paging import limit_of
from mainspring.api.schemas.views import EventPageQuery, RunEventQuery, SpanQuery
from mainspring.operations.views import records
from mainspring.operations.views.history import StoredEvents
from mainspring.operations.views.relations import Relations


async def relate_run(call: Call) -> Answer:
    """What a run waits for, what waits for it, the other runs of its firing, and what it repeats."""
    return Answer(200, await Relations(Acting(call).context).of_run(call.named("run_id")))


async def relate_job(call: Call) -> Answer:
    """The jobs that a job follows, and those that follow it."""
    return Answer(200, await Relations(Acting(call).context).of_job(call.named("job_id")))


async def list_run_events(call: Call) -> Answer:
    """The stored events of a run, in order."""
    words = {**asked(call, "after"), "limit": limit_of(call.query)}
    return Answer(200, await StoredEvents(Acting(call).context).of_run(call.named("run_id"), **words))


async def list_events(call: Call) -> Answer:
    """Stored events in order, beyond a position or since an instant: by default, of the last hour."""
    words = asked(call, "after", "job", "task", "run", "worker", moments=("since",))
    kinds, limit = tuple(call.query.get("kind", ())), limit_of(call.query)
    return Answer(200, await StoredEvents(Acting(call).context).page(**words, kinds=kinds, limit=limit))


async def show_timeline(call: Call) -> Answer:
    """When runs were executed, from `since` (an hour ago) to `until` (now)."""
    return Answer(200, await StoredEvents(Acting(call).context).spans(**asked(call, moments=("since", "until"))))


async def show_worker_spans(call: Call) -> Answer:
    """When a worker executed which runs, from `since` (an hour ago) to `until` (now)."""
    words = asked(call, moments=("since", "until"))
    return Answer(200, await StoredEvents(Acting(call).context).spans(**words, worker=call.named("worker_id")))


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
        query=SpanQuery, history=True,
    ),
    Endpoint(
        "GET", "/v1/workers/{worker_id}/spans", show_worker_spans, "events:read", "When a worker executed which runs.",
        {200: records.Spans}, query=SpanQuery, history=True,
    ),
)  # fmt: skip
