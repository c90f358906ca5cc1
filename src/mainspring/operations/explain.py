"""Questions that commands and the API ask of the store, and reasons that they leave there."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import msgspec

from mainspring.core.ids import ALPHABET, TAIL
from mainspring.core.instants import format_instant
from mainspring.core.load.leadership import LEASE
from mainspring.core.model import Event, Firing, Job, Run, Worker
from mainspring.core.runs.why import Crowd, GateUse, why_not_firing, why_not_running
from mainspring.core.states import BLOCKED, FINAL, SUCCEEDED
from mainspring.errors import Conflict, NotFound
from mainspring.sdk.app import Mainspring
from mainspring.store import Audit, RunFilter, Store

PAGE = 500


def short_id(run_id: str) -> str:
    """The end of an id: unlike its beginning, which is the time, it tells runs apart. It, or how it begins, is
    understood in place of the id."""
    return run_id[-TAIL:]


async def find_ids(store: Store, namespace: str, text: str, limit: int) -> list[str]:
    """The runs whose ids, or what is shown of them, begin with what somebody typed."""
    typed = text.strip().lower()
    return await store.find_runs(namespace, typed, limit) if typed and set(typed) <= set(ALPHABET) else []


async def ask_to_drain(store: Store, crowd: Crowd, worker: Worker, audit: Audit[object] | None = None) -> Worker:
    """Ask a worker to finish what it holds, to take no more, and to end. For one that works over HTTP the server says
    so itself: it is given no more work from now on."""
    state = crowd.state_of(worker)
    if state not in ("active", "draining"):
        seen = f"last heard of at {format_instant(worker.heartbeat_at)}"
        raise Conflict(f"worker {worker.id} is {state} ({seen}), so it cannot drain: `mainspring workers` lists others")
    if worker.app == "http" and "~" in worker.id:
        draining = msgspec.structs.replace(worker, state="draining")
        await store.register(draining, audit=audit)
        return draining
    asked = await store.request_drain(worker.namespace, worker.id, audit=audit)
    if asked is None:
        raise Conflict(f"worker {worker.id} has just ended: there is nothing to drain")
    return asked


async def select_runs(store: Store, where: RunFilter, limit: int | None) -> AsyncGenerator[Run, None]:
    """All runs that a filter fits, newest first, whatever its own limit; at most `limit`."""
    left, before = limit, where.before
    while left is None or left > 0:
        size = PAGE if left is None else min(left, PAGE)
        page = await store.list_runs(msgspec.structs.replace(where, before=before, limit=size))
        for run in page:
            yield run
        if len(page) < size:
            return
        left, before = None if left is None else left - size, page[-1].id


async def select_jobs(app: Mainspring, owner: str | None = None, tag: str | None = None) -> list[Job]:
    """All jobs in order of name: those of one app, or with one tag."""
    store = await app.open()
    jobs: list[Job] = []
    page = await store.list_jobs(app.settings.namespace, app=owner, limit=PAGE)
    while page:
        jobs += page
        last = page[-1].name
        more = len(page) == PAGE
        page = await store.list_jobs(app.settings.namespace, app=owner, after=last, limit=PAGE) if more else []
    return [job for job in jobs if tag is None or tag in job.options.tags]


async def last_firings(app: Mainspring, jobs: Sequence[Job]) -> dict[str, Firing]:
    """The newest row of the ledger of each job that has one, by job id."""
    store = await app.open()
    found: dict[str, Firing] = {}
    for first in range(0, len(jobs), PAGE):
        rows = await store.newest_firings([job.id for job in jobs[first : first + PAGE]])
        found |= {row.job_id: row for row in rows}
    return found


async def last_run(app: Mainspring, job: Job) -> Run | None:
    """A run of the newest firing of a job that has one and is still kept; of several, one that says most of it."""
    store = await app.open()
    size = len(job.policy.regions) * job.policy.completions
    rows = [row for row in await store.list_firings(job.id, limit=size) if row.run_id is not None]
    if not rows:
        return None
    newest = [row for row in rows if row.fire_at == rows[0].fire_at]
    telling = next((row for row in newest if row.outcome != SUCCEEDED), newest[0])
    try:
        return await store.get_run(job.namespace, telling.run_id or "")
    except NotFound:
        return None


async def look_around(app: Mainspring, namespace: str | None = None) -> Crowd:
    """The workers there are, in the app's own namespace or another."""
    store = await app.open()
    workers = await store.list_workers(app.settings.namespace if namespace is None else namespace)
    return Crowd(workers, store.now(), app.settings.worker_dead_after)


async def explain_run(app: Mainspring, run: Run) -> list[str]:
    """Why a run is not running."""
    store = await app.open()
    upstream: list[Run] = []
    gate, job = None, None
    if run.state == BLOCKED:
        waited_for = [await store.get_run(run.namespace, each) for each in await store.upstream_runs(run.id)]
        upstream = [each for each in waited_for if each.state not in FINAL]  # One may have ended between two looks.
        gate, job = await _gate_of(app, run), await job_of(app, run)
    return why_not_running(run, job=job, upstream=upstream, gate=gate, crowd=await look_around(app, run.namespace))


async def _gate_of(app: Mainspring, run: Run) -> GateUse | None:
    if run.blocked_on is None:
        return None
    try:
        return GateUse(*await (await app.open()).gate_holders(run.namespace, run.blocked_on))
    except NotFound:
        return None


async def explain_job(app: Mainspring, job: Job) -> list[str]:
    """Why a job does not fire."""
    store = await app.open()
    edges, crowd = await store.list_edges(job.id), await look_around(app, job.namespace)
    return why_not_firing(job, edges=edges, crowd=crowd, scheduled=bool(await store.holders(LEASE)))


async def job_of(app: Mainspring, run: Run) -> Job | None:
    """The job that a run belongs to, if it is still there."""
    if run.job_id is None:
        return None
    try:
        return await (await app.open()).get_job(run.namespace, run.job_id)
    except NotFound:
        return None


async def note_jobs(store: Store, jobs: Sequence[Job], reason: str) -> None:
    """Keep why something was done with jobs where the action itself has no place for it: among the events."""
    if reason:
        now = store.now()
        await store.tell(
            [Event("job.noted", now, job.namespace, None, job.id, job.name, job.task, reason=reason) for job in jobs]
        )


async def note_run(store: Store, run: Run, new_id: str, reason: str) -> None:
    """Keep why a run was run again, with the run that it became."""
    if reason:
        await store.tell(
            [Event("run.noted", store.now(), run.namespace, new_id, run.job_id, run.job, run.task, reason=reason)]
        )
