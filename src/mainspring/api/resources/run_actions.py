"""What can be done with runs: cancel, retry, wait; their attempts and what they wrote."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from hashlib import blake2b

from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.resources.audit import audit_of
from mainspring.api.schemas.bodies import ReasonBody, RerunBody
from mainspring.api.schemas.queries import LogQuery, WaitQuery
from mainspring.api.streaming import SSE, beats, sse
from mainspring.core.ids import encode_bits, encode_time
from mainspring.core.instants import SECOND, parse_duration
from mainspring.core.model import LogLine, NewRun, Run
from mainspring.core.planning.plans import make_runs
from mainspring.core.states import FAILED, FINAL, SUCCEEDED
from mainspring.errors import Conflict, NotFound
from mainspring.operations import records
from mainspring.operations.explain import note_run
from mainspring.operations.views import View, attempt_view, log_view, run_view
from mainspring.sdk.task import repeat_run
from mainspring.store import RunFilter, Store

LONGEST_WAIT_S = 300.0
PAGE = 1_000
RERUN_PAGE = 500


async def _run(call: Call) -> Run:
    return await call.desk.store.get_run(call.namespace, call.named("run_id"))


async def cancel_run(call: Call) -> Answer:
    """Cancel a run that waits, or ask a running one to stop: then its state stays `running` until it has."""
    call.wrong.settle()
    run = await _run(call)
    reason = call.given.get("reason") or f"cancelled by {call.caller.subject}"
    audit = audit_of(
        call, "run.cancel", f"run:{run.id}", {"state": run.state}, lambda state: {"state": state, "reason": reason}
    )
    state = await call.desk.store.request_cancel(call.namespace, run.id, reason, audit=audit)
    return Answer(200, {"run_id": run.id, "state": state})


async def retry_run(call: Call) -> Answer:
    """Try once more what has ended without success: as a new run of the same work."""
    call.wrong.settle()
    desk = call.desk
    old = await _run(call)
    check_repeatable(old)
    headers = await call.spend(1)
    (run_id,) = call.stamp.ids(1, desk.app.new_ids)
    again = await _again(call, old, run_id)
    audit = audit_of(call, "run.retry", f"run:{old.id}", {"state": old.state}, lambda _: {"retried_as": run_id})
    await desk.store.submit([again], audit=audit)
    await note_run(desk.store, old, run_id, call.given.get("reason", ""))
    view = run_view(await desk.store.get_run(call.namespace, run_id))
    return Answer(201, view, {**headers, "Location": f"/v1/runs/{run_id}"})


def check_repeatable(run: Run) -> None:
    """Refuse to retry what has not ended, or has succeeded."""
    if run.state not in FINAL:
        raise Conflict(f"run {run.id} is {run.state}: wait for its end, or cancel it, before you retry it")
    if run.state == SUCCEEDED:
        raise Conflict(f"run {run.id} has succeeded: to do its work again, submit the task again")


async def _again(call: Call, old: Run, run_id: str) -> NewRun:
    store = call.desk.store
    task = call.desk.app.tasks.get(old.task)
    limit = task.defaults.limit if task else None
    return repeat_run(old, run_id, store.now(), await _twin(store, old), limit, call.caller.subject)


async def _twin(store: Store, run: Run) -> NewRun | None:
    """The run as its job, if it has one, would make it today."""
    if run.job_id is None or run.fire_at is None:
        return None
    try:
        job = await store.get_job(run.namespace, run.job_id)
    except NotFound:
        return None
    twins = make_runs(job, run.fire_at, store.now())
    return next((twin for twin in twins if (twin.region, twin.idx) == (run.region, run.idx)), None)


async def rerun_dead(call: Call) -> Answer:
    """Run failed runs again: these, or all that a filter fits. Each at most once, however often it is asked for."""
    given = call.given
    selected: dict[str, str] = {name: given[name] for name in ("job", "task", "tag") if name in given}
    if bool(selected) == ("run_ids" in given) and not call.wrong.faults:
        call.wrong.add("run_ids", "is missing" if not selected else "is given together with a filter",
                       "name runs, or select them by job, task or tag")  # fmt: skip
    call.wrong.settle()
    runs, refused = await _chosen(call, selected)
    again = {run.id: _rerun_id(run) for run in runs}
    if runs and not given.get("dry_run", False):
        await call.spend(len(runs))
        audit = audit_of(call, "run.rerun", f"runs:{len(runs)}", None, lambda _: again)
        await call.desk.store.submit([await _again(call, run, again[run.id]) for run in runs], audit=audit)
    return Answer(200, {"count": len(again), "runs": again, "refused": refused})


async def _chosen(call: Call, selected: dict[str, str]) -> tuple[list[Run], dict[str, str]]:
    store, limit = call.desk.store, call.given.get("limit", 1_000)
    runs: list[Run] = []
    refused: dict[str, str] = {}
    for run_id in dict.fromkeys(call.given.get("run_ids", ())):
        try:
            run = await store.get_run(call.namespace, run_id)
            check_repeatable(run)
            runs.append(run)
        except (NotFound, Conflict) as error:
            refused[run_id] = str(error)
    while selected and len(runs) < limit:
        size = min(RERUN_PAGE, limit - len(runs))
        before = runs[-1].id if runs else None
        where = RunFilter(call.namespace, (FAILED,), before=before, limit=size, **selected)
        page = await store.list_runs(where)
        runs += page
        if len(page) < size:
            break
    return runs[:limit], refused


def _rerun_id(run: Run) -> str:
    """Follows from the failed run, so that nobody can rerun it twice."""
    number = int.from_bytes(blake2b(f"rerun\0{run.id}".encode(), digest_size=10).digest(), "big")
    return encode_time(run.finished_at or run.created_at) + encode_bits(number, 16)


async def list_attempts(call: Call) -> Answer:
    """The attempts of a run that have ended, in order."""
    run = await _run(call)
    return Answer(200, {"items": [attempt_view(each) for each in await call.desk.store.list_attempts(run.id)]})


async def wait_run(call: Call) -> Answer:
    """Wait for a run to end, at most five minutes: its state tells whether it has."""
    seconds = min(parse_duration(call.query.get("timeout", "30s"), "timeout") / SECOND, LONGEST_WAIT_S)
    run = await _run(call)
    if run.state not in FINAL:
        await _wait_for_end(call, run.id, seconds)
        run = await call.desk.store.get_run(call.namespace, run.id)
    return Answer(200, run_view(run))


async def _wait_for_end(call: Call, run_id: str, seconds: float) -> None:
    """Until a run has ended, or the server stops, or so long; one look at the store serves all who wait."""
    ended = asyncio.ensure_future(call.desk.app.waiting.until_ended(run_id))
    closing = asyncio.ensure_future(call.desk.waking.until_closing())
    try:
        await asyncio.wait({ended, closing}, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            ended.result()
    finally:
        ended.cancel()
        closing.cancel()


async def list_logs(call: Call) -> Answer:
    """What a run wrote, all attempts together; with `follow`, as server-sent events until it has ended."""
    run, query = await _run(call), call.query
    after = query.get("after", 0)
    if query.get("follow", False):
        resumed = call.headers.get("last-event-id", "")
        after = int(resumed) if resumed.isascii() and resumed.isdecimal() and len(resumed) < 19 else after
        return Answer(200, media_type=SSE, stream=beats(_follow(call, run, after)))
    store = call.desk.store
    if "tail" in query:
        lines = await _tail(store, run, after, query["tail"])
    else:
        lines = await store.list_logs(run.id, after=after, limit=query.get("limit", PAGE))
    return Answer(200, {"items": [_line(*each) for each in lines], "next": lines[-1][0] if lines else after})


def _line(number: int, line: LogLine) -> View:
    return {"number": number, **log_view(line)}


async def _tail(store: Store, run: Run, after: int, count: int) -> list[tuple[int, LogLine]]:
    kept: list[tuple[int, LogLine]] = []
    while page := await store.list_logs(run.id, after=after, limit=PAGE):
        kept = [*kept, *page][-count:]
        after = page[-1][0]
        if len(page) < PAGE:
            break
    return kept


async def _follow(call: Call, run: Run, after: int) -> AsyncIterator[bytes]:
    store, waking = call.desk.store, call.desk.waking
    while not waking.closing:
        # Before the lines: what a run wrote is stored by the time that its end is.
        ended = (await store.get_run(run.namespace, run.id)).state in FINAL
        page = await store.list_logs(run.id, after=after, limit=PAGE)
        for number, line in page:
            yield sse("line", _line(number, line), number)
        after = page[-1][0] if page else after
        if len(page) < PAGE:
            if ended:
                yield sse("end", run_view(await store.get_run(run.namespace, run.id)))
                return
            await call.desk.watching.lines.wait((run.id, after), LONGEST_WAIT_S)


_SELECTED = {"anyOf": [{"required": [name]} for name in ("job", "task", "tag")]}
_CHOSEN = {"oneOf": [{"required": ["run_ids"]}, _SELECTED]}

ENDPOINTS = (
    Endpoint(
        "POST", "/v1/runs/{run_id}/cancel", cancel_run, "runs:control", "Cancel a run.", {200: records.Cancelled},
        ReasonBody, needs_body=False, problems=(409,), example={"reason": "not needed any more"},
    ),
    Endpoint(
        "POST", "/v1/runs/{run_id}/retry", retry_run, "runs:control", "Run it again.", {201: records.Run},
        ReasonBody, needs_body=False, problems=(409, 429), grows=True,
    ),
    Endpoint(
        "POST", "/v1/dead-letters:rerun", rerun_dead, "runs:control", "Run many failed runs again.",
        {200: records.Rerun}, RerunBody, problems=(429,), rule=_CHOSEN, example={"job": "daily-report"}, grows=True,
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
