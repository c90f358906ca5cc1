"""`/v1/queues`, `/v1/gates`, `/v1/tasks` and `/v1/facets`: where runs wait, and what workers can do."""

from __future__ import annotations

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.resources.acting import Acting, verb
from mainspring.api.resources.views.asked import asked
from mainspring.api.schemas.views import FacetQuery
from mainspring.operations.views import records
from mainspring.operations.views.queues import Queues
from mainspring.operations.views.tasks import KnownTasks


async def list_queues(request: Request) -> Response:
    """Queues by name: what waits in each, which workers serve it, and whether it is paused."""
    return Response(200, await Queues(Acting(request).context).list())


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
    return Response(200, await KnownTasks(Acting(request).context).facets(**asked(request)))


ENDPOINTS = (
    Endpoint("GET", "/v1/queues", list_queues, "runs:read", "List queues.", {200: records.Queues}),
    verb(
        "pause_queue", "/v1/queues/{queue}/pause", lambda acting: Queues(acting.context).pause, "jobs:operate",
        "Pause a queue.",
        "Keep the runs of a queue from being claimed. What runs goes on, and new runs are accepted.",
        {200: records.Queue}, example={"reason": "maintenance"},
    ),
    verb(
        "resume_queue", "/v1/queues/{queue}/resume", lambda acting: Queues(acting.context).resume, "jobs:operate",
        "Resume a queue.", "Let the runs of a paused queue be claimed again.", {200: records.Queue},
    ),
    Endpoint("GET", "/v1/gates", list_gates, "runs:read", "List gates and lines.", {200: records.Gates}),
    Endpoint("GET", "/v1/tasks", list_tasks, "workers:read", "List tasks.", {200: records.Tasks}),
    Endpoint("GET", "/v1/tasks/{task}", get_task, "workers:read", "Look at a task.", {200: records.TaskStory}),
    Endpoint(
        "GET", "/v1/facets", list_facets, "jobs:read", "List values for a filter.", {200: records.Facets},
        query=FacetQuery,
    ),
)  # fmt: skip
