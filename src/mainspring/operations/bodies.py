"""Definitions in the words of the API: the body of the request that would make them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from mainspring.core.instants import format_duration, format_instant
from mainspring.core.model import Job, JobPolicy, RunOptions
from mainspring.core.runs.retry import Retry
from mainspring.core.schedules.triggers import (
    AfterTrigger,
    AtTrigger,
    CronTrigger,
    EveryTrigger,
    ManualTrigger,
    Trigger,
)
from mainspring.core.tasks.isolation import format_isolation
from mainspring.operations.options import ExecutionWords

Body = dict[str, Any]


def body_of(job: Job) -> Body:
    """The body that would make a job as it is."""
    defaults = msgspec.structs.asdict(JobPolicy())
    policy = msgspec.structs.asdict(job.policy)
    own = {"priority": job.priority, "queue": job.queue, "key": job.key, "limit": job.limit}
    execution = {**own, **_words_of(job.options)}
    if (said := job.options.said) is not None:  # The rest is not the job's own, but for its task to say.
        execution = {name: value for name, value in execution.items() if name in said}
    return {
        "name": job.name,
        "task": job.task,
        "args": msgspec.json.decode(job.args),
        **word_values(execution),
        **trigger_body(job.trigger),
        **word_values({name: value for name, value in policy.items() if value != defaults[name]}),
    }


def word_values(values: Mapping[str, Any]) -> Body:
    """Options as they are stored (see `options.read_words`), as a body says them; None is left out."""
    return {name: _WORDED.get(name, _plain)(value) for name, value in values.items() if value is not None}


def _words_of(options: RunOptions) -> dict[str, Any]:
    """What somebody can say of how runs are executed; the rest is what the program notes for itself."""
    values = msgspec.structs.asdict(options)
    return {name: value for name, value in values.items() if name in ExecutionWords.__annotations__}


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


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _word_retry(retry: Retry) -> Body:
    body: Body = {"retries": retry.retries, "cap": format_duration(retry.cap), "jitter": retry.jitter}
    if len(retry.delays) == 1 and retry.factor > 1:
        body |= {"delay": format_duration(retry.delays[0]), "factor": retry.factor}
    else:
        body["delays"] = [format_duration(each) for each in retry.delays]
    return body | {name: list(errors) for name, errors in (("on", retry.on), ("never", retry.never)) if errors}


_DURATIONS = ("timeout", "soft_timeout", "delay", "expires", "grace", "catch_up_window", "start_deadline", "jitter")
_INSTANTS = ("at", "start_at", "end_at")
_WORDED: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(_DURATIONS, format_duration),
    **dict.fromkeys(_INSTANTS, format_instant),
    "retry": _word_retry,
    "isolation": format_isolation,
}
