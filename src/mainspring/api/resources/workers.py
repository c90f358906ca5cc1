"""Workers without a database: they register, are heard of, take work by long poll, and are asked to stop."""

from __future__ import annotations

import asyncio
import secrets
from hashlib import blake2b
from typing import Literal

import msgspec

from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.load.watching import kind_of
from mainspring.api.resources.acting import Acting
from mainspring.api.schemas.bodies import AssignBody, HeartbeatBody, ReasonBody, WorkerBody
from mainspring.core.instants import SECOND, format_duration, parse_duration
from mainspring.core.model import Claim, Run, Worker
from mainspring.core.states import PENDING
from mainspring.errors import Conflict, InvalidInput, NotFound
from mainspring.operations import records
from mainspring.operations.values.from_rows import as_stored, claim_record
from mainspring.operations.workers import HTTP_APP, Workers
from mainspring.store import RunFilter

LONGEST_WAIT_S = 60.0
NAMED_LOOK_S = 1.0
"""How often a worker that waits for one job looks: what wakes the others may not be for it."""
MOST_LOOKED_AT = 1_000
"""Waiting runs of a job that is named, of which those are taken that are due."""


def owner_mark(call: Call) -> str:
    """The end of the ids of a caller's workers: by it others' workers are told apart without asking the store."""
    seed = f"{call.namespace}\0{call.caller.subject}".encode()
    return "~" + blake2b(seed, digest_size=8).hexdigest()


async def register_worker(call: Call) -> Answer:
    """Announce a worker. Its id is what it takes work and is heard of by."""
    call.wrong.settle()
    given = call.given
    tag = secrets.token_hex(4) if call.stamp.key is None else call.stamp.ids(1, call.desk.app.new_ids)[0][-8:]
    worker = Worker(
        id=f"{given.get('name', 'http')}~{tag}{owner_mark(call)}",
        namespace=call.namespace,
        app=HTTP_APP,
        host=given.get("name", ""),
        queues=tuple(given.get("queues", ("default",))),
        regions=tuple(given.get("regions", ("default",))),
        tasks=tuple(given["tasks"]),
        concurrency=given.get("concurrency", 1),
    )
    await call.desk.store.register(worker)
    settings = call.desk.settings
    registered = records.Registered(
        worker.id, format_duration(settings.claim_renew), format_duration(settings.claim_ttl)
    )
    return Answer(201, registered, {"Location": f"/v1/workers/{worker.id}"})


async def list_workers(call: Call) -> Answer:
    """All workers that were heard of lately, with the state that each is really in."""
    return Answer(200, {"items": await Workers(Acting(call).context).list()})


async def list_regions(call: Call) -> Answer:
    """Every region that live workers serve or that runs wait in: workers, due runs, and how late these are."""
    return Answer(200, {"items": await Workers(Acting(call).context).regions()})


async def _own_worker(call: Call) -> Worker:
    """The worker, if the caller registered it."""
    worker_id = call.named("worker_id")
    if worker_id.endswith(owner_mark(call)):
        for worker in await call.desk.store.list_workers(call.namespace):
            if worker.id == worker_id:
                return worker
    raise NotFound(f"there is no worker {worker_id!r}: register first")


async def get_worker(call: Call) -> Answer:
    """A worker."""
    return Answer(200, await Workers(Acting(call).context).get(call.named("worker_id")))


async def heartbeat(call: Call) -> Answer:
    """A sign of life. It renews the claims that the worker names; those not `held` any more must stop at once."""
    call.wrong.settle()
    worker, store = await _own_worker(call), call.desk.store
    if worker.state in ("dead", "stopped"):
        # It was taken for dead, and is not. What it held may have gone to others: the renewal says so.
        worker = msgspec.structs.replace(worker, state="active")
        await store.register(worker)
    claims = [(each.run_id, each.token) for each in call.given.get("claims", ())]
    renewal = await store.renew(worker, claims, call.desk.settings.claim_ttl)
    held = {run_id for run_id, _ in renewal.held}
    lost = {run_id for run_id, _ in claims} - held
    state: Literal["active", "draining"] = "draining" if worker.state == "draining" else "active"
    return Answer(200, records.Heartbeat(sorted(held), sorted(lost), dict(renewal.cancels), state))


async def assign_work(call: Call) -> Answer:
    """Take due runs, at most `limit`, of any job or of one; wait for some for up to a minute. Each is this worker's
    until its claim ends."""
    wait = call.given.get("wait", 0)
    try:
        seconds = min(parse_duration(wait, "wait") / SECOND, LONGEST_WAIT_S)
    except InvalidInput as error:
        call.wrong.take(error)
    call.wrong.settle()
    worker, desk = await _own_worker(call), call.desk
    if worker.state == "draining":
        raise Conflict(f"worker {worker.id} was asked to stop: finish what you hold, and register anew later")
    loop = asyncio.get_running_loop()
    deadline = loop.time() + seconds
    limit, kind = call.given.get("limit", 1), kind_of(worker)
    while True:
        if call.gone():
            return Answer(200, records.Assigned([]))  # Nobody would hear of it: it is left to others.
        claims = await _claim(call, worker, limit)
        left = deadline - loop.time()
        if claims and "job_id" not in call.given:
            desk.watching.work.pass_on(kind)  # There may be more.
        if claims or left <= 0 or desk.waking.closing:
            return Answer(200, records.Assigned([claim_record(claim, as_stored) for claim in claims]))
        if "job_id" in call.given:
            await desk.waking.wait(min(left, NAMED_LOOK_S))
        else:
            await desk.watching.work.wait(kind, left)


async def _claim(call: Call, worker: Worker, limit: int) -> list[Claim]:
    store, settings = call.desk.store, call.desk.settings
    if "job_id" not in call.given:
        return await store.claim(worker, limit, settings.claim_ttl, settings.ordering)
    found = [(run.id, run.token) for run in await _due(call, call.given["job_id"], limit)]
    return await store.claim_these(worker, found, settings.claim_ttl) if found else []


async def _due(call: Call, named: str, limit: int) -> list[Run]:
    """The due runs of a job; of a run that belongs to no job, itself."""
    store = call.desk.store
    try:
        job = await store.get_job(call.namespace, named)
    except NotFound as unknown:
        try:
            runs = [await store.get_run(call.namespace, named)]
        except NotFound:
            raise unknown from None
    else:
        runs = await store.list_runs(RunFilter(call.namespace, (PENDING,), job=job.name, limit=MOST_LOOKED_AT))
    due = [run for run in runs if run.state == PENDING and run.due_at <= store.now()]
    return sorted(due, key=lambda run: (run.priority, run.due_at, run.id))[:limit]


async def drain_worker(call: Call) -> Answer:
    """Ask a worker to finish what it holds, to take no more, and to end. It learns of it with its next heartbeat."""
    call.wrong.settle()
    workers = Workers(Acting(call).context)
    return Answer(200, await workers.drain(call.named("worker_id"), call.given.get("reason", "")))


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
    Endpoint(
        "POST", "/v1/workers/{worker_id}/drain", drain_worker, "workers:control", "Ask a worker to stop.",
        {200: records.Worker}, ReasonBody, needs_body=False, problems=(409,),
    ),
)  # fmt: skip
