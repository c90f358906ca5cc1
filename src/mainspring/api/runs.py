"""Runs: submitted one by one or in batches, looked at, listed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

import msgspec

from mainspring.api import shapes
from mainspring.api.audit import note
from mainspring.api.bodies import BatchBody, DeadQuery, RunBody, RunQuery
from mainspring.api.decoding import Given, given_of
from mainspring.api.drafts import encode_work
from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.paging import limit_of, page, read_cursor
from mainspring.api.problems import MOST_FAULTS, Fault, Wrong, nothing_wrong
from mainspring.api.reading import COMMANDS, Work, read_run_options, read_work, settle_names
from mainspring.core.ids import encode_time
from mainspring.core.instants import Instant, parse_instant
from mainspring.core.model import NewRun, Run
from mainspring.core.states import FAILED, PENDING
from mainspring.errors import InvalidInput, PayloadTooLarge
from mainspring.lookup import explain_run
from mainspring.options import Defaults
from mainspring.store import RunFilter
from mainspring.task import Recipe, make_recipe
from mainspring.views import run_view

_encode = msgspec.json.Encoder().encode


def _recipe(call: Call, given: Given, wrong: Wrong) -> tuple[Recipe | None, Work]:
    """What runs of these fields have in common, and the work of this one; None, and the faults noted, if wrong."""
    named = settle_names(given, wrong)
    work = read_work(named, wrong)
    values = read_run_options(named, wrong)
    if wrong.faults:
        return None, work
    task = call.desk.app.tasks.get(work.task)
    try:
        return make_recipe(work.task, task.defaults if task else Defaults(), values), work
    except InvalidInput as error:
        wrong.take(error)
        return None, work


def draft_run(call: Call, given: Given, wrong: Wrong, run_id: str) -> NewRun:
    """The run that a body describes; Problem names all that is wrong."""
    recipe, work = _recipe(call, given, wrong)
    args = encode_work(call.desk.app, work, wrong)
    wrong.settle()
    assert recipe is not None
    if work.task in COMMANDS:
        call.need("run:command")
    (run,) = recipe.runs([run_id], [args], call.namespace, call.desk.store.now())
    return run


async def submit_run(call: Call) -> Answer:
    """Submit one run: durable once it is answered."""
    desk = call.desk
    (run_id,) = call.stamp.ids(1, desk.app.new_ids)
    run = draft_run(call, call.given, call.wrong, run_id)
    headers = await desk.limits.spend(call.caller.subject, 1, desk.settings.submit_rate)
    await desk.store.submit([run])
    desk.measures.submitted.inc()
    waits = run.after or run.lines
    view = run_view(await desk.store.get_run(call.namespace, run.id) if waits else accepted(run))
    return Answer(201, view, {**headers, "Location": f"/v1/runs/{run.id}"})


def accepted(run: NewRun) -> Run:
    """A run that waits for nothing, as it is just after it was accepted."""
    return Run(
        id=run.id,
        namespace=run.namespace,
        queue=run.queue,
        region=run.region,
        task=run.task,
        args=run.args,
        state=PENDING,
        reason="",
        priority=run.priority,
        due_at=run.due_at,
        created_at=run.created_at,
        options=run.options,
        expires_at=run.expires_at,
        key=run.key,
        retry_of=run.retry_of,
    )


async def submit_batch(call: Call) -> Answer:
    """Submit up to 10000 runs: all are accepted, or none. Each counts as a submission."""
    desk = call.desk
    bodies: Sequence[RunBody] = call.given.get("runs", ())
    runs = _draft_all(call, bodies)
    call.wrong.settle()
    headers = await desk.limits.spend(call.caller.subject, len(runs), desk.settings.submit_rate)
    run_ids = await desk.store.submit(runs)
    desk.measures.submitted.inc(len(runs))
    await note(call, "run.submit_batch", f"runs:{len(runs)}", None, {"count": len(runs), "first": run_ids[0]})
    return Answer(201, {"run_ids": run_ids, "count": len(run_ids)}, headers)


def _draft_all(call: Call, bodies: Sequence[RunBody]) -> list[NewRun]:
    """Runs that differ in their arguments only share what was read of the first of them."""
    ids = call.stamp.ids(len(bodies), call.desk.app.new_ids)
    known: dict[bytes, _Alike] = {}
    limit, tasks = call.desk.settings.payload_limit, call.desk.app.tasks
    for index, body in enumerate(bodies):
        like = _encode(msgspec.structs.replace(body, args=msgspec.UNSET))
        group = known.get(like)
        if group is not None and group.plain:
            text = _encode(body.args if isinstance(body.args, dict) else {})
            if len(text) <= limit:
                group.add(index, ids[index], text.decode())
                continue
        wrong = nothing_wrong()
        recipe, work = _recipe(call, given_of(body), wrong)
        text_of_work = _encoded(call, work, wrong)
        call.wrong.faults.extend(Fault(f"runs[{index}].{each.field}", each.fault, each.remedy) for each in wrong.faults)
        if recipe is None or wrong.faults:
            if len(call.wrong.faults) >= MOST_FAULTS:
                break
            continue
        if work.task in COMMANDS:
            call.need("run:command")
        plain = work.task not in tasks and work.task != "command"
        known.setdefault(like, _Alike(recipe, plain)).add(index, ids[index], text_of_work)
    return _in_order(known.values(), call.namespace, call.desk.store.now())


class _Alike:
    """Runs that have all but their arguments in common."""

    def __init__(self, recipe: Recipe, plain: bool) -> None:
        self.recipe = recipe
        self.plain = plain
        """Whether any arguments will do."""
        self.places: list[int] = []
        self.ids: list[str] = []
        self.texts: list[str] = []

    def add(self, place: int, run_id: str, text: str) -> None:
        self.places.append(place)
        self.ids.append(run_id)
        self.texts.append(text)


def _in_order(groups: Iterable[_Alike], namespace: str, now: Instant) -> list[NewRun]:
    made = [
        (place, run)
        for group in groups
        for place, run in zip(group.places, group.recipe.runs(group.ids, group.texts, namespace, now), strict=True)
    ]
    made.sort(key=itemgetter(0))
    return [run for _, run in made]


def _encoded(call: Call, work: Work, wrong: Wrong) -> str:
    try:
        return encode_work(call.desk.app, work, wrong)
    except PayloadTooLarge as error:
        wrong.take(error)
        return "{}"


async def get_run(call: Call) -> Answer:
    """A run, and what keeps it from running."""
    run = await call.desk.store.get_run(call.namespace, call.named("run_id"))
    return Answer(200, {**run_view(run), "why": await explain_run(call.desk.app, run)})


async def list_runs(call: Call) -> Answer:
    """Runs, newest first."""
    query = call.query
    return await _list(call, tuple(query.get("state", ())))


async def list_dead(call: Call) -> Answer:
    """The dead-letter list: runs that failed and are not tried again by themselves, newest first."""
    return await _list(call, (FAILED,))


async def _list(call: Call, states: tuple[str, ...]) -> Answer:
    query, limit = call.query, limit_of(call.query)
    before = read_cursor(query)
    if "until" in query:
        bound = encode_time(parse_instant(query["until"], "until"))
        before = bound if before is None else min(before, bound)
    oldest = encode_time(parse_instant(query["since"], "since")) if "since" in query else ""
    words = {name: query[name] for name in ("job", "task", "tag") if name in query}
    where = RunFilter(call.namespace, states, before=before, limit=limit + 1, **words)  # type: ignore[arg-type]
    runs = await call.desk.store.list_runs(where)
    fresh = [run for run in runs if run.id >= oldest]
    following = fresh[limit - 1].id if len(fresh) > limit else None
    return page([run_view(run) for run in fresh[:limit]], following)


EXAMPLE = {"task": "encode", "args": {"video": "v1", "size": "4K"}, "priority": 2}

ENDPOINTS = (
    Endpoint(
        "POST", "/v1/runs", submit_run, "runs:submit", "Submit a run.", {201: shapes.Run}, RunBody,
        problems=(409, 429), example=EXAMPLE, description="A command needs the permission run:command.",
    ),
    Endpoint(
        "POST", "/v1/runs:batch", submit_batch, "runs:submit", "Submit many runs, all or none.", {201: shapes.Batch},
        BatchBody, problems=(409, 429), example={"runs": [EXAMPLE]},
    ),
    Endpoint(
        "GET", "/v1/runs", list_runs, "runs:read", "List runs.", {200: shapes.Page[shapes.Run]}, query=RunQuery,
    ),
    Endpoint(
        "GET", "/v1/dead-letters", list_dead, "runs:read", "List runs that failed for good.",
        {200: shapes.Page[shapes.Run]}, query=DeadQuery,
    ),
    Endpoint("GET", "/v1/runs/{run_id}", get_run, "runs:read", "Look at a run.", {200: shapes.RunStory}),
)  # fmt: skip
