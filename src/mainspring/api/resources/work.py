"""What workers report over HTTP: success, failure, progress, output. A result counts under the newest token only."""

from __future__ import annotations

import msgspec

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.problems import Problem
from mainspring.api.resources.workers import job_or_run, owner_mark
from mainspring.api.schemas.bodies import (
    CompleteBody,
    CompleteJobBody,
    ErrorBody,
    FailBody,
    FailJobBody,
    LinesBody,
    ProgressBody,
)
from mainspring.api.schemas.reading import note_fault
from mainspring.core.instants import parse_duration
from mainspring.core.model import Failure, LogLine, Progress, Report, Run, RunOptions
from mainspring.core.runs.outcome import Next, after_failure
from mainspring.core.states import FAILED, RUNNING, SUCCEEDED
from mainspring.errors import Conflict
from mainspring.operations import records
from mainspring.operations.values.payload import encode_result
from mainspring.store import RunFilter

MOST_CURRENT = 1_000
MOST_LINES = 10_000
LONGEST_SUMMARY = 500
SUCCESSES = ("success", "succeeded", "complete", "completed", "ok")
"""What a worker may call a success."""


async def complete_run(request: Request) -> Response:
    """A run has succeeded. A repeated report gets the same answer; one with an older token is refused."""
    return await _complete(request, await _claimed_run(request))


async def fail_run(request: Request) -> Response:
    """An attempt has failed: it is retried, or the run is given up, by its retry policy."""
    return await _fail(request, await _claimed_run(request))


async def complete_job(request: Request) -> Response:
    """The current run of a job has succeeded. The token names the run. Without it `worker_id` does, or the caller's
    only worker if it still holds the run. Otherwise the report is refused (409)."""
    return await _complete(request, await _current_run(request))


async def fail_job(request: Request) -> Response:
    """An attempt at the current run of a job has failed."""
    return await _fail(request, await _current_run(request))


async def _claimed_run(request: Request) -> Run:
    request.wrong.settle()
    run = await request.context.store.get_run(request.namespace, request.named("run_id"))
    if run.worker is None or not run.worker.endswith(owner_mark(request)):
        raise _overtaken(run.id)
    return run


def _overtaken(run_id: str) -> Problem:
    detail = f"run {run_id} is not held by a worker of yours under this token"
    return Problem("stale-claim", detail, remedy="drop the work: another worker has it, or it has ended")


async def _current_run(request: Request) -> Run:
    """The run of a job that a worker of the caller reports on.

    A token names a claim. Without one, it has to be certain whose claim is meant: that of the worker that is named; or
    that of the caller's only worker, if no earlier claim of the run was lost. Else a worker that was overtaken would be
    taken for the one that has its work now.
    """
    request.wrong.settle()
    job, running = await _running(request)
    held = [run for run in running if run.worker is not None and run.worker.endswith(owner_mark(request))]
    if not held:
        raise Conflict(f"no worker of yours holds a run of {job}")
    token, worker = request.given.get("token"), request.given.get("worker_id")
    fitting = [run for run in held if token in (None, run.token) and worker in (None, run.worker)]
    if not fitting:
        raise _not_held(f"no run of {job} is held under this token by the worker that you name")
    if len(fitting) > 1:
        ids = ", ".join(run.id for run in fitting[:5])
        raise Conflict(f"{job} has {len(fitting)} runs of yours ({ids}): report by /v1/runs/RUN with its token")
    (run,) = fitting
    if token is None and worker is None and (run.losses or await _count_workers(request) != 1):
        raise _not_held(f"it is not certain which of your workers reports on run {run.id} of {job}")
    return run


async def _running(request: Request) -> tuple[str, list[Run]]:
    """A job in words, and its runs that are running; of a run that belongs to no job, itself."""
    found = await job_or_run(request, request.named("job_id"))
    if isinstance(found, Run):
        return f"job {found.id}", [found] if found.state == RUNNING else []
    where = RunFilter(request.namespace, (RUNNING,), job=found.name, limit=MOST_CURRENT)
    return f"job {found.name}", await request.context.store.list_runs(where)


async def _count_workers(request: Request) -> int:
    """The caller's workers, also those that were silent for too long: one of them may report late."""
    mark = owner_mark(request)
    return sum(worker.id.endswith(mark) for worker in await request.context.store.list_workers(request.namespace))


def _not_held(detail: str) -> Problem:
    remedy = "report by /v1/runs/RUN with the token of your claim, or name your worker_id; if you hold nothing, drop it"
    return Problem("stale-claim", detail, remedy=remedy)


async def _complete(request: Request, run: Run) -> Response:
    given, result = request.given, request.given.get("result")
    if "output" in given:
        if result is not None:
            request.wrong.add("output", "is given together with result", "give one of them")
        result = given["output"]
    if str(given.get("status", "success")).lower() not in SUCCESSES:
        request.wrong.add(
            "status", f"is not one of {', '.join(SUCCESSES)}", "report a failure by …/fail, with its error"
        )
    request.wrong.settle()
    return await _report(
        request, run, Next(SUCCEEDED, ""), result=encode_result(result, request.context.settings.payload_limit)
    )


async def _fail(request: Request, run: Run) -> Response:
    error = request.given["error"]
    failure = _failure(error) if isinstance(error, ErrorBody) else Failure("Error", error)
    wait = request.given.get("retry_after")
    asked = None if wait is None else note_fault(request.wrong, parse_duration, wait, "retry_after")
    request.wrong.settle()
    lines = f"{failure.type}: {failure.message}".splitlines()
    summary = lines[0][:LONGEST_SUMMARY]
    if request.given.get("final", False):
        verdict = Next(FAILED, f"{summary}; not retried, for the same would happen again")
    else:
        options, now = msgspec.json.decode(run.options, type=RunOptions), request.context.store.now()
        verdict = after_failure(run.id, run.attempt, run.losses, options, summary, (failure.type,), now, asked)
    return await _report(request, run, verdict, failure=failure)


def _failure(error: ErrorBody) -> Failure:
    kind = error.type if isinstance(error.type, str) else "Error"
    return Failure(kind, error.message, error.traceback if isinstance(error.traceback, str) else "")


async def _report(
    request: Request, run: Run, verdict: Next, *, result: str | None = None, failure: Failure | None = None
) -> Response:
    store = request.context.store
    report = Report(
        run.id,
        request.given.get("token", run.token),
        "succeeded" if failure is None else "failed",
        verdict.state,
        verdict.reason,
        verdict.delay,
        result,
        None if failure is None else msgspec.json.encode(failure).decode(),
        run.started_at,
        store.now(),
    )
    (word,) = await store.report([report])
    if word == "stale":
        raise _overtaken(run.id)
    now = await store.get_run(request.namespace, run.id)
    return Response(200, records.Reported(run.id, word, now.state))


async def _held_run(request: Request) -> Run:
    """The run, if the caller's worker holds it under the token that it gives."""
    run = await _claimed_run(request)
    if run.state != RUNNING or run.token != request.given["token"]:
        raise _overtaken(run.id)
    return run


async def set_progress(request: Request) -> Response:
    """Say how far a run has come."""
    run = await _held_run(request)
    mark = Progress(run.id, run.token, request.given["fraction"], request.given.get("note", ""))
    await request.context.store.record([], [mark])
    return Response(204)


async def add_lines(request: Request) -> Response:
    """Keep what a run wrote."""
    run, store = await _held_run(request), request.context.store
    if await store.count_logs(run.id, MOST_LINES) + len(request.given["lines"]) > MOST_LINES:
        raise Problem("too-large", f"a run may write {MOST_LINES} lines", remedy="keep what it writes elsewhere")
    stream = request.given.get("stream", "stdout")
    now = store.now()
    await store.record([LogLine(run.id, run.attempt + 1, now, stream, text) for text in request.given["lines"]], [])
    return Response(204)


_FAIL_EXAMPLE = {"token": 1, "error": {"type": "TimeoutError", "message": "no answer"}}

ENDPOINTS = (
    Endpoint(
        "PUT", "/v1/runs/{run_id}/complete", complete_run, "work", "Report a success.", {200: records.Reported},
        CompleteBody, problems=(409,), example={"token": 1, "result": {"frames": 240}},
    ),
    Endpoint(
        "PUT", "/v1/runs/{run_id}/fail", fail_run, "work", "Report a failure.", {200: records.Reported},
        FailBody, problems=(409,), example=_FAIL_EXAMPLE,
    ),
    Endpoint(
        "PUT", "/v1/jobs/{job_id}/complete", complete_job, "work", "Report a success of a job's current run.",
        {200: records.Reported}, CompleteJobBody, needs_body=False, problems=(409,), example={"result": 42},
    ),
    Endpoint(
        "PUT", "/v1/jobs/{job_id}/fail", fail_job, "work", "Report a failure of a job's current run.",
        {200: records.Reported}, FailJobBody, problems=(409,), example={"error": "no answer"},
    ),
    Endpoint(
        "PUT", "/v1/runs/{run_id}/progress", set_progress, "work", "Report progress.", {204: None}, ProgressBody,
        problems=(409,), example={"token": 1, "fraction": 0.5, "note": "half of it"},
    ),
    Endpoint(
        "POST", "/v1/runs/{run_id}/logs", add_lines, "work", "Keep what a run wrote.", {204: None}, LinesBody,
        problems=(409,), example={"token": 1, "lines": ["hello"]},
    ),
)  # fmt: skip
