"""`/v1/overview` and `/v1/live`: how a namespace stands, and what changes in it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.resources.acting import Acting
from mainspring.api.resources.system.health import open_breakers
from mainspring.api.wire.streaming import SSE, beats, sse
from mainspring.core.load import degradation
from mainspring.operations.views import overview_records
from mainspring.operations.views.overview import Overview


async def show_overview(request: Request) -> Response:
    """The leader, how much waits, what needs attention, what runs and what comes next. At most a second old: all that
    ask within a second are given the same answer."""
    found = await request.context.overviews.get(request.namespace, Overview(Acting(request).context).show)
    guard = request.context.guard
    burden = guard.burden_of(request.namespace)
    own = {
        "degradation": burden.level.name,
        "given_up": burden.level.given_up,
        "pressure": round(degradation.pressure(burden.load, guard.limits), 3),
        "breakers": open_breakers(request),
    }
    return Response(200, msgspec.structs.replace(found, **own))


async def follow_live(request: Request) -> Response:
    """Server-sent events, at most two a second: which jobs and runs have changed. Each event is a `news`, and its JSON
    has `jobs` and `runs`, at most 200 ids each, and `more`: whether others may have changed, too. The first has `more`
    set, since something may have changed before the stream began."""
    return Response(200, media_type=SSE, stream=beats(_news(request)))


async def _news(request: Request) -> AsyncIterator[bytes]:
    async for news in request.context.newsroom.follow(request.namespace):
        yield sse("news", news)


ENDPOINTS = (
    Endpoint("GET", "/v1/overview", show_overview, "runs:read", "How it stands.", {200: overview_records.Overview}),
    Endpoint("GET", "/v1/live", follow_live, "events:read", "Follow what changes.", {200: SSE}, patient=True),
)
