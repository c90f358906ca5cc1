"""`/v1/jobs`: what can be done with jobs."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import msgspec

from mainspring.api.endpoint import Endpoint, Request, Response, unless_dry_run
from mainspring.api.problems import Fault, Problem, Wrong, nothing_wrong
from mainspring.api.resources.acting import Acting, verb
from mainspring.api.resources.views.asked import asked, instants
from mainspring.api.schemas.bodies import BackfillBody, JobBody, JobChange, SyncBody, TriggerBody
from mainspring.api.schemas.definitions import learn_tasks, merge_change, read_job
from mainspring.api.schemas.paging import limit_of, page, read_cursor, read_number, unknown_cursor
from mainspring.api.schemas.queries import FiringQuery, JobQuery, NextQuery, PageQuery, ReasonQuery
from mainspring.api.schemas.reading import note_fault
from mainspring.api.schemas.views import SimulateBody
from mainspring.api.wire.decoding import Given, convert, decode_any, given_of
from mainspring.core.instants import parse_duration
from mainspring.core.model import Job, RunOptions
from mainspring.errors import VersionConflict
from mainspring.operations import records
from mainspring.operations.jobs.jobs import is_place
from mainspring.operations.planning.records import Simulation
from mainspring.operations.planning.simulate import simulate_job as simulate
from mainspring.operations.values.bodies import body_of
from mainspring.operations.views.records import JobCounts

_EXECUTED = frozenset(("task", "type", "command", "args", "payload", "isolation", "alert"))
AT_ONCE = 50
"""How many jobs of a sync are read before other requests get their turn."""


def _job_answer(status: int, job: records.Job) -> Response:
    """A job, with its version as ETag."""
    return Response(status, job, {"ETag": f'"{job.version}"'})


async def create_job(request: Request) -> Response:
    """Store a new job. `name`, one of `schedule`, `every`, `run_at`, `after`, `manual`, and `task` or `command`."""
    acting = Acting(request)
    await learn_tasks(request, [request.given])
    job = await acting.jobs.create(read_job(request, request.given, request.wrong, None))
    if warnings := await request.context.tasks.warn(request.namespace, [job.task]):
        job = msgspec.structs.replace(job, warnings=warnings)
    answer = _job_answer(201, job)
    return answer._replace(headers={**answer.headers, **acting.headers, "Location": f"/v1/jobs/{job.job_id}"})


async def get_job(request: Request) -> Response:
    """A job by its id or name, and what keeps it from firing."""
    return _job_answer(200, await Acting(request).jobs.get(request.named("job_id")))


async def list_jobs(request: Request) -> Response:
    """Jobs in order of name."""
    words = {**asked(request), "rows": "fields" in request.query}
    after = read_cursor(request.query)
    if after is not None and words.get("sort", "name") != "name" and not is_place(after):
        raise unknown_cursor()
    return page(await Acting(request).jobs.page(**words, after=after, limit=limit_of(request.query)))


async def count_jobs(request: Request) -> Response:
    """How many jobs there are, and how many of them are paused: counted up to 10,000."""
    return Response(200, await Acting(request).jobs.count())


@contextmanager
def _matching(request: Request) -> Iterator[set[int] | None]:
    """The versions that `If-Match` names; None if any will do. Problem if the job has another one."""
    written = request.headers.get("if-match", "*").strip()
    tags = [each.strip().strip('"') for each in written.split(",")]
    try:
        yield None if written == "*" else {int(tag) if tag.isdecimal() else -1 for tag in tags}
    except VersionConflict as error:
        etag = f'"{error.version}"'
        detail = f"the job has version {etag}, not {written[:100]}"
        remedy = "read it again, and decide again"
        raise Problem("precondition-failed", detail, remedy=remedy, headers={"ETag": etag}) from None


async def replace_job(request: Request) -> Response:
    """Replace a definition: what is left out is as if the job were new. `If-Match` guards against lost updates."""
    return await _replace(request, lambda job: (request.given, request.wrong))


async def change_job(request: Request) -> Response:
    """Change some fields of a definition; null takes a value away (a JSON merge patch)."""
    request.wrong.settle()
    change: dict[str, Any] = decode_any(request.body)

    def merged(job: Job) -> tuple[Given, Wrong]:
        given, wrong = convert(merge_change(body_of(job), change), JobBody)
        return given, Wrong(wrong.faults, request.wrong.names)

    return await _replace(request, merged)


async def _replace(request: Request, wanted: Any) -> Response:
    def draft(job: Job) -> Job:
        given, wrong = wanted(job)
        if given.get("name", job.name) != job.name:
            wrong.add("name", "cannot be changed", f"leave it {job.name}, or make a new job")
        return read_job(request, given, wrong, job)

    await request.spend_definitions(1)
    with _matching(request) as versions:
        return _job_answer(200, await Acting(request).jobs.replace(request.named("job_id"), draft, versions))


async def delete_job(request: Request) -> Response:
    """Remove a definition. Its unfinished runs go on, and the ledger stays."""
    with _matching(request) as versions:
        reason = request.query.get("reason", "")
        await Acting(request).jobs.remove(request.named("job_id"), reason=reason, version=versions)
    return Response(204)


async def sync_jobs(request: Request) -> Response:
    """Make the stored jobs of an app what it declares, all or nothing. Those no longer declared are only named."""
    acting, drafts = Acting(request), await _read_all(request, request.given.get("jobs", ()))
    app, context = request.given["app"], acting.context
    if drafts:
        await context.admit("jobs", len(drafts))
    ids = context.new_ids(len(drafts))
    jobs = [msgspec.structs.replace(job, id=job_id, app=app) for job, job_id in zip(drafts, ids, strict=True)]
    return Response(200, await acting.jobs.declare(app, jobs, request.given.get("source", "")), acting.headers)


async def _read_all(request: Request, bodies: list[JobBody]) -> list[Job]:
    drafts: list[Job] = []
    for index, body in enumerate(bodies):
        if index % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        try:
            drafts.append(read_job(request, given_of(body), nothing_wrong(), None, past=True))
        except Problem as error:
            _take_faults(request, error, f"jobs[{index}].")
    request.wrong.settle()
    return drafts


async def backfill_job(request: Request) -> Response:
    """Fire the past instants of an interval that have no run yet: missed, skipped, or before the job was created. What
    has run stays as it is. At most `limit` instants: `next` says where to continue. With `dry_run`, only look."""
    acting = Acting(request)
    ends = instants(request.given, request.wrong, "from", "to")
    request.wrong.settle()
    words = {name: request.given[name] for name in ("limit", "dry_run", "reason") if name in request.given}
    done = await acting.jobs.backfill(request.named("job_id"), ends["from"], ends["to"], **words)
    return Response(200, done, acting.headers)


async def preview_job(request: Request) -> Response:
    """When a job fires next, in its own zone or another. Fewer times than asked for, if they are hard to find."""
    count, zone = request.query.get("count", 10), request.query.get("timezone")
    return Response(200, {"items": await Acting(request).jobs.next(request.named("job_id"), count, zone)})


async def preview_draft(request: Request) -> Response:
    """What a draft of a job would do: its schedule in words, and when it would fire. Nothing is stored; a refusal names
    all that is wrong. What the job would execute is not looked at, so it needs no permission to execute it."""
    given = {name: value for name, value in request.given.items() if name not in _EXECUTED}
    draft = read_job(request, {"name": "draft", **given, "task": "draft"}, request.wrong, None)
    count, zone = request.query.get("count", 10), request.query.get("timezone")
    return Response(200, await Acting(request).jobs.preview(draft, count, zone))


async def simulate_job(request: Request) -> Response:
    """What a job would have done, or will do, if it were changed: the rows that its ledger would have, with reasons. A
    stored job's runs take as long as they did; without history, no time. What it executes is not looked at."""
    given = request.given
    request.wrong.settle()
    stored = await request.context.store.get_job(request.namespace, given["job"]) if "job" in given else None
    words = instants(given, request.wrong, "from", "to")
    outages = [instants(given_of(each), request.wrong, "from", "to") for each in given.get("outages", ())]
    took = note_fault(request.wrong, parse_duration, given["took"], "took") if "took" in given else None
    draft = _read_change(request, decode_any(request.body).get("change", {}), stored)
    found = await simulate(
        Acting(request).context,
        draft,
        since=words.get("from"),
        until=words.get("to"),
        outages=[(each["from"], each["to"]) for each in outages],
        took=took,
    )
    return Response(200, found)


def _read_change(request: Request, change: dict[str, Any], stored: Job | None) -> Job:
    """A stored job with a change, or a new one, without what it executes. A fault is named as a part of `change`."""
    base, name = None, "draft"
    if stored is not None:
        change, name = merge_change(body_of(stored), change), stored.name
        plain = msgspec.structs.replace(stored.options, isolation=RunOptions().isolation, alert=None)
        base = msgspec.structs.replace(stored, options=plain)
    kept = {field: value for field, value in change.items() if field not in _EXECUTED}
    given, wrong = convert({**kept, "name": name, "task": "draft"}, JobBody)
    try:
        draft = read_job(request, given, Wrong(wrong.faults, {}), base, past=True)
    except Problem as error:
        _take_faults(request, error, "change.")
    request.wrong.settle()
    return draft


def _take_faults(request: Request, error: Problem, prefix: str) -> None:
    """Note the faults of a part of the body; other problems are raised again."""
    if error.kind != "invalid-input":
        raise error
    request.wrong.faults.extend(Fault(prefix + each.field, each.fault, each.remedy) for each in error.faults)


async def list_firings(request: Request) -> Response:
    """The ledger of a job, newest first: what became of every due instant."""
    jobs, job = Acting(request).jobs, request.named("job_id")
    try:
        before = read_number(request.query)
    except Problem:
        await request.context.store.get_job(request.namespace, job)  # An unknown job is reported before other faults.
        raise
    return page(
        await jobs.firing_page(job, before=before, limit=limit_of(request.query), region=request.query.get("region"))
    )


async def list_job_runs(request: Request) -> Response:
    """The runs of a job, newest first."""
    acting = Acting(request)
    job = await request.context.store.get_job(request.namespace, request.named("job_id"))
    return page(await acting.runs.page(job=job.name, before=read_cursor(request.query), limit=limit_of(request.query)))


EXAMPLE: Mapping[str, object] = {
    "name": "daily-report",
    "schedule": "0 0 * * *",
    "command": "python generate_report.py",
}
PAST = {"from": "2026-03-01T00:00:00Z", "to": "2026-03-08T00:00:00Z", "dry_run": True}

ENDPOINTS = (
    Endpoint(
        "POST", "/v1/jobs", create_job, "jobs:create", "Create a job.", {201: records.NewJob}, JobBody,
        problems=(409, 429), example=EXAMPLE,
        description="A command needs the permission run:command.", grows=True,
    ),
    Endpoint(
        "GET", "/v1/jobs", list_jobs, "jobs:read", "List jobs.", {200: records.Page[records.ListedJob]},
        query=JobQuery,
    ),
    Endpoint("GET", "/v1/jobs:count", count_jobs, "jobs:read", "Count jobs.", {200: JobCounts}),
    Endpoint(
        "GET", "/v1/jobs/{job_id}", get_job, "jobs:read", "Look at a job, by id or name.", {200: records.JobStory},
    ),
    Endpoint(
        "PUT", "/v1/jobs/{job_id}", replace_job, "jobs:write", "Replace a job.", {200: records.Job}, JobBody,
        problems=(409, 412), example={**EXAMPLE, "schedule": "30 0 * * *"},
    ),
    Endpoint(
        "PATCH", "/v1/jobs/{job_id}", change_job, "jobs:write", "Change a job.", {200: records.Job}, JobChange,
        problems=(409, 412), example={"priority": 2, "timeout": "10m"},
    ),
    Endpoint(
        "DELETE", "/v1/jobs/{job_id}", delete_job, "jobs:write", "Remove a job.", {204: None}, query=ReasonQuery,
        problems=(409, 412),
    ),
    Endpoint(
        "POST", "/v1/jobs:sync", sync_jobs, "jobs:write", "Store all jobs that an app declares.",
        {200: records.Synced}, SyncBody, problems=(409, 429), example={"app": "billing", "jobs": [EXAMPLE]}, grows=True,
    ),
    verb(
        "pause_job", "/v1/jobs/{job_id}/pause", lambda acting: acting.jobs.pause, "jobs:operate", "Pause a job.",
        "Stop a job from firing: instants that come due meanwhile are recorded as skipped. Runs that exist go on.",
        {200: records.Job}, respond=lambda _, jobs: _job_answer(200, *jobs), example={"reason": "maintenance"},
    ),
    verb(
        "resume_job", "/v1/jobs/{job_id}/resume", lambda acting: acting.jobs.resume, "jobs:operate",
        "Let a paused job fire again.", "Let a paused job fire again, from its next instant after now.",
        {200: records.Job}, respond=lambda _, jobs: _job_answer(200, *jobs),
    ),
    verb(
        "trigger_job", "/v1/jobs/{job_id}/trigger", lambda acting: acting.jobs.trigger, "jobs:operate",
        "Fire a job now.", "Fire a job now, by hand; its overlap policy holds. With an idempotency key, it fires once.",
        {201: records.Firing}, body=TriggerBody, respond=lambda _, firing: Response(201, firing), problems=(429,),
        grows=True,
    ),
    Endpoint(
        "POST", "/v1/jobs/{job_id}/backfill", backfill_job, "jobs:operate", "Fire past instants that never ran.",
        {200: records.Backfill}, BackfillBody, problems=(409, 429), example=PAST,
        grows=unless_dry_run,
    ),
    Endpoint(
        "GET", "/v1/jobs/{job_id}/next", preview_job, "jobs:read", "Preview the next fire times of a job.",
        {200: records.FireTimes}, query=NextQuery,
    ),
    Endpoint(
        "POST", "/v1/jobs:preview", preview_draft, "jobs:read", "Preview a draft of a job.", {200: records.Preview},
        JobChange, query=NextQuery, example={"schedule": "30 2 * * *", "timezone": "Europe/Berlin"},
    ),
    Endpoint(
        "POST", "/v1/jobs:simulate", simulate_job, "jobs:read", "Simulate a change of a job.", {200: Simulation},
        SimulateBody, problems=(404,), history=True,
        example={"change": {"schedule": "0 2 * * *", "overlap": "forbid"}, "took": "26h"},
    ),
    Endpoint(
        "GET", "/v1/jobs/{job_id}/firings", list_firings, "jobs:read", "What became of a job's due instants.",
        {200: records.Page[records.Firing]}, query=FiringQuery, history=True,
    ),
    Endpoint(
        "GET", "/v1/jobs/{job_id}/runs", list_job_runs, "runs:read", "List the runs of a job.",
        {200: records.Page[records.ListedRun]}, query=PageQuery, history=True,
    ),
)  # fmt: skip
