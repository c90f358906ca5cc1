"""`/v1/runs` and the dead letters: what can be done with runs that exist."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from mainspring.api.endpoint import Endpoint, Request, Response, unless_dry_run
from mainspring.api.resources.acting import LONGEST_WAIT_S, Acting, verb
from mainspring.api.resources.views.asked import asked
from mainspring.api.schemas.bodies import RerunBody
from mainspring.api.schemas.paging import limit_of, page, read_cursor
from mainspring.api.schemas.queries import CountQuery, DeadQuery, LogQuery, RunQuery, WaitQuery
from mainspring.api.wire.streaming import SSE, beats, resumed_after, sse
from mainspring.core.instants import LATEST, SECOND, parse_duration
from mainspring.core.states import FAILED
from mainspring.operations import records
from mainspring.operations.runs import LINES_AT_ONCE

TEXT = "text/plain; charset=utf-8"


async def get_run(request: Request) -> Response:
    """A run, and what keeps it from running."""
    return Response(200, await Acting(request).runs.get(request.named("run_id")))


async def list_runs(request: Request) -> Response:
    """Runs, newest first."""
    if "id" in request.query:  # The few runs whose ids fit; other filters do not narrow them.
        found = await Acting(request).runs.find(request.query["id"], limit_of(request.query))
        return page(records.Page([*found], None))
    return await _list(request)


async def list_dead(request: Request) -> Response:
    """The dead-letter list: runs that failed and are not tried again by themselves, newest first."""
    return await _list(request, states=(FAILED,))


async def _list(request: Request, **more: Any) -> Response:
    words = {**asked(request), **more, "rows": "fields" in request.query}
    return page(
        await Acting(request).runs.page(**words, before=read_cursor(request.query), limit=limit_of(request.query))
    )


async def count_runs(request: Request) -> Response:
    """How many runs a filter fits, counted up to 10,000."""
    return Response(200, await Acting(request).runs.count(**asked(request)))


async def rerun_dead(request: Request) -> Response:
    """Run failed runs again: these, or all that a filter fits. Each at most once, however often it is asked for."""
    given = request.given
    selected = any(name in given for name in ("job", "task", "tag"))
    if selected == ("run_ids" in given) and not request.wrong.faults:
        fault = "is given together with a filter" if selected else "is missing"
        request.wrong.add("run_ids", fault, "name runs, or select them by job, task or tag")
    request.wrong.settle()
    return Response(200, await Acting(request).runs.rerun(**given))


async def list_attempts(request: Request) -> Response:
    """The attempts of a run that have ended, in order."""
    return Response(200, {"items": await Acting(request).runs.attempts(request.named("run_id"))})


async def wait_run(request: Request) -> Response:
    """Wait for a run to end, at most five minutes: its state says whether it has."""
    seconds = min(parse_duration(request.query.get("timeout", "30s"), "timeout") / SECOND, LONGEST_WAIT_S)
    runs, run_id = Acting(request).runs, request.named("run_id")
    ended = asyncio.ensure_future(runs.poll(run_id, seconds))
    closing = asyncio.ensure_future(request.context.waking.until_closing())
    try:
        await asyncio.wait({ended, closing}, return_when=asyncio.FIRST_COMPLETED)
        return Response(200, ended.result() if ended.done() else await runs.poll(run_id, 0))
    finally:
        ended.cancel()
        closing.cancel()


async def list_logs(request: Request) -> Response:
    """What a run wrote, all attempts together; with `follow`, as server-sent events until it has ended."""
    runs, run_id, query = Acting(request).runs, request.named("run_id"), request.query
    await request.context.store.get_run(request.namespace, run_id)
    after = query.get("after", 0)
    if query.get("follow", False):
        resumed = resumed_after(request.headers)
        stream = _follow(request, run_id, after if resumed is None else resumed)
        return Response(200, media_type=SSE, stream=beats(stream))
    if "tail" in query:
        lines = [*await runs.lines(run_id, after=after, before=query.get("before", LATEST), limit=query["tail"])]
    else:
        limit = query.get("limit", LINES_AT_ONCE)
        lines = [*await runs.lines(run_id, after=after, before=query.get("before"), limit=limit)]
    if "format" in query:
        text = "".join(f"{line.text}\n" for line in lines)
        return Response(200, text.encode(), {"Content-Disposition": f'inline; filename="{run_id}.txt"'}, TEXT)
    return Response(200, records.Lines(lines, lines[-1].number if lines else after))


async def _follow(request: Request, run_id: str, after: int) -> AsyncIterator[bytes]:
    runs = Acting(request).runs
    async for line in runs.logs(run_id, follow=True, after=after):
        yield sse("line", line, line.number)
    if not request.context.waking.closing:
        yield sse("end", await runs.poll(run_id, 0))


_SELECTED = {"anyOf": [{"required": [name]} for name in ("job", "task", "tag")]}
_CHOSEN = {"oneOf": [{"required": ["run_ids"]}, _SELECTED]}

ENDPOINTS = (
    Endpoint(
        "GET", "/v1/runs", list_runs, "runs:read", "List runs.", {200: records.Page[records.ListedRun]}, query=RunQuery,
        history=True,
    ),
    Endpoint(
        "GET", "/v1/runs:count", count_runs, "runs:read", "Count runs.", {200: records.Count}, query=CountQuery,
        history=True,
    ),
    Endpoint(
        "GET", "/v1/dead-letters", list_dead, "runs:read", "List runs that failed for good.",
        {200: records.Page[records.ListedRun]}, query=DeadQuery, history=True,
    ),
    Endpoint("GET", "/v1/runs/{run_id}", get_run, "runs:read", "Look at a run.", {200: records.RunStory}),
    verb(
        "cancel_run", "/v1/runs/{run_id}/cancel", lambda acting: acting.runs.cancel, "runs:control", "Cancel a run.",
        "Cancel a run that waits, or ask a running one to stop: then its state stays `running` until it has.",
        {200: records.Cancelled}, respond=lambda run_id, state: Response(200, records.Cancelled(run_id, state)),
        problems=(409,), example={"reason": "not needed any more"},
    ),
    verb(
        "retry_run", "/v1/runs/{run_id}/retry", lambda acting: acting.runs.retry, "runs:control", "Run it again.",
        "Try once more what has ended without success: as a new run of the same work.", {201: records.Run},
        respond=lambda _, run: Response(201, run, {"Location": f"/v1/runs/{run.run_id}"}), problems=(409, 429),
        grows=True,
    ),
    Endpoint(
        "POST", "/v1/dead-letters:rerun", rerun_dead, "runs:control", "Run many failed runs again.",
        {200: records.Rerun}, RerunBody, problems=(429,), rule=_CHOSEN, example={"job": "daily-report"},
        grows=unless_dry_run,
    ),
    Endpoint(
        "GET", "/v1/runs/{run_id}/attempts", list_attempts, "runs:read", "The attempts of a run.",
        {200: records.Attempts}, history=True,
    ),
    Endpoint(
        "GET", "/v1/runs/{run_id}/logs", list_logs, "runs:read", "What a run wrote.", {200: records.Lines},
        query=LogQuery, patient=True,
    ),
    Endpoint(
        "GET", "/v1/runs/{run_id}/wait", wait_run, "runs:read", "Wait for a run to end.", {200: records.Run},
        query=WaitQuery, patient=True,
    ),
)  # fmt: skip
