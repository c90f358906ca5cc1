"""Runs: submitted one by one or in batches, looked at, listed."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import msgspec

from mainspring.api.decoding import Given, given_of
from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.problems import MOST_FAULTS, Fault, Wrong, nothing_wrong
from mainspring.api.resources.audit import audit_of
from mainspring.api.schemas.bodies import BatchBody, PlainBatch, PlainRun, RunBody, ScheduleBody
from mainspring.api.schemas.definitions import encode_work, learn_tasks, names_secret, need_command, need_secrets
from mainspring.api.schemas.forms import Form, accepted
from mainspring.api.schemas.paging import limit_of, page, read_cursor
from mainspring.api.schemas.queries import DeadQuery, RunQuery
from mainspring.api.schemas.reading import COMMANDS, Work, read_run_options, read_work, settle_names
from mainspring.core.ids import encode_time
from mainspring.core.instants import Instant, parse_instant
from mainspring.core.model import PROVIDED_TASKS, NewRun
from mainspring.core.schedules.triggers import AtTrigger, check_not_past
from mainspring.core.states import FAILED, State
from mainspring.errors import InvalidInput, PayloadTooLarge
from mainspring.operations import records
from mainspring.operations.explain import explain_run, find_ids
from mainspring.operations.options import read_defaults
from mainspring.operations.payload import Signature
from mainspring.operations.views import View, run_view
from mainspring.sdk.task import Recipe, make_recipe, marked
from mainspring.store import RunFilter

AT_ONCE = 100
"""So many kinds of runs of a batch are read without a look at what else there is to do."""
_encode = msgspec.json.Encoder().encode
replace = msgspec.structs.replace
_SAID = '"said":'
"""What the options of a run have if they are to be filled in by its worker."""


def _recipe(call: Call, given: Given, wrong: Wrong) -> tuple[Recipe | None, Work]:
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
    task = call.desk.app.tasks.get(work.task)
    usual = task.defaults if task else call.desk.app.known_tasks.defaults(call.namespace, work.task, values)
    try:
        if "alert" in values or "isolation" in values:
            need_command(call, work.task, read_defaults(values, usual).options, usual.options)
        recipe = make_recipe(work.task, usual, values)
        recipe.run("", "{}", call.namespace, call.desk.store.now())  # Refused here if its instant has passed.
        return made_by(call.caller.subject, recipe), work
    except InvalidInput as error:
        wrong.take(error)
        return None, work


def made_by(subject: str, recipe: Recipe) -> Recipe:
    """A recipe for runs that say who submitted them."""
    return replace(recipe, model=replace(recipe.model, options=marked(recipe.model.options, subject)))


def draft_run(call: Call, given: Given, wrong: Wrong, run_id: str) -> NewRun:
    """The run that a body describes; Problem names all that is wrong."""
    recipe, work = _recipe(call, given, wrong)
    args = encode_work(call.desk.app, work, wrong)
    wrong.settle()
    assert recipe is not None
    need_secrets(call, args)
    if work.task in COMMANDS:
        call.need("run:command")
    elif (
        not (recipe.model.lines or recipe.model.after)
        and _SAID not in recipe.model.options  # More may be known of the task the next time.
        and (key := call.desk.forms.key(call.caller.subject, given)) is not None
    ):
        call.desk.forms.keep(key, Form(recipe))
    return recipe.run(run_id, args, call.namespace, call.desk.store.now())


async def submit_run(call: Call) -> Answer:
    """Submit one run: durable once it is answered."""
    desk = call.desk
    key = None if call.wrong.faults else desk.forms.key(call.caller.subject, call.given)
    form = None if key is None else desk.forms.find(key)
    if form is None:
        await learn_tasks(call, [call.given])
    run = _like_before(call, form) if form is not None else draft_run(call, call.given, call.wrong, _run_id(call))
    headers = await call.spend(1)
    await desk.store.submit([replace(run, noted_for=call.caller.subject, request_id=call.request_id)])
    headers["Location"] = f"/v1/runs/{run.id}"
    warnings = await desk.tasks.warn(call.namespace, [run.task])
    if form is not None:
        return Answer(201, form.answer(run, warnings), headers)
    waits = run.after or run.lines
    view = run_view(await desk.store.get_run(call.namespace, run.id) if waits else accepted(run))
    return Answer(201, with_warnings(view, warnings), headers)


def with_warnings(view: View, warnings: Sequence[str]) -> View:
    """What was made, and what its maker may not have meant, if there is anything."""
    return {**view, "warnings": warnings} if warnings else view


async def schedule_run(call: Call) -> Answer:
    """Submit one run for an instant, in the words of other schedulers: `type` is a task, `payload` its arguments. The
    `job_id` of the answer is the run's id, and names it wherever a job is reported on."""
    if "executeAt" in call.given:
        try:
            check_not_past(AtTrigger(parse_instant(call.given["executeAt"], "executeAt")), call.desk.store.now())
        except InvalidInput as error:
            call.wrong.add("executeAt", error.problem, error.remedy)
            call.wrong.settle()
    answer = await submit_run(call)
    view = msgspec.json.decode(answer.encode(), type=dict[str, Any])
    return answer._replace(body={**view, "job_id": view["run_id"], "status": "scheduled"})


def _run_id(call: Call) -> str:
    return call.desk.app.new_id() if call.stamp.key is None else call.stamp.ids(1, call.desk.app.new_ids)[0]


def _like_before(call: Call, form: Form) -> NewRun:
    """A run of a form that is known: only its arguments are looked at."""
    text = encode_work(call.desk.app, Work(form.recipe.model.task, call.given.get("args") or {}), call.wrong)
    call.wrong.settle()
    need_secrets(call, text)
    return form.recipe.run(_run_id(call), text, call.namespace, call.desk.store.now())


async def submit_batch(call: Call) -> Answer:
    """Submit up to 10000 runs: all are accepted, or none. Each counts as a submission."""
    bodies: Sequence[RunBody | PlainRun] = call.given.get("runs", ())
    await learn_tasks(call, [{"task": task} for task in {body.task for body in bodies}])
    runs = await _draft_all(call, bodies)
    call.wrong.settle()
    headers = await call.spend(len(runs))
    told = {"count": len(runs), "first": runs[0].id, "last": runs[-1].id}
    audit = audit_of(call, "run.submit_batch", f"runs:{len(runs)}", None, lambda _: told)
    run_ids = await call.desk.store.submit(runs, audit=audit)
    warnings = await call.desk.tasks.warn(call.namespace, {run.task for run in runs})
    return Answer(201, with_warnings({"run_ids": run_ids, "count": len(run_ids)}, warnings), headers)


async def _draft_all(call: Call, bodies: Sequence[RunBody | PlainRun]) -> list[NewRun]:
    """Runs that differ in their arguments only share what was read of the first of them."""
    ids = call.stamp.ids(len(bodies), call.desk.app.new_ids)
    known: dict[bytes, _Alike] = {}
    limit = call.desk.settings.payload_limit
    last: RunBody | PlainRun | None = None
    group: _Alike | None = None
    for index, body in enumerate(bodies):
        args, body.args = body.args, msgspec.UNSET
        if last is None or body != last:
            last, group = body, known.get(_encode(body))
        if group is not None and (text := group.encode(args if isinstance(args, dict) else {}, limit)) is not None:
            group.add(index, ids[index], text)
            continue
        if len(known) % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)  # Runs that have little in common take long: others want to be served, too.
        drafted = _draft_one(call, {**given_of(body), "args": args}, index)
        if drafted is not None:
            group = known.setdefault(_encode(body), drafted[0])
            group.add(index, ids[index], drafted[1])
        elif len(call.wrong.faults) >= MOST_FAULTS:
            break
    return await _in_order(list(known.values()), call.namespace, call.desk.store.now())


def _draft_one(call: Call, given: Given, index: int) -> tuple[_Alike, str] | None:
    """What a run of a batch comes to, and its arguments; None, and the faults noted, if it is wrong."""
    wrong = nothing_wrong()
    recipe, work = _recipe(call, {name: value for name, value in given.items() if value is not msgspec.UNSET}, wrong)
    text = _encoded(call, work, wrong)
    call.wrong.faults.extend(Fault(f"runs[{index}].{each.field}", each.fault, each.remedy) for each in wrong.faults)
    if recipe is None or wrong.faults:
        return None
    if work.task in COMMANDS:
        call.need("run:command")
    need_secrets(call, text)
    task = call.desk.app.tasks.get(work.task)
    return _Alike(recipe, None if task is None else task.signature), text


class _Alike:
    """Runs that have all but their arguments in common."""

    def __init__(self, recipe: Recipe, signature: Signature | None) -> None:
        self.recipe = recipe
        self._signature = signature
        """What arguments have to fit, if the task is known here."""
        self.places: list[int] = []
        self.ids: list[str] = []
        self.texts: list[str] = []

    def encode(self, args: dict[str, Any], limit: int) -> str | None:
        """Arguments as they are stored; None if they have to be looked at more closely."""
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
    if len(groups) == 1:
        return groups[0].recipe.runs(groups[0].ids, groups[0].texts, namespace, now)
    made: list[tuple[int, NewRun]] = []
    for index, group in enumerate(groups):
        if index % AT_ONCE == AT_ONCE - 1:
            await asyncio.sleep(0)
        made += zip(group.places, group.recipe.runs(group.ids, group.texts, namespace, now), strict=True)
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
    if "id" in query:
        return await _list_known(call, query["id"], limit_of(query))
    return await _list(call, tuple(query.get("state", ())))


async def _list_known(call: Call, part: str, limit: int) -> Answer:
    """Those few of which somebody knows a part of the id; other filters do not narrow them."""
    store = call.desk.store
    found = await find_ids(store, call.namespace, part, limit)
    return page([run_view(await store.get_run(call.namespace, each)) for each in found], None)


async def list_dead(call: Call) -> Answer:
    """The dead-letter list: runs that failed and are not tried again by themselves, newest first."""
    return await _list(call, (FAILED,))


async def _list(call: Call, states: tuple[State, ...]) -> Answer:
    query, limit = call.query, limit_of(call.query)
    before = read_cursor(query)
    if "until" in query:
        bound = encode_time(parse_instant(query["until"], "until"))
        before = bound if before is None else min(before, bound)
    since = encode_time(parse_instant(query["since"], "since")) if "since" in query else None
    narrowed = {name: query.get(name) for name in ("job", "task", "tag", "queue", "worker")}
    where = RunFilter(call.namespace, states, before=before, limit=limit + 1, since=since, **narrowed)
    runs = await call.desk.store.list_runs(where)
    following = runs[limit - 1].id if len(runs) > limit else None
    return page([run_view(run) for run in runs[:limit]], following)


EXAMPLE = {"task": "encode", "args": {"video": "v1", "size": "4K"}, "priority": 2}

ENDPOINTS = (
    Endpoint(
        "POST", "/v1/runs", submit_run, "runs:submit", "Submit a run.", {201: records.NewRun}, RunBody,
        problems=(409, 429), example=EXAMPLE, description="A command needs the permission run:command.", grows=True,
    ),
    Endpoint(
        "POST", "/v1/runs:batch", submit_batch, "runs:submit", "Submit many runs, all or none.", {201: records.Batch},
        BatchBody, PlainBatch, problems=(409, 429), example={"runs": [EXAMPLE]}, grows=True,
    ),
    Endpoint(
        "POST", "/api/jobs/schedule", schedule_run, "runs:submit", "Submit a run for an instant.",
        {201: records.ScheduledRun}, ScheduleBody, problems=(409, 429), grows=True,
        example={"type": "payout", "priority": 1, "executeAt": "2030-03-04T09:00:00Z", "payload": {"driver": "d7"}},
    ),
    Endpoint(
        "GET", "/v1/runs", list_runs, "runs:read", "List runs.", {200: records.Page[records.Run]}, query=RunQuery,
        history=True,
    ),
    Endpoint(
        "GET", "/v1/dead-letters", list_dead, "runs:read", "List runs that failed for good.",
        {200: records.Page[records.Run]}, query=DeadQuery, history=True,
    ),
    Endpoint("GET", "/v1/runs/{run_id}", get_run, "runs:read", "Look at a run.", {200: records.RunStory}),
)  # fmt: skip
