"""Why a run is not running and why a job does not fire, from what the store knows; and how ids are shown and found."""

from __future__ import annotations

from typing import Protocol

from mainspring.core.ids import ALPHABET, TAIL
from mainspring.core.load.leadership import LEASE
from mainspring.core.model import Job, Run
from mainspring.core.runs.why import Cause, Crowd, GateUse, QueuePause, why_not_firing, why_not_running
from mainspring.core.states import BLOCKED, FINAL
from mainspring.operations.context import if_found
from mainspring.settings import Settings
from mainspring.store import Store


class Knowing(Protocol):
    """A program, or a context, that has a store."""

    @property
    def settings(self) -> Settings:
        """Its settings."""

    async def open(self) -> Store:
        """Its store."""


def short_id(run_id: str) -> str:
    """The end of an id. Unlike its beginning, which is the time, it differs between runs; commands and the API take it,
    or its first characters, in place of the id."""
    return run_id[-TAIL:]


async def find_ids(store: Store, namespace: str, text: str, limit: int) -> list[str]:
    """The runs whose ids, or their short forms, begin with a text."""
    typed = text.strip().lower()
    return await store.find_runs(namespace, typed, limit) if typed and set(typed) <= set(ALPHABET) else []


async def look_around(source: Knowing, namespace: str | None = None) -> Crowd:
    """The workers of a namespace; of the program's own unless another is named."""
    store = await source.open()
    workers = await store.list_workers(source.settings.namespace if namespace is None else namespace)
    return Crowd(workers, store.now(), source.settings.worker_dead_after)


async def explain_run(source: Knowing, run: Run) -> list[Cause]:
    """Why a run is not running."""
    store = await source.open()
    upstream: list[Run] = []
    gate, job = None, None
    if run.state == BLOCKED:
        waited_for = [await store.get_run(run.namespace, each) for each in await store.upstream_runs(run.id)]
        upstream = [each for each in waited_for if each.state not in FINAL]  # One may have ended between two reads.
        gate = await _gate_of(store, run)
        job = None if run.job_id is None else await if_found(store.get_job(run.namespace, run.job_id))
    crowd, pause = await look_around(source, run.namespace), await _pause_of(store, run.namespace, run.queue)
    return why_not_running(run, job=job, upstream=upstream, gate=gate, crowd=crowd, pause=pause)


async def _pause_of(store: Store, namespace: str, queue: str) -> QueuePause | None:
    paused = (each for each in await store.paused_queues(namespace) if each.queue == queue)
    return next((QueuePause(each.paused_at, each.reason) for each in paused), None)


async def _gate_of(store: Store, run: Run) -> GateUse | None:
    """The gate that a run is blocked on."""
    if run.blocked_on is None:
        return None
    held = await if_found(store.gate_holders(run.namespace, run.blocked_on))
    return None if held is None else GateUse(*held)


async def explain_job(source: Knowing, job: Job) -> list[Cause]:
    """Why a job does not fire."""
    store = await source.open()
    edges, crowd = await store.list_edges(job.id), await look_around(source, job.namespace)
    pause, scheduled = await _pause_of(store, job.namespace, job.queue), bool(await store.holders(LEASE))
    return why_not_firing(job, edges=edges, crowd=crowd, scheduled=scheduled, pause=pause)
