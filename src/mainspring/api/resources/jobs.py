"""Jobs: created, looked at, listed, replaced, changed, removed."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import msgspec

from mainspring.api.decoding import Given, convert, decode_any, given_of
from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.problems import Fault, Problem, Wrong, nothing_wrong
from mainspring.api.resources.audit import audit_of
from mainspring.api.schemas.bodies import JobBody, JobChange, SyncBody
from mainspring.api.schemas.definitions import learn_tasks, merge_change, read_job
from mainspring.api.schemas.paging import limit_of, page, read_cursor
from mainspring.api.schemas.queries import JobQuery, ReasonQuery
from mainspring.core.model import Job
from mainspring.errors import Conflict, NotFound
from mainspring.operations import records
from mainspring.operations.bodies import body_of
from mainspring.operations.explain import explain_job, last_firings, last_run, note_jobs
from mainspring.operations.views import firing_view, job_view, progress_view

SCAN = 500
MOST_SCANNED = 20_000
"""A list with a filter that fits little ends its page after so many jobs, with a cursor to go on from."""
TRIES = 5
AT_ONCE = 50
"""So many jobs of a sync are read without a look at what else there is to do."""


def job_answer(status: int, job: Job, more: Mapping[str, object] = MappingProxyType({})) -> Answer:
    """A job and its version."""
    return Answer(status, {**job_view(job), **more}, {"ETag": f'"{job.version}"'})


async def create_job(call: Call) -> Answer:
    """Store a new job. `name`, one of `schedule`, `every`, `run_at`, `after`, `manual`, and `task` or `command`."""
    desk = call.desk
    await learn_tasks(call, [call.given])
    draft = read_job(call, call.given, call.wrong, None)
    headers = await call.spend_definitions(1)
    (job_id,) = call.stamp.ids(1, desk.app.new_ids)
    try:
        audit = audit_of(call, "job.create", f"job:{job_id}", None, job_view)
        job = await desk.store.create_job(msgspec.structs.replace(draft, id=job_id), audit=audit)
    except Conflict as error:
        job = await _made_before(call, job_id, error)
    warnings = await desk.tasks.warn(call.namespace, [job.task])
    answer = job_answer(201, job, progress_view(None) | ({"warnings": warnings} if warnings else {}))
    return answer._replace(headers={**answer.headers, **headers, "Location": f"/v1/jobs/{job.id}"})


async def _made_before(call: Call, job_id: str, refusal: Conflict) -> Job:
    """The job that the same request made, if its answer was lost; Conflict if the name is another's."""
    if call.stamp.key is not None:
        try:
            return await call.desk.store.get_job(call.namespace, job_id)
        except NotFound:
            pass
    raise refusal


async def get_job(call: Call) -> Answer:
    """A job by its id or name, and what keeps it from firing."""
    job = await call.desk.store.get_job(call.namespace, call.named("job_id"))
    app = call.desk.app
    return job_answer(200, job, progress_view(await last_run(app, job)) | {"why": await explain_job(app, job)})


async def list_jobs(call: Call) -> Answer:
    """Jobs in order of name."""
    limit, wanted = limit_of(call.query), call.query
    found: list[Job] = []
    after, scanned, ended = read_cursor(wanted), 0, False
    while len(found) <= limit and scanned < MOST_SCANNED and not ended:
        some = await _some_jobs(call, after)
        found += [job for job in some if _fits(job, wanted)]
        scanned += len(some)
        ended = len(some) < SCAN
        after = some[-1].name if some else after
    following = found[limit - 1].name if len(found) > limit else (None if ended else after)
    views = [job_view(job) for job in found[:limit]]
    if wanted.get("last", False):
        ledgers = await last_firings(call.desk.app, found[:limit])
        for view, job in zip(views, found, strict=False):
            view["last"] = firing_view(ledgers[job.id]) if job.id in ledgers else None
    return page(views, following)


async def _some_jobs(call: Call, after: str | None) -> list[Job]:
    """The next jobs to look at; the only one, if it was named."""
    if "name" not in call.query:
        return await call.desk.store.list_jobs(call.namespace, app=call.query.get("app"), after=after, limit=SCAN)
    try:
        return [await call.desk.store.get_job(call.namespace, call.query["name"])]
    except NotFound:
        return []


def _fits(job: Job, wanted: Given) -> bool:
    state = "active" if job.paused_at is None else "paused"
    return (
        wanted.get("name", job.name) == job.name
        and wanted.get("app", job.app) == job.app
        and wanted.get("task", job.task) == job.task
        and wanted.get("state", state) == state
        and ("tag" not in wanted or wanted["tag"] in job.options.tags)
    )


def check_version(call: Call, job: Job) -> None:
    """Problem if the caller says which version it means, and it is not the one that there is."""
    written = call.headers.get("if-match")
    if written is None or written.strip() == "*":
        return
    if f'"{job.version}"' not in [each.strip() for each in written.split(",")]:
        detail = f'job {job.name} has version "{job.version}", not {written[:100]}'
        remedy = "read it again, and decide again"
        raise Problem("precondition-failed", detail, remedy=remedy, headers={"ETag": f'"{job.version}"'})


async def replace_job(call: Call) -> Answer:
    """Replace a definition: what is left out is as if the job were new. `If-Match` guards against lost updates."""
    return await _edit(call, lambda job: (call.given, call.wrong))


async def change_job(call: Call) -> Answer:
    """Change some fields of a definition; null takes a value away (a JSON merge patch)."""
    call.wrong.settle()
    change: dict[str, Any] = decode_any(call.body)

    def merged(job: Job) -> tuple[Given, Wrong]:
        given, wrong = convert(merge_change(body_of(job), change), JobBody)
        return given, Wrong(wrong.faults, call.wrong.names)

    return await _edit(call, merged)


async def _edit(call: Call, wanted: Any) -> Answer:
    """Apply an edit to the version that is there; again if it changes meanwhile, unless the caller named it."""
    store = call.desk.store
    for attempt in range(TRIES):
        job = await store.get_job(call.namespace, call.named("job_id"))
        check_version(call, job)
        given, wrong = wanted(job)
        if given.get("name", job.name) != job.name:
            wrong.add("name", "cannot be changed", f"leave it {job.name}, or make a new job")
        draft = read_job(call, given, wrong, job)
        try:
            audit = audit_of(call, "job.update", f"job:{job.id}", job_view(job), job_view)
            edited = await store.edit_job(draft, job.version, audit=audit)
        except Conflict:
            if attempt == TRIES - 1:
                raise
            continue  # If the caller named a version, the next look at the job tells that it has another one.
        return job_answer(200, edited)
    raise AssertionError("unreachable")


async def delete_job(call: Call) -> Answer:
    """Forget a definition. Its unfinished runs go on, and the ledger stays."""
    store = call.desk.store
    for attempt in range(TRIES):
        job = await store.get_job(call.namespace, call.named("job_id"))
        check_version(call, job)
        audit = audit_of(call, "job.delete", f"job:{job.id}", job_view(job))
        try:
            # What is in the trail as it was before is what is removed, and nothing that was changed meanwhile.
            await store.remove_job(call.namespace, job.id, job.version, audit=audit)
        except Conflict:
            if attempt == TRIES - 1 or await _is_as(call, job):
                raise
            continue
        await note_jobs(store, [job], call.query.get("reason", ""))
        return Answer(204)
    raise AssertionError("unreachable")


async def _is_as(call: Call, job: Job) -> bool:
    """Whether a job still has the version that was seen."""
    return (await call.desk.store.get_job(call.namespace, job.id)).version == job.version


async def sync_jobs(call: Call) -> Answer:
    """Make the stored jobs of an app what it declares, all or nothing. Those no longer declared are only named."""
    desk, bodies = call.desk, call.given.get("jobs", ())
    drafts: list[Job] = []
    for index, body in enumerate(bodies):
        if index % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)  # Others want to be served, too.
        wrong = nothing_wrong()
        try:
            drafts.append(read_job(call, given_of(body), wrong, None, past=True))
        except Problem as error:
            if error.kind != "invalid-input":
                raise
            call.wrong.faults.extend(
                Fault(f"jobs[{index}].{each.field}", each.fault, each.remedy) for each in error.faults
            )
    call.wrong.settle()
    app, source = call.given["app"], call.given.get("source", "")
    headers = await call.spend_definitions(len(drafts)) if drafts else {}
    ids = call.stamp.ids(len(drafts), desk.app.new_ids)
    jobs = [msgspec.structs.replace(job, id=job_id, app=app) for job, job_id in zip(drafts, ids, strict=True)]
    audit = audit_of(call, "job.sync", f"app:{app}", None, msgspec.structs.asdict)
    saved = await desk.store.sync_jobs(app, call.namespace, jobs, source=source, audit=audit)
    return Answer(200, msgspec.structs.asdict(saved), headers)


EXAMPLE = {"name": "daily-report", "schedule": "0 0 * * *", "command": "python generate_report.py"}

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
)  # fmt: skip
