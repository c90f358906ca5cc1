"""Stored jobs in the words of the API: the body of the request that would make them."""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.core.instants import format_duration, format_instant
from mainspring.core.model import Job, JobPolicy
from mainspring.core.schedules.triggers import (
    AfterTrigger,
    AtTrigger,
    CronTrigger,
    EveryTrigger,
    ManualTrigger,
    Trigger,
)
from mainspring.operations.jobs.options import ExecutionWords, word_values

Body = dict[str, Any]


def body_of(job: Job) -> Body:
    """The body that would make a job as it is."""
    defaults = msgspec.structs.asdict(JobPolicy())
    policy = msgspec.structs.asdict(job.policy)
    own = {"priority": job.priority, "queue": job.queue, "key": job.key, "limit": job.limit}
    options = msgspec.structs.asdict(job.options).items()
    execution = own | {name: value for name, value in options if name in ExecutionWords.__annotations__}
    if (said := job.options.said) is not None:  # The other options are the task's to say.
        execution = {name: value for name, value in execution.items() if name in said}
    return {
        "name": job.name,
        "task": job.task,
        "args": msgspec.json.decode(job.args),
        **word_values(execution),
        **trigger_body(job.trigger),
        **word_values({name: value for name, value in policy.items() if value != defaults[name]}),
    }


def trigger_body(trigger: Trigger) -> Body:
    """When a job is due."""
    match trigger:
        case CronTrigger(expression, tz, dialect):
            words: Body = {"schedule": expression, "timezone": tz, "dialect": dialect}
        case EveryTrigger(period, anchor):
            start = None if anchor is None else format_instant(anchor)
            words = {"every": format_duration(period), "anchor": start}
        case AtTrigger(at):
            words = {"run_at": format_instant(at)}
        case AfterTrigger(jobs, when, on_failure):
            words = {"after": list(jobs), "when": when, "on_failure": on_failure}
        case ManualTrigger():
            words = {"manual": True}
    return {name: value for name, value in words.items() if value is not None}
