"""From bodies to jobs, and back: so that a change can be merged into what is stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from mainspring.api.decoding import Given
from mainspring.api.endpoint import Call
from mainspring.api.problems import Wrong
from mainspring.api.reading import (
    COMMANDS,
    Work,
    merge,
    read_options,
    read_trigger,
    read_work,
    read_zone,
    settle_names,
)
from mainspring.app import Mainspring
from mainspring.core.instants import format_duration, format_instant
from mainspring.core.model import Job, JobPolicy
from mainspring.core.retry import Retry
from mainspring.core.triggers import AfterTrigger, AtTrigger, CronTrigger, EveryTrigger, Trigger, check_not_past
from mainspring.errors import InvalidInput, PayloadTooLarge
from mainspring.options import Defaults, JobWords, check_name, read_defaults, read_policy

OWNER = "api"
"""The app that jobs made over HTTP belong to: not one of code, whose sync would call them undeclared."""

_WHEN = ("schedule", "every", "anchor", "run_at", "after", "when", "on_failure", "manual", "timezone", "dialect")
_KINDS = ("schedule", "cron", "every", "run_at", "at", "after", "manual")


def read_job(call: Call, given: Given, wrong: Wrong, stored: Job | None) -> Job:
    """The job that a body describes, new or in place of a stored one; Problem names all that is wrong."""
    desk = call.desk
    named = settle_names(given, wrong)
    if "name" in named:
        _note(wrong, check_name, "name", named["name"])
    work, zone = read_work(named, wrong), read_zone(named, wrong)
    trigger = read_trigger(named, zone, None, wrong)
    now = desk.store.now()
    if stored is None or trigger != stored.trigger:
        _note(wrong, check_not_past, trigger, now)
    values = read_options(named, JobWords, zone, wrong)
    policy = _note(wrong, read_policy, values) or JobPolicy()
    task = desk.app.tasks.get(work.task)
    args = encode_work(desk.app, work, wrong)
    wrong.settle()
    if work.task in COMMANDS:
        call.need("run:command")
    execution = read_defaults(values, task.defaults if task else Defaults())
    old = stored or Job("", named["name"], work.task, trigger, call.namespace, OWNER, created_at=now)
    options = execution.options
    if stored is not None and task is None:
        # What requests cannot say is not taken away by them.
        options = msgspec.structs.replace(options, isolation=stored.options.isolation)
    return msgspec.structs.replace(
        old,
        task=work.task,
        trigger=trigger,
        args=args,
        queue=execution.queue,
        priority=execution.priority,
        key=values.get("key"),
        limit=execution.limit,
        policy=policy,
        options=options,
        updated_at=now,
    )


def _note(wrong: Wrong, read: Any, *values: Any) -> Any:
    try:
        return read(*values)
    except InvalidInput as error:
        wrong.take(error)
        return None


def encode_work(app: Mainspring, work: Work, wrong: Wrong, prefix: str = "") -> str:
    """The arguments as they are stored, checked against the task's signature where the task is known here."""
    limit = app.settings.payload_limit
    task = app.tasks.get(work.task)
    try:
        if task is not None:
            return task.signature.encode((), work.args, limit)
    except PayloadTooLarge:
        raise
    except InvalidInput as error:
        wrong.add(f"{prefix}args.{error.field}", error.problem, error.remedy)
        return "{}"
    if work.task == "command":
        argv = work.args.get("argv")
        if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
            if not wrong.faults:
                wrong.add(f"{prefix}args.argv", "is not a list of words", 'write {"argv": ["program", "argument"]}')
            return "{}"
    text = msgspec.json.encode(work.args)
    if len(text) > limit:
        remedy = "keep the data elsewhere and pass where it is, or raise the setting payload_limit"
        raise PayloadTooLarge("args", len(text), f"bytes are more than the {limit} of payload_limit", remedy)
    return text.decode()


def merge_change(body: Mapping[str, Any], change: Mapping[str, Any]) -> dict[str, Any]:
    """A body with a change put over it. Another kind of trigger or work takes the place of the old one."""
    base = dict(body)
    new_kinds = [name for name in _KINDS if change.get(name) is not None]
    kind = next((name for name in _KINDS if name in base), None)
    renamed = {"cron": "schedule", "at": "run_at"}
    if new_kinds and renamed.get(new_kinds[0], new_kinds[0]) != kind:
        base = {name: value for name, value in base.items() if name not in _WHEN}
    for alias, name in (*renamed.items(), ("tz", "timezone")):
        if alias in change:
            base.pop(name, None)
    if change.get("command") is not None:
        base.pop("task", None)
        base.pop("args", None)
    elif change.get("task", base.get("task")) != base.get("task"):
        base.pop("args", None)
    return merge(base, change)


def body_of(job: Job) -> dict[str, Any]:
    """The body that would make a job as it is."""
    policy = msgspec.structs.asdict(job.policy)
    defaults = msgspec.structs.asdict(JobPolicy())
    body: dict[str, Any] = {
        "name": job.name,
        "task": job.task,
        "args": msgspec.json.decode(job.args),
        "priority": job.priority,
        "queue": job.queue,
        "key": job.key,
        "limit": job.limit,
        "timeout": None if job.options.timeout is None else format_duration(job.options.timeout),
        "retry": _retry_body(job.options.retry),
        "max_losses": job.options.max_losses,
        "on_key_failure": job.options.on_key_failure,
        "tags": list(job.options.tags),
        **_trigger_body(job.trigger),
        **{name: _policy_word(name, value) for name, value in policy.items() if value != defaults[name]},
    }
    return {name: value for name, value in body.items() if value is not None}


def _policy_word(name: str, value: Any) -> Any:
    if name in ("grace", "catch_up_window", "start_deadline", "jitter"):
        return format_duration(value)
    if name in ("start_at", "end_at"):
        return format_instant(value)
    return list(value) if isinstance(value, tuple) else value


def _trigger_body(trigger: Trigger) -> dict[str, Any]:
    match trigger:
        case CronTrigger(expression, tz, dialect):
            return {"schedule": expression, "timezone": tz, "dialect": dialect}
        case EveryTrigger(period, anchor):
            return {
                "every": format_duration(period),
                "anchor": None if anchor is None else format_instant(anchor),
            }
        case AtTrigger(at):
            return {"run_at": format_instant(at)}
        case AfterTrigger(jobs, when, on_failure):
            return {"after": list(jobs), "when": when, "on_failure": on_failure}
    return {"manual": True}


def _retry_body(retry: Retry) -> dict[str, Any]:
    body: dict[str, Any] = {
        "retries": retry.retries,
        "cap": format_duration(retry.cap),
        "jitter": retry.jitter,
        "on": list(retry.on) or None,
        "never": list(retry.never) or None,
    }
    if len(retry.delays) == 1 and retry.factor > 1:
        body |= {"delay": format_duration(retry.delays[0]), "factor": retry.factor}
    else:
        body["delays"] = [format_duration(each) for each in retry.delays]
    return {name: value for name, value in body.items() if value is not None}
