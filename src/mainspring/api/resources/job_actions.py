"""What can be done with a job: pause, resume, trigger, look ahead and back."""

from __future__ import annotations

import asyncio
import time

from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.resources.audit import audit_of
from mainspring.api.resources.jobs import job_answer
from mainspring.api.schemas.bodies import ReasonBody, TriggerBody
from mainspring.api.schemas.paging import limit_of, page, read_cursor, read_number
from mainspring.api.schemas.queries import NextQuery, PageQuery
from mainspring.core.instants import load_zone
from mainspring.core.model import Firing, Job
from mainspring.core.planning.firing_limits import runs_of
from mainspring.core.planning.plans import make_runs
from mainspring.operations import records
from mainspring.operations.explain import note_jobs
from mainspring.operations.forecast import forecast, forecast_view
from mainspring.operations.views import firing_view, job_view, run_view
from mainspring.store import RunFilter

SEARCH_S = 2.0
"""So long fire times are looked for at most."""


async def _job(call: Call) -> Job:
    return await call.desk.store.get_job(call.namespace, call.named("job_id"))


async def pause_job(call: Call) -> Answer:
    """Let a job rest: what comes due meanwhile is recorded as skipped. Runs that exist go on."""
    return await _set_paused(call, paused=True)


async def resume_job(call: Call) -> Answer:
    """Let a paused job go on with its next instant after now."""
    return await _set_paused(call, paused=False)


async def _set_paused(call: Call, *, paused: bool) -> Answer:
    call.wrong.settle()
    job = await _job(call)
    reason = call.given.get("reason", "")
    action = "job.pause" if paused else "job.resume"
    audit = audit_of(call, action, f"job:{job.id}", job_view(job), lambda jobs: job_view(jobs[0]))
    (after,) = await call.desk.store.pause_jobs(
        call.namespace, [job.name], paused=paused, reason=reason if paused else "", audit=audit
    )
    if not paused:
        await note_jobs(call.desk.store, [job], reason)
    return job_answer(200, after)


async def trigger_job(call: Call) -> Answer:
    """Fire a job now, by hand; its overlap policy holds. With an idempotency key, it fires once."""
    call.wrong.settle()
    desk = call.desk
    job = await _job(call)
    headers = await call.spend(runs_of(job))
    request_id = call.given.get("request_id") or call.stamp.ids(1, desk.app.new_ids)[0]
    firing = await desk.store.trigger(
        call.namespace,
        job.id,
        request_id,
        lambda stored, fire_at: make_runs(stored, fire_at, desk.store.now()),
        audit=audit_of(call, "job.trigger", f"job:{job.id}", None, firing_view),
    )
    return Answer(201, firing_view(firing), headers)


async def preview_job(call: Call) -> Answer:
    """When a job will fire next, in its own zone or another. Fewer times than asked for, if they are hard to find."""
    zone = call.query.get("timezone")
    if zone is not None:
        load_zone(zone, "timezone")
    job = await _job(call)
    calendars = await call.desk.store.list_calendars(call.namespace)
    deadline = time.monotonic() + SEARCH_S
    # Not on this loop: with calendars that allow little, a search may take long.
    seen = await asyncio.to_thread(
        forecast, job, calendars, call.desk.store.now(), call.query.get("count", 10), zone,
        lambda: time.monotonic() > deadline,
    )  # fmt: skip
    return Answer(200, {"items": forecast_view(seen)})


async def list_firings(call: Call) -> Answer:
    """The ledger of a job, newest first: what became of every due instant."""
    job, limit = await _job(call), limit_of(call.query)
    rows = await call.desk.store.list_firings(job.id, before=read_number(call.query), limit=limit + 1)
    shown = _whole_instants(rows, limit)
    following = str(shown[-1].fire_at) if len(rows) > len(shown) else None
    return page([firing_view(firing) for firing in shown], following)


def _whole_instants(rows: list[Firing], limit: int) -> list[Firing]:
    """At most so many rows, but all of an instant or none: the next page goes on with the instant before."""
    if len(rows) <= limit:
        return rows
    whole = [row for row in rows[:limit] if row.fire_at != rows[limit].fire_at]
    return whole or rows[:limit]


async def list_job_runs(call: Call) -> Answer:
    """The runs of a job, newest first."""
    job, limit = await _job(call), limit_of(call.query)
    where = RunFilter(call.namespace, job=job.name, before=read_cursor(call.query), limit=limit + 1)
    runs = await call.desk.store.list_runs(where)
    return page([run_view(run) for run in runs[:limit]], runs[limit - 1].id if len(runs) > limit else None)


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/jobs/{job_id}/pause", pause_job, "jobs:operate", "Pause a job.", {200: records.Job},
        ReasonBody, needs_body=False, example={"reason": "maintenance"},
    ),
    Endpoint(
        "POST", "/v1/jobs/{job_id}/resume", resume_job, "jobs:operate", "Let a paused job go on.",
        {200: records.Job}, ReasonBody, needs_body=False,
    ),
    Endpoint(
        "POST", "/v1/jobs/{job_id}/trigger", trigger_job, "jobs:operate", "Fire a job now.",
        {201: records.Firing}, TriggerBody, needs_body=False, problems=(429,), grows=True,
    ),
    Endpoint(
        "GET", "/v1/jobs/{job_id}/next", preview_job, "jobs:read", "Preview the next fire times of a job.",
        {200: records.FireTimes}, query=NextQuery,
    ),
    Endpoint(
        "GET", "/v1/jobs/{job_id}/firings", list_firings, "jobs:read", "What became of a job's due instants.",
        {200: records.Page[records.Firing]}, query=PageQuery, history=True,
    ),
    Endpoint(
        "GET", "/v1/jobs/{job_id}/runs", list_job_runs, "runs:read", "List the runs of a job.",
        {200: records.Page[records.Run]}, query=PageQuery, history=True,
    ),
)  # fmt: skip
