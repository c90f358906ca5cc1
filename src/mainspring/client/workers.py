"""Workers, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.client.resource import Resource
from mainspring.operations import records


class Workers(Resource):
    """`client.workers`."""

    async def list(self) -> Sequence[records.Worker]:
        """All that were heard of lately, each with the state that it is really in."""
        return (await self._get(records.Workers, "workers")).items

    async def get(self, worker_id: str) -> records.Worker:
        """A worker."""
        return await self._get(records.Worker, "workers", worker_id)

    async def regions(self) -> Sequence[records.Region]:
        """How the regions stand that live workers serve or that runs wait in, by name."""
        return (await self._get(records.Regions, "regions")).items

    async def status(self, worker_id: str, *, fresh: bool = False) -> records.WorkerStatus:
        """Whether a worker takes work: from the cache, where the server has one and it need not be `fresh`."""
        return await self._get(records.WorkerStatus, "workers", worker_id, "status", fresh=fresh or None)

    async def drain(self, worker_id: str, reason: str = "") -> records.Worker:
        """Ask a worker to finish what it holds, to take no more, and to end."""
        return await self._post(records.Worker, "workers", worker_id, "drain", reason=reason or None)


class Cluster(Resource):
    """`client.cluster`."""

    async def show(self, limit: int = 20) -> records.Cluster:
        """The leader, the nodes that check in, and the latest terms."""
        return await self._get(records.Cluster, "cluster", limit=limit)
