"""Workers without a database: they register, send heartbeats, take work by long poll, and are asked to stop."""

from __future__ import annotations

import asyncio
import secrets
from hashlib import blake2b
from typing import Literal

import msgspec

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.load.limits import REGISTER
from mainspring.api.load.watching import kind_of
from mainspring.api.problems import Problem, retry_after
from mainspring.api.resources.acting import Acting, verb
from mainspring.api.schemas.bodies import AssignBody, HeartbeatBody, WorkerBody
from mainspring.api.schemas.reading import note_fault
from mainspring.core.instants import SECOND, format_duration, parse_duration
from mainspring.core.model import Claim, Job, Run, Worker
from mainspring.core.states import PENDING
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.operations import records
from mainspring.operations.values.from_rows import as_stored, claim_record
from mainspring.operations.workers import HTTP_APP, Workers
from mainspring.store import RunFilter

MOST_WORKERS = 1_000
"""Live workers of a namespace, which the scheduler of all tenants reads. One worker may take 10,000 runs at once."""
MOST_CHARACTERS = 20_000
"""Of all names that a worker announces together."""
USUAL_CHARACTERS = 2_000
"""A worker that announces more counts as several: each look at the workers reads all of it."""
LONGEST_WAIT_S = 60.0
NAMED_LOOK_S = 1.0
"""How often a worker that waits for one job looks: hints of other work need not concern it."""
MOST_LOOKED_AT = 1_000
"""Waiting runs of a job that is named, of which those are taken that are due."""


def owner_mark(request: Request) -> str:
    """The suffix of the ids of a caller's workers. It distinguishes them from others' workers without a query."""
    seed = f"{request.namespace}\0{request.caller.subject}".encode()
    return "~" + blake2b(seed, digest_size=8).hexdigest()


async def register_worker(request: Request) -> Response:
    """Announce a worker. Its id identifies it when it takes work and sends heartbeats."""
    given = request.given
    length = sum(len(name) for field in ("tasks", "queues", "regions") for name in given.get(field, ()))
    if length > MOST_CHARACTERS:
        remedy = f"announce fewer or shorter names: {MOST_CHARACTERS} characters in all"
        request.wrong.take(InvalidInput("tasks", "its names", f"have {length} characters", remedy))
    request.wrong.settle()
    await request.spend_definitions(1, REGISTER)
    await _check_room(request)
    tag = (
        secrets.token_hex(4) if request.stamp.key is None else request.stamp.ids(1, request.context.app.new_ids)[0][-8:]
    )
    worker = Worker(
        id=f"{given.get('name', 'http')}~{tag}{owner_mark(request)}",
        namespace=request.namespace,
        app=HTTP_APP,
        host=given.get("name", ""),
        queues=tuple(given.get("queues", ("default",))),
        regions=tuple(given.get("regions", ("default",))),
        tasks=tuple(given["tasks"]),
        concurrency=given.get("concurrency", 1),
    )
    await request.context.store.register(worker)
    settings = request.context.settings
    registered = records.Registered(
        worker.id, format_duration(settings.claim_renew), format_duration(settings.claim_ttl)
    )
    return Response(201, registered, {"Location": f"/v1/workers/{worker.id}"})


async def _check_room(request: Request) -> None:
    """Problem if the namespace has too many live workers."""
    context, namespace = request.context, request.namespace

    async def count() -> int:
        oldest = context.store.now() - context.settings.worker_dead_after
        workers = await context.store.list_workers(namespace)
        live = [each for each in workers if each.state in ("active", "draining") and each.heartbeat_at >= oldest]
        return sum(1 + sum(map(len, each.tasks)) // USUAL_CHARACTERS for each in live)

    if await context.worker_counts.get(namespace, count) >= MOST_WORKERS:
        detail = f"namespace {namespace} has {MOST_WORKERS} live workers already"
        raise Problem(
            "overloaded", detail, remedy="let each take more runs at once (`concurrency`)", headers=retry_after(10)
        )


async def list_workers(request: Request) -> Response:
    """All workers that were heard of lately, with the state that each is really in."""
    return Response(200, {"items": await Workers(Acting(request).context).list()})


async def list_regions(request: Request) -> Response:
    """Every region that live workers serve or that runs wait in: workers, due runs, and how late these are."""
    return Response(200, {"items": await Workers(Acting(request).context).regions()})


async def _own_worker(request: Request) -> Worker:
    """The worker, if the caller registered it."""
    worker_id = request.named("worker_id")
    if worker_id.endswith(owner_mark(request)):
        for worker in await request.context.store.list_workers(request.namespace, worker_id):
            return worker
    raise NotFound(f"there is no worker {worker_id!r}: register first")


async def get_worker(request: Request) -> Response:
    """A worker."""
    return Response(200, await Workers(Acting(request).context).get(request.named("worker_id")))


async def heartbeat(request: Request) -> Response:
    """A sign of life. It renews the claims that the worker names; those not `held` any more must stop at once."""
    request.wrong.settle()
    worker, store = await _own_worker(request), request.context.store
    if worker.state in ("dead", "stopped"):
        # It was marked dead, and is alive. Other workers may have its runs: the renewal says which claims hold.
        worker = msgspec.structs.replace(worker, state="active")
        await store.register(worker)
    claims = [(each.run_id, each.token) for each in request.given.get("claims", ())]
    renewal = await store.renew(worker, claims, request.context.settings.claim_ttl)
    held = {run_id for run_id, _ in renewal.held}
    lost = {run_id for run_id, _ in claims} - held
    state: Literal["active", "draining"] = "draining" if worker.state == "draining" else "active"
    return Response(200, records.Heartbeat(sorted(held), sorted(lost), dict(renewal.cancels), state))


async def assign_work(request: Request) -> Response:
    """Take due runs, at most `limit`, of any job or of one; wait for some for up to a minute. Each is this worker's
    until its claim ends."""
    wait = note_fault(request.wrong, parse_duration, request.given.get("wait", 0), "wait")
    request.wrong.settle()
    seconds = min(wait / SECOND, LONGEST_WAIT_S)
    worker, context = await _own_worker(request), request.context
    if worker.state == "draining":
        raise Conflict(f"worker {worker.id} was asked to stop: finish what you hold, and register anew later")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    limit, kind = request.given.get("limit", 1), kind_of(worker)
    while True:
        if request.gone():
            return Response(
                200, records.Assigned([])
            )  # The caller has disconnected: the work is left to other workers.
        claims = await _claim(request, worker, limit)
        left = deadline - loop.time()
        if claims and "job_id" not in request.given:
            context.watching.work.pass_on(kind)  # There may be more.
        if claims or left <= 0 or context.waking.closing:
            return Response(200, records.Assigned([claim_record(claim, as_stored) for claim in claims]))
        if "job_id" in request.given:
            await context.waking.wait(min(left, NAMED_LOOK_S))
        else:
            await context.watching.work.wait(kind, left)


async def _claim(request: Request, worker: Worker, limit: int) -> list[Claim]:
    store, settings = request.context.store, request.context.settings
    if "job_id" not in request.given:
        return await store.claim(worker, limit, settings.claim_ttl, settings.ordering)
    found = [(run.id, run.token) for run in await _due(request, request.given["job_id"], limit)]
    return await store.claim_these(worker, found, settings.claim_ttl) if found else []


async def job_or_run(request: Request, named: str) -> Job | Run:
    """A job; or the run of this id, which may belong to no job."""
    store = request.context.store
    try:
        return await store.get_job(request.namespace, named)
    except NotFound as unknown:
        try:
            return await store.get_run(request.namespace, named)
        except NotFound:
            raise unknown from None


async def _due(request: Request, named: str, limit: int) -> list[Run]:
    """The due runs of a job; of a run that belongs to no job, itself."""
    store, found = request.context.store, await job_or_run(request, named)
    runs = (
        [found]
        if isinstance(found, Run)
        else await store.list_runs(RunFilter(request.namespace, (PENDING,), job=found.name, limit=MOST_LOOKED_AT))
    )
    due = [run for run in runs if run.state == PENDING and run.due_at <= store.now()]
    return sorted(due, key=lambda run: (run.priority, run.due_at, run.id))[:limit]


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/workers", register_worker, "work", "Register a worker.", {201: records.Registered}, WorkerBody,
        example={"name": "curl", "tasks": ["encode"]},
    ),
    Endpoint("GET", "/v1/regions", list_regions, "workers:read", "How regions stand.", {200: records.Regions}),
    Endpoint("GET", "/v1/workers", list_workers, "workers:read", "List workers.", {200: records.Workers}),
    Endpoint(
        "GET", "/v1/workers/{worker_id}", get_worker, "workers:read", "Look at a worker.", {200: records.Worker},
    ),
    Endpoint(
        "PUT", "/v1/workers/{worker_id}/heartbeat", heartbeat, "work", "A worker's sign of life.",
        {200: records.Heartbeat}, HeartbeatBody, needs_body=False,
    ),
    Endpoint(
        "PUT", "/v1/workers/{worker_id}/assign", assign_work, "work", "Take work.", {200: records.Assigned},
        AssignBody, needs_body=False, problems=(409,), patient=True, example={"limit": 10, "wait": "20s"},
    ),
    verb(
        "drain_worker", "/v1/workers/{worker_id}/drain", lambda acting: Workers(acting.context).drain,
        "workers:control", "Ask a worker to stop.",
        "Ask a worker to finish what it holds, to take no more, and to end. It learns of it with its next heartbeat.",
        {200: records.Worker}, problems=(409,),
    ),
)  # fmt: skip
