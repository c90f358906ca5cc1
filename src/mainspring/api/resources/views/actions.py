"""Actions on many runs or jobs at once."""

from __future__ import annotations

from mainspring.api.endpoint import Endpoint, Request, Response, unless_dry_run
from mainspring.api.resources.acting import Acting
from mainspring.api.resources.views.asked import instants
from mainspring.api.schemas.views import ActJobsBody, ActRunsBody
from mainspring.api.wire.decoding import Given
from mainspring.operations.views import records
from mainspring.operations.views.acting import Acting as Actions

_RUN_WORDS = ("run_ids", "job", "task", "tag", "queue", "worker", "region", "key", "late", "took", "submitted_by",
              "error", "limit", "dry_run", "reason")  # fmt: skip
_JOB_WORDS = ("app", "task", "tag", "queue", "q", "state", "limit", "dry_run", "reason")
_RUN_FILTERS = ("run_ids", "state", "job", "task", "tag", "queue", "worker", "region", "key", "late", "took",
                "submitted_by", "error", "since", "until")  # fmt: skip
_JOB_FILTERS = ("jobs", "app", "task", "tag", "queue", "q", "state")


async def act_on_runs(request: Request) -> Response:
    """Cancel or retry many runs: these, or all that a filter fits; 1,000 at most, and for two seconds at most. `next`
    says where to go on. With `dry_run` it only counts."""
    given = request.given
    if not any(name in given for name in _RUN_FILTERS) and not request.wrong.faults:
        request.wrong.add("run_ids", "is missing", "name runs, or select them by a filter")
    words = {name: given[name] for name in _RUN_WORDS if name in given}
    words |= instants(given, request.wrong, "since", "until")
    request.wrong.settle()
    acting = Acting(request)
    states = tuple(given.get("state", ()))
    done = await Actions(acting.context).runs(given["action"], states=states, before=given.get("cursor"), **words)
    return Response(200, done, acting.headers)


async def act_on_jobs(request: Request) -> Response:
    """Pause, resume or trigger many jobs: these, or all that a filter fits; 1,000 at most, and for two seconds at most.
    `next` says where to go on. With `dry_run` it only names them."""
    given = request.given
    if not any(name in given for name in _JOB_FILTERS) and not request.wrong.faults:
        request.wrong.add("jobs", "is missing", "name jobs, or select them by a filter")
    request.wrong.settle()
    acting, words = Acting(request), {name: given[name] for name in _JOB_WORDS if name in given}
    chosen = {"names": given.get("jobs", ()), "after": given.get("cursor")}
    return Response(200, await Actions(acting.context).jobs(given["action"], **chosen, **words), acting.headers)


def _adds_runs(given: Given) -> bool:
    """To retry and to trigger adds runs. To cancel and to pause relieves the pressure: it must be possible under it."""
    return given.get("action") in ("retry", "trigger") and unless_dry_run(given)


_RUNS_RULE = {"anyOf": [{"required": [name]} for name in _RUN_FILTERS]}
_JOBS_RULE = {"anyOf": [{"required": [name]} for name in _JOB_FILTERS]}

ENDPOINTS = (
    Endpoint(
        "POST", "/v1/runs:act", act_on_runs, "runs:control", "Cancel or retry many runs.", {200: records.ActedRuns},
        ActRunsBody, problems=(429,), rule=_RUNS_RULE, example={"action": "retry", "job": "etl", "dry_run": True},
        grows=_adds_runs,
    ),
    Endpoint(
        "POST", "/v1/jobs:act", act_on_jobs, "jobs:operate", "Pause, resume or trigger many jobs.",
        {200: records.ActedJobs}, ActJobsBody, problems=(429,), rule=_JOBS_RULE,
        example={"action": "pause", "tag": "nightly", "reason": "maintenance"}, grows=_adds_runs,
    ),
)  # fmt: skip
