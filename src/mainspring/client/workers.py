"""Workers, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.client.connection import Connection, Request, path_of
from mainspring.operations import records


class Workers:
    """`client.workers`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> Sequence[records.Worker]:
        """All that were heard of lately, each with the state that it is really in."""
        return (await self._connection.ask(Request("GET", path_of("workers")), records.Workers)).items

    async def get(self, worker_id: str) -> records.Worker:
        """A worker."""
        return await self._connection.ask(Request("GET", path_of("workers", worker_id)), records.Worker)

    async def regions(self) -> Sequence[records.Region]:
        """How the regions stand that live workers serve or that runs wait in, by name."""
        return (await self._connection.ask(Request("GET", path_of("regions")), records.Regions)).items

    async def status(self, worker_id: str, *, fresh: bool = False) -> records.WorkerStatus:
        """Whether a worker takes work: from the cache, where the server has one and it need not be `fresh`."""
        query = {"fresh": True} if fresh else {}
        return await self._connection.ask(
            Request("GET", path_of("workers", worker_id, "status"), query), records.WorkerStatus
        )

    async def drain(self, worker_id: str, reason: str = "") -> records.Worker:
        """Ask a worker to finish what it holds, to take no more, and to end."""
        body = {"reason": reason} if reason else {}
        return await self._connection.ask(
            Request("POST", path_of("workers", worker_id, "drain"), body=body), records.Worker
        )


class Cluster:
    """`client.cluster`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def show(self, limit: int = 20) -> records.Cluster:
        """The leader, the nodes that check in, and the latest terms."""
        return await self._connection.ask(Request("GET", path_of("cluster"), {"limit": limit}), records.Cluster)
