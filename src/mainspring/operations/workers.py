"""What can be done with workers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.core.instants import format_duration, format_instant
from mainspring.core.model import Worker
from mainspring.core.runs.regions import region_health
from mainspring.core.runs.why import Crowd
from mainspring.errors import Conflict, NotFound
from mainspring.operations import records
from mainspring.operations.context import InContext
from mainspring.operations.values.from_rows import worker_record
from mainspring.operations.views.explain import look_around

HTTP_APP = "http"
"""The app that workers which take their work over HTTP belong to."""


MOST_COUNTED = 100_000
"""Due runs of one queue, region and priority are counted up to here."""


class Workers(InContext):
    """What `/v1/workers`, `mainspring workers` and `mainspring drain` do."""

    async def list(self) -> Sequence[records.Worker]:
        """The workers with a recent heartbeat, each with its actual state."""
        crowd = await self._look()
        return [worker_record(worker, crowd.state_of(worker)) for worker in crowd.workers]

    async def get(self, worker_id: str) -> records.Worker:
        """A worker with its actual state."""
        crowd = await self._look()
        worker = _find(crowd, worker_id)
        return worker_record(worker, crowd.state_of(worker))

    async def drain(self, worker_id: str, reason: str = "") -> records.Worker:
        """Ask a worker to finish what it holds, to take no more, and to end. It learns of it with its next heartbeat;
        one that works over HTTP gets no more work from now on. Conflict if it has ended already."""
        context, store, crowd = self._context, await self._context.open(), await self._look()
        worker = _find(crowd, worker_id)
        state = crowd.state_of(worker)
        if state not in ("active", "draining"):
            seen = f"last heard of at {format_instant(worker.heartbeat_at)}"
            raise Conflict(
                f"worker {worker.id} is {state} ({seen}), so it cannot drain: `mainspring workers` lists others"
            )
        said = {"drain": True, "reason": reason}
        target, before = f"worker:{worker.id}", {"state": worker.state}
        if worker.app == HTTP_APP and "~" in worker.id:
            asked: Worker | None = msgspec.structs.replace(worker, state="draining")
            await store.register(
                msgspec.structs.replace(worker, state="draining"),
                audit=context.audit("worker.drain", target, before, lambda _: said),
            )
        else:
            asked = await store.request_drain(
                worker.namespace, worker.id, audit=context.audit("worker.drain", target, before, lambda _: said)
            )
        if asked is None:
            raise Conflict(f"worker {worker.id} has just ended: there is nothing to drain")
        return worker_record(asked, asked.state)

    async def regions(self) -> Sequence[records.Region]:
        """How the regions stand that live workers serve or that runs wait in, by name."""
        crowd, store = await self._look(), await self._context.open()
        backlog = [row for row in await store.backlog(MOST_COUNTED) if row.namespace == self._context.namespace]
        return [
            records.Region(
                region=each.region,
                workers=each.workers,
                slots=each.slots,
                running=each.running,
                depth=each.depth,
                lateness=format_duration(each.lateness),
            )
            for each in region_health(crowd.living(), backlog, crowd.now)
        ]

    async def _look(self) -> Crowd:
        return await look_around(self._context, self._context.namespace)


def _find(crowd: Crowd, worker_id: str) -> Worker:
    for worker in crowd.workers:
        if worker.id == worker_id:
            return worker
    raise NotFound(f"there is no worker {worker_id!r}: `mainspring workers` lists those that there are")
