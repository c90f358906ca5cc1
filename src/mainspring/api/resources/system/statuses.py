"""The status of a run or worker: from the status cache where there is one, else from the store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.schemas.queries import StatusQuery
from mainspring.cache import Mark, StatusCache
from mainspring.clock import Clock
from mainspring.core.runs.status import (
    Posting,
    Status,
    posting_of_run,
    posting_of_worker,
    subject_of_run,
    subject_of_worker,
)
from mainspring.errors import CacheUnavailable, NotFound
from mainspring.operations.records import RunStatus, WorkerStatus
from mainspring.operations.values.from_rows import moment
from mainspring.operations.views.explain import look_around
from mainspring.services.breaker import CircuitBreaker
from mainspring.services.loop import log
from mainspring.store import Store

SOURCE_HEADER: Final = "Mainspring-Source"
AskStore = Callable[[int], Awaitable[Posting]]
"""Called with the position that the answer is valid for."""


class Statuses:
    """The status cache as requests use it. A request never waits for a cache that does not answer."""

    def __init__(self, cache: StatusCache | None, store: Store, clock: Clock) -> None:
        self._cache = cache
        self._metrics = store.metrics
        self._breaker = CircuitBreaker(
            store,
            clock,
            "api",
            kind="cache",
            lost="statuses are read from the store",
            back="statuses are cached again",
            unavailable=CacheUnavailable,
        )
        self._posting: set[asyncio.Task[None]] = set()

    async def find(self, subject: str, namespace: str, ask: AskStore, *, fresh: bool) -> tuple[Status, str]:
        """The status of a subject, and its source. A subject of another namespace is looked up in the store, which does
        not find it in the caller's."""
        mark = None
        if self._cache is not None and not fresh:
            mark, status = await self._read(self._cache, subject)
            if status is not None and status.namespace == namespace:
                self._metrics.count("statuses", "cache")
                return status, "cache"
        posting = await ask(0 if mark is None else mark.position)
        assert posting.status is not None
        if self._cache is not None and mark is not None:
            posted = asyncio.get_running_loop().create_task(self._write(self._cache, mark.epoch, posting))
            self._posting.add(posted)
            posted.add_done_callback(self._posting.discard)
        self._metrics.count("statuses", "store")
        return posting.status, "store"

    async def _read(self, cache: StatusCache, subject: str) -> tuple[Mark | None, Status | None]:
        try:
            mark, status = await self._breaker.call(lambda: cache.read(subject))
        except CacheUnavailable:
            return None, None
        return (None, None) if mark is None or mark.late else (mark, status)

    async def _write(self, cache: StatusCache, epoch: str, posting: Posting) -> None:
        try:
            await self._breaker.call(lambda: cache.write(epoch, [posting]))
        except CacheUnavailable as error:
            log.debug("a status was not cached: %s", error)


def _answer(found: tuple[Status, str]) -> Response:
    status, source = found
    view = msgspec.structs.asdict(status)
    return Response(200, {**view, "as_of": moment(status.as_of)}, {SOURCE_HEADER: source})


async def get_run_status(request: Request) -> Response:
    """The status of a run. For a run that has started, it is never older than the last relayed event."""
    run_id, context = request.named("run_id"), request.context

    async def ask(position: int) -> Posting:
        return posting_of_run(await context.store.get_run(request.namespace, run_id), position, context.store.now())

    fresh = bool(request.query.get("fresh"))
    return _answer(await context.statuses.find(subject_of_run(run_id), request.namespace, ask, fresh=fresh))


async def get_worker_status(request: Request) -> Response:
    """Whether a worker takes work."""
    worker_id, context = request.named("worker_id"), request.context

    async def ask(position: int) -> Posting:
        crowd = await look_around(context.app, request.namespace)
        for worker in crowd.workers:
            if worker.id == worker_id:
                state = "dead" if crowd.state_of(worker) == "dead" else worker.state
                return posting_of_worker(worker, state, position, context.store.now())
        raise NotFound(f"there is no worker {worker_id!r}")

    fresh = bool(request.query.get("fresh"))
    return _answer(await context.statuses.find(subject_of_worker(worker_id), request.namespace, ask, fresh=fresh))


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/runs/{run_id}/status", get_run_status, "runs:read", "How a run stands, quickly.",
        {200: RunStatus}, query=StatusQuery,
    ),
    Endpoint(
        "GET", "/v1/workers/{worker_id}/status", get_worker_status, "workers:read", "How a worker stands, quickly.",
        {200: WorkerStatus}, query=StatusQuery,
    ),
)  # fmt: skip
