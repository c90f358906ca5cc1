"""Which nodes plan, and which have led."""

from __future__ import annotations

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.resources.acting import Acting
from mainspring.api.schemas.paging import limit_of
from mainspring.api.schemas.queries import ClusterQuery
from mainspring.operations import records
from mainspring.operations.cluster import Cluster


async def show_cluster(request: Request) -> Response:
    """The leader, the nodes that check in, and the latest terms."""
    return Response(200, await Cluster(Acting(request).context).show(limit_of(request.query)))


ENDPOINTS = (
    Endpoint(
        "GET", "/v1/cluster", show_cluster, "workers:read", "The leader, and earlier terms.",
        {200: records.Cluster}, query=ClusterQuery,
    ),
)  # fmt: skip
