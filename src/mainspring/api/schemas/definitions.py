"""From bodies to jobs, new ones or in place of stored ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from mainspring.api.endpoint import Request
from mainspring.api.problems import Fault, Wrong
from mainspring.api.schemas.reading import (
    COMMANDS,
    TRIGGER_WORDS,
    TaskCall,
    merge,
    note_fault,
    read_options,
    read_trigger,
    read_work,
    read_zone,
    rename_aliases,
    settle_dependencies,
    settle_names,
)
from mainspring.api.wire.decoding import Given, convert
from mainspring.core.model import Job, JobPolicy, RunOptions
from mainspring.core.planning.firing_limits import check_firings
from mainspring.core.schedules.triggers import check_not_past
from mainspring.core.tasks.specs import SECRET, SPECS, check_spec, without_secrets
from mainspring.errors import InvalidInput, PayloadTooLarge
from mainspring.operations.jobs.definitions import define
from mainspring.operations.jobs.options import Defaults, JobWords, Values, check_name, read_defaults, read_policy

if TYPE_CHECKING:
    from mainspring.api.context import ApiContext

MOST_LEARNED = 20
"""How many tasks a request may have looked up: callers choose the names, and each costs a query."""

_SECRET = f'"{SECRET}"'
_TIMED = ("schedule", "cron", "every", "run_at", "at", "manual")
_KINDS = ("schedule", "cron", "every", "run_at", "at", "after", "manual")


def read_job(request: Request, given: Given, wrong: Wrong, stored: Job | None, *, past: bool = False) -> Job:
    """The job that a body describes, new or in place of a stored one; Problem names all that is wrong.

    Unless the `past` is no matter, a trigger that is new must be due after now.
    """
    context = request.context
    named = settle_names(given, wrong)
    settle_dependencies(named, wrong)
    if "name" in named:
        note_fault(wrong, check_name, "name", named["name"])
    work, zone = read_work(named, wrong), read_zone(named, wrong)
    trigger = read_trigger(named, zone, None, wrong)
    now = context.store.now()
    if not past and (stored is None or trigger != stored.trigger):
        note_fault(wrong, check_not_past, trigger, now)
    values = read_options(named, JobWords, zone, wrong)
    policy = note_fault(wrong, read_policy, values) or JobPolicy()
    task = context.app.tasks.get(work.task)
    args = encode_work(context, work, wrong)
    wrong.settle()
    usual = task.defaults if task else _usual(request, work.task, values, stored, declared=past)
    execution = read_defaults(values, usual)
    need_command(request, work.task, execution.options, (stored or usual).options)
    need_secrets(request, args)
    base = stored or Job("", named["name"], work.task, trigger, request.namespace, created_at=now, origin="api")
    job = define(base, trigger, work.task, args, execution, policy, values.get("key"), now)
    note_fault(wrong, check_firings, job, context.settings.firing_rate_of(job.namespace))
    wrong.settle()
    return job


async def learn_tasks(request: Request, bodies: Iterable[Given]) -> None:
    """Look up what workers announced of the tasks that bodies name, before those are read. Of many tasks the first:
    workers fill in the options of the others when they claim their runs."""
    app = request.context.app
    named = {task for body in bodies if isinstance(task := body.get("task") or body.get("type"), str)}
    # An invalid name is refused later, with all other faults.
    foreign = [task for task in sorted(named - app.tasks.keys()) if task.isprintable()]
    for task in foreign[:MOST_LEARNED]:
        await app.known_tasks.learn(request.context.store, request.namespace, task, app.clock.monotonic())


def _usual(request: Request, task: str, values: Values, stored: Job | None, *, declared: bool) -> Defaults:
    """How runs of a task that is not known here are executed: as its workers announced. What code declares is
    complete, and so is a stored job that was."""
    if declared or (stored is not None and stored.options.said is None):
        return Defaults()
    said = {*values, *((stored.options.said or ()) if stored is not None else ())}
    return request.context.app.known_tasks.defaults(request.namespace, task, said)


def need_command(request: Request, task: str, wanted: RunOptions, had: RunOptions) -> None:
    """Refuse commands to a caller without run:command: as a task, as an alert, or by weakening the isolation of
    work."""
    alerted = wanted.alert not in (None, had.alert) and (wanted.alert or "").startswith("$")
    if task in COMMANDS or alerted or wanted.isolation != had.isolation:
        request.need("run:command")


def need_secrets(request: Request, args: str) -> None:
    """Refuse a caller without run:command if the stored arguments refer to a secret of the worker: the author of the
    arguments could send the secret anywhere."""
    if names_secret(args):
        request.need("run:command")


def names_secret(args: str) -> bool:
    """Whether there may be a reference to a secret. None is missed, because stored arguments are encoded here."""
    return _SECRET in args


def encode_work(context: ApiContext, work: TaskCall, wrong: Wrong) -> str:
    """The arguments as they are stored, checked against the task's signature where the task is known here."""
    limit = context.settings.payload_limit
    task = context.app.tasks.get(work.task)
    try:
        if task is not None:
            return task.signature.encode((), work.args, limit)
    except PayloadTooLarge:
        raise
    except InvalidInput as error:
        for fault in (task.signature.faults(work.args) if task else ()) or [error]:
            wrong.add(f"args.{fault.field}", fault.problem, fault.remedy)
        return "{}"
    if work.task in SPECS and not _fits(work, wrong):
        return "{}"
    text = msgspec.json.encode(work.args)
    if len(text) > limit:
        remedy = "keep the data elsewhere and pass where it is, or raise the setting payload_limit"
        raise PayloadTooLarge("args", len(text), f"bytes are more than the {limit} of payload_limit", remedy)
    return text.decode()


def _fits(work: TaskCall, wrong: Wrong) -> bool:
    """Whether the arguments fit a task that Mainspring itself provides; every fault is noted."""
    before = len(wrong.faults)
    try:
        faults = convert(without_secrets(work.args), SPECS[work.task])[1].faults
        wrong.faults.extend(Fault(f"args.{each.field}", each.fault, each.remedy) for each in faults)
        if not faults:
            check_spec(work.task, work.args)
    except InvalidInput as error:
        wrong.add("args", error.problem, error.remedy)
    return len(wrong.faults) == before


def merge_change(body: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A body with a change applied. Another kind of trigger or work replaces the old one."""
    base, change = dict(body), rename_aliases(change)
    if "dependencies" in change and "after" in base and not any(change.get(name) for name in _TIMED):
        change = {"after" if name == "dependencies" else name: value for name, value in change.items()}
    new_kinds = [name for name in _KINDS if change.get(name) is not None]
    kind = next((name for name in _KINDS if name in base), None)
    renamed = {"cron": "schedule", "at": "run_at"}
    if new_kinds and renamed.get(new_kinds[0], new_kinds[0]) != kind:
        base = {name: value for name, value in base.items() if name not in TRIGGER_WORDS}
    for alias, name in (*renamed.items(), ("tz", "timezone")):
        if alias in change:
            base.pop(name, None)
    if change.get("command") is not None:
        base.pop("task", None)
        base.pop("args", None)
    elif change.get("task", base.get("task")) != base.get("task"):
        base.pop("args", None)
    if isinstance(change.get("retry"), dict) and "retry" in base:
        change = {**change, "retry": _merge_retry(base["retry"], change["retry"])}
    return merge(base, change)


def _merge_retry(stored: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """Retry delays are replaced together."""
    waits = {"delay", "delays", "factor", "backoff", "policy"}
    old = waits if waits & change.keys() else set()
    old |= {"cap"} if "policy" in change else set()
    return merge({name: value for name, value in stored.items() if name not in old}, change)
