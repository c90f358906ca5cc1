"""`/v1/queues`, `/v1/gates`, `/v1/tasks` and `/v1/facets`: where runs wait, and what workers can do."""

from __future__ import annotations

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.resources.acting import Acting
from mainspring.api.resources.views.asked import asked
from mainspring.api.schemas.bodies import ReasonBody
from mainspring.api.schemas.views import FacetQuery
from mainspring.operations.views import records
from mainspring.operations.views.queues import Queues
from mainspring.operations.views.tasks import KnownTasks


async def list_queues(request: Request) -> Response:
    """Queues by name: what waits in each, which workers serve it, and whether it is paused."""
    return Response(200, await Queues(Acting(request).context).list())


async def pause_queue(request: Request) -> Response:
    """Keep the runs of a queue from being claimed. What runs goes on, and new runs are accepted."""
    request.wrong.settle()
    queues = Queues(Acting(request).context)
    return Response(200, await queues.pause(request.named("queue"), request.given.get("reason", "")))


async def resume_queue(request: Request) -> Response:
    """Let the runs of a paused queue be claimed again."""
    request.wrong.settle()
    queues = Queues(Acting(request).context)
    return Response(200, await queues.resume(request.named("queue"), request.given.get("reason", "")))


async def list_gates(request: Request) -> Response:
    """How full gates are, and the longest lines."""
    return Response(200, await Queues(Acting(request).context).gates())


async def list_tasks(request: Request) -> Response:
    """The tasks that live workers know."""
    return Response(200, await KnownTasks(Acting(request).context).list())


async def get_task(request: Request) -> Response:
    """A task as a worker announced it: its signature, and its arguments as JSON Schema."""
    return Response(200, await KnownTasks(Acting(request).context).get(request.named("task")))


async def list_facets(request: Request) -> Response:
    """At most 50 values that a filter may have, in order: those that begin with `prefix`."""
    return Response(200, await KnownTasks(Acting(request).context).facets(**asked(request, "of", "prefix")))


ENDPOINTS = (
    Endpoint("GET", "/v1/queues", list_queues, "runs:read", "List queues.", {200: records.Queues}),
    Endpoint(
        "POST", "/v1/queues/{queue}/pause", pause_queue, "jobs:operate", "Pause a queue.", {200: records.Queue},
        ReasonBody, needs_body=False, example={"reason": "maintenance"},
    ),
    Endpoint(
        "POST", "/v1/queues/{queue}/resume", resume_queue, "jobs:operate", "Resume a queue.", {200: records.Queue},
        ReasonBody, needs_body=False,
    ),
    Endpoint("GET", "/v1/gates", list_gates, "runs:read", "List gates and lines.", {200: records.Gates}),
    Endpoint("GET", "/v1/tasks", list_tasks, "workers:read", "List tasks.", {200: records.Tasks}),
    Endpoint("GET", "/v1/tasks/{task}", get_task, "workers:read", "Look at a task.", {200: records.TaskStory}),
    Endpoint(
        "GET", "/v1/facets", list_facets, "jobs:read", "List values for a filter.", {200: records.Facets},
        query=FacetQuery,
    ),
)  # fmt: skip
