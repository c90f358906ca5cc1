"""Submissions over HTTP: one run, many runs, a run in the words of other schedulers; and graphs, which are batches in
which runs wait for other runs of the batch, named by their places (`#0`)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from operator import itemgetter
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.problems import MOST_FAULTS, Fault, Wrong, nothing_wrong
from mainspring.api.resources.acting import Acting
from mainspring.api.schemas.bodies import BatchBody, RunBody, ScheduleBody
from mainspring.api.schemas.definitions import encode_work, learn_tasks, names_secret, need_command, need_secrets
from mainspring.api.schemas.reading import COMMANDS, TaskCall, read_run_options, read_work, settle_names
from mainspring.api.wire.decoding import Given, given_of
from mainspring.core.instants import Instant, parse_instant
from mainspring.core.model import PROVIDED_TASKS, NewRun
from mainspring.core.schedules.triggers import AtTrigger, check_not_past
from mainspring.errors import InvalidInput, PayloadTooLarge
from mainspring.operations import records
from mainspring.operations.jobs.options import read_defaults
from mainspring.operations.submission import Recipe, make_recipe
from mainspring.operations.values.payload import Signature
from mainspring.sdk.graph import GROUP

AnyRecord = TypeVar("AnyRecord", records.NewRun, records.ScheduledRun, records.Batch)

AT_ONCE = 100
"""How many kinds of runs of a batch are read before other requests get their turn."""
_MARK = "#"
"""The name of a run of the same batch begins so; its place follows, counted from 0."""
_GRAPH_FIELDS = ("after", "dependencies")
_encode = msgspec.json.Encoder().encode
replace = msgspec.structs.replace


async def submit_run(request: Request) -> Response:
    """Submit one run: durable once it is answered."""
    acting = Acting(request)
    run = await _submit(request, acting)
    return Response(201, run, {**acting.headers, "Location": f"/v1/runs/{run.run_id}"})


async def _submit(request: Request, acting: Acting) -> records.NewRun:
    await learn_tasks(request, [request.given])
    recipe, work = _read(request, request.given, request.wrong)
    args = encode_work(request.context, work, request.wrong)
    request.wrong.settle()
    assert recipe is not None
    _check_allowed(request, work, args)
    run = await acting.runs.accept(recipe, args)
    return await _with_warnings(request, run, [run.task])


async def _with_warnings(request: Request, made: AnyRecord, tasks: Iterable[str]) -> AnyRecord:
    """What was made, with a warning for each task that no live worker knows."""
    warnings = await request.context.tasks.warn(request.namespace, tasks)
    return replace(made, warnings=warnings) if warnings else made


async def schedule_run(request: Request) -> Response:
    """Submit one run for an instant, in the words of other schedulers: `type` is a task, `payload` its arguments. The
    `job_id` of the answer is the run's id, and names it wherever a job is reported on."""
    if "executeAt" in request.given:
        try:
            check_not_past(
                AtTrigger(parse_instant(request.given["executeAt"], "executeAt")), request.context.store.now()
            )
        except InvalidInput as error:
            request.wrong.add("executeAt", error.problem, error.remedy)
            request.wrong.settle()
    acting = Acting(request)
    run = await _submit(request, acting)
    fields: dict[str, Any] = {**msgspec.structs.asdict(run), "job_id": run.run_id, "status": "scheduled"}
    return Response(201, records.ScheduledRun(**fields), {**acting.headers, "Location": f"/v1/runs/{run.run_id}"})


async def submit_batch(request: Request) -> Response:
    """Submit up to 10000 runs: all are accepted, or none. Each counts as a submission. Runs that wait for others of the
    batch make it a graph, whose runs share a tag."""
    acting = Acting(request)
    bodies: Sequence[RunBody] = request.given.get("runs", ())
    await learn_tasks(request, [{"task": task} for task in {body.task for body in bodies}])
    ids = acting.context.new_ids(len(bodies))
    tag = _connect_graph(bodies, ids, request.wrong)
    runs = await _draft_all(request, ids, bodies)
    request.wrong.settle()
    run_ids = [*await acting.runs.accept_all(runs)]
    made = records.Batch(run_ids, len(run_ids), tag=tag or msgspec.UNSET)
    batch = await _with_warnings(request, made, {run.task for run in runs})
    return Response(201, batch, acting.headers)


def _read(request: Request, given: Given, wrong: Wrong) -> tuple[Recipe | None, TaskCall]:
    """What runs of these fields have in common, and the work of this one; None, and the faults noted, if wrong."""
    named = settle_names(given, wrong)
    if "dependencies" in named:
        if "after" in named:
            wrong.add("dependencies", "is given together with after", "give one of them")
        named["after"] = named.pop("dependencies")
        wrong.names["after"] = "dependencies"
    work = read_work(named, wrong)
    values = read_run_options(named, wrong)
    if wrong.faults:
        return None, work
    app = request.context.app
    task = app.tasks.get(work.task)
    usual = task.defaults if task else app.known_tasks.defaults(request.namespace, work.task, values)
    try:
        if "alert" in values or "isolation" in values:
            need_command(request, work.task, read_defaults(values, usual).options, usual.options)
        now = request.context.store.now() if "at" in values else None
        return make_recipe(work.task, usual, values, subject=request.caller.subject, now=now), work
    except InvalidInput as error:
        wrong.take(error)
        return None, work


def _check_allowed(request: Request, work: TaskCall, args: str) -> None:
    """Problem if the caller may not run commands, and this is one or could reveal a secret."""
    if work.task in COMMANDS:
        request.need("run:command")
    need_secrets(request, args)


async def _draft_all(request: Request, ids: Sequence[str], bodies: Sequence[RunBody]) -> list[NewRun]:
    """Runs that differ in their arguments only share what was read of the first of them."""
    known: dict[bytes, _Alike] = {}
    limit = request.context.settings.payload_limit
    last: RunBody | None = None
    group: _Alike | None = None
    for index, body in enumerate(bodies):
        args, body.args = body.args, msgspec.UNSET
        if last is None or body != last:
            last, group = body, known.get(_encode(body))
        if group is not None and (text := group.encode(args if isinstance(args, dict) else {}, limit)) is not None:
            group.add(index, ids[index], text)
            continue
        if len(known) % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        drafted = _draft_one(request, {**given_of(body), "args": args}, index)
        if drafted is not None:
            group = known.setdefault(_encode(body), drafted[0])
            group.add(index, ids[index], drafted[1])
        elif len(request.wrong.faults) >= MOST_FAULTS:
            break
    return await _in_order(list(known.values()), request.namespace, request.context.store.now())


def _draft_one(request: Request, given: Given, index: int) -> tuple[_Alike, str] | None:
    """What a run of a batch comes to, and its arguments; None, and the faults noted, if it is wrong."""
    wrong = nothing_wrong()
    recipe, work = _read(request, {name: value for name, value in given.items() if value is not msgspec.UNSET}, wrong)
    try:
        text = encode_work(request.context, work, wrong)
    except PayloadTooLarge as error:
        wrong.take(error)
        text = "{}"
    request.wrong.faults.extend(Fault(f"runs[{index}].{each.field}", each.fault, each.remedy) for each in wrong.faults)
    if recipe is None or wrong.faults:
        return None
    _check_allowed(request, work, text)
    task = request.context.app.tasks.get(work.task)
    return _Alike(recipe, None if task is None else task.signature), text


class _Alike:
    """Runs that have everything but their arguments in common."""

    def __init__(self, recipe: Recipe, signature: Signature | None) -> None:
        self.recipe = recipe
        self._signature = signature
        """What arguments have to fit, if the program registers the task."""
        self.places: list[int] = []
        self.ids: list[str] = []
        self.texts: list[str] = []

    def encode(self, args: dict[str, Any], limit: int) -> str | None:
        """Arguments as they are stored; None if they have to be checked one by one."""
        if self.recipe.model.task in PROVIDED_TASKS:
            return None
        if self._signature is None:
            encoded = _encode(args)
            text = encoded.decode() if len(encoded) <= limit else None
        else:
            try:
                text = self._signature.encode((), args, limit)
            except InvalidInput:
                return None
        return None if text is None or names_secret(text) else text

    def add(self, place: int, run_id: str, text: str) -> None:
        self.places.append(place)
        self.ids.append(run_id)
        self.texts.append(text)


async def _in_order(groups: Sequence[_Alike], namespace: str, now: Instant) -> list[NewRun]:
    """The runs of all groups, in the order of the batch."""
    if len(groups) == 1:
        return groups[0].recipe.runs(groups[0].ids, groups[0].texts, namespace, now)
    made: list[tuple[int, NewRun]] = []
    for index, group in enumerate(groups):
        if index % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        made += zip(group.places, group.recipe.runs(group.ids, group.texts, namespace, now), strict=True)
    made.sort(key=itemgetter(0))
    return [run for _, run in made]


EXAMPLE = {"task": "encode", "args": {"video": "v1", "size": "4K"}, "priority": 2}


def _connect_graph(bodies: Sequence[Any], ids: Sequence[str], wrong: Wrong) -> str | None:
    """Put ids in the place of names like `#0`. The tag that all runs of the graph now have; None if the batch is no
    graph: no run of it waits for another one."""
    named = [
        (index, body)
        for index, body in enumerate(bodies)
        if any(_names_earlier(body, field) for field in _GRAPH_FIELDS)
    ]
    if not named:
        return None
    for index, body in named:
        for field in _GRAPH_FIELDS:
            if _names_earlier(body, field):
                place = f"runs[{index}].{field}"
                setattr(body, field, [_id_of(each, ids[:index], place, wrong) for each in getattr(body, field)])
    tag = GROUP + ids[0]
    for index, body in enumerate(bodies):
        if body.unique not in (UNSET, None):
            wrong.add(f"runs[{index}].unique", "is that of one run, and this one is part of a graph", "leave it out")
        body.tags = [*(body.tags or ()), tag]
    return tag


def _names_earlier(body: RunBody, field: str) -> bool:
    """Whether a run waits for one of the same batch."""
    return any(each.startswith(_MARK) for each in getattr(body, field) or ())


def _id_of(name: str, earlier: Sequence[str], field: str, wrong: Wrong) -> str:
    """The id of a run that comes earlier in the batch; a name without the mark is an id already."""
    if not name.startswith(_MARK):
        return name
    place = name.removeprefix(_MARK)
    if place.isascii() and place.isdecimal() and len(place) < 6 and int(place) < len(earlier):
        return earlier[int(place)]
    wrong.add(field, f"names {name}, which is no earlier run of the batch", "name runs from #0 up to the one before")
    return name


ENDPOINTS = (
    Endpoint(
        "POST", "/v1/runs", submit_run, "runs:submit", "Submit a run.", {201: records.NewRun}, RunBody,
        problems=(409, 429), example=EXAMPLE, description="A command needs the permission run:command.", grows=True,
    ),
    Endpoint(
        "POST", "/v1/runs:batch", submit_batch, "runs:submit", "Submit many runs, all or none.", {201: records.Batch},
        BatchBody, problems=(409, 429), example={"runs": [EXAMPLE, {"task": "publish", "after": ["#0"]}]}, grows=True,
        description="`after` names earlier runs of the batch by their places, from `#0` on. Such a batch is a graph: "
        "its runs have the `tag` of the answer.",
    ),
    Endpoint(
        "POST", "/api/jobs/schedule", schedule_run, "runs:submit", "Submit a run for an instant.",
        {201: records.ScheduledRun}, ScheduleBody, problems=(409, 429), grows=True,
        example={"type": "payout", "priority": 1, "executeAt": "2030-03-04T09:00:00Z", "payload": {"driver": "d7"}},
    ),
)  # fmt: skip
