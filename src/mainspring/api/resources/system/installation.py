"""What runs, with which settings, and which nodes plan."""

from __future__ import annotations

from mainspring.api.auth.access import EVERYWHERE
from mainspring.api.endpoint import Endpoint, Request, Response, forbidden
from mainspring.api.resources.acting import Acting
from mainspring.api.schemas.paging import limit_of
from mainspring.api.schemas.queries import ClusterQuery
from mainspring.operations import records
from mainspring.operations.cluster import Cluster
from mainspring.operations.installation import Installation, ShownSettings, Versions


async def show_versions(request: Request) -> Response:
    """The version of the server that answers, of the database's schema, and of each live worker."""
    return Response(200, await Installation(Acting(request).context).versions())


async def show_settings(request: Request) -> Response:
    """The settings of the server that answers, as they are in effect. Secrets and passwords are masked. They are those
    of every namespace: a caller of another namespace than the server's own needs the permission in all of them."""
    own = request.namespace == request.context.settings.namespace
    if not own and not request.caller.may("settings:read", EVERYWHERE):
        raise forbidden("settings:read", EVERYWHERE)
    return Response(200, Installation(Acting(request).context).settings())


async def show_cluster(request: Request) -> Response:
    """The leader, the nodes that check in, and the latest terms."""
    return Response(200, await Cluster(Acting(request).context).show(limit_of(request.query)))


ENDPOINTS = (
    Endpoint("GET", "/v1/versions", show_versions, "workers:read", "Which versions run.", {200: Versions}),
    Endpoint("GET", "/v1/settings", show_settings, "settings:read", "The settings in effect.", {200: ShownSettings}),
    Endpoint(
        "GET", "/v1/cluster", show_cluster, "workers:read", "The leader, and earlier terms.",
        {200: records.Cluster}, query=ClusterQuery,
    ),
)  # fmt: skip
