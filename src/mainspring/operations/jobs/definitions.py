"""Definitions of jobs: a trigger, a task with its arguments, execution options and a policy, put into a stored job."""

from __future__ import annotations

import msgspec

from mainspring.core.instants import Instant
from mainspring.core.model import Job, JobPolicy, RunOptions
from mainspring.core.runs.retry import Retry, RetryPolicy
from mainspring.core.schedules.triggers import Trigger, check_trigger
from mainspring.errors import InvalidInput
from mainspring.operations.jobs.options import OPTIONS, Defaults, Values, check_timeouts, read_policy

_OF_THE_JOB = ("queue", "priority", "key", "limit")


def check_is_trigger(trigger: object) -> None:
    """InvalidInput unless it is a trigger that can fire."""
    if not isinstance(trigger, Trigger):
        raise InvalidInput(
            "trigger", trigger, "is not a trigger", 'write cron("0 2 * * *"), every("30s"), at(...), ...'
        )
    check_trigger(trigger)


def define(
    base: Job,
    trigger: Trigger,
    task: str,
    args: str,
    execution: Defaults,
    policy: JobPolicy,
    key: str | None,
    now: Instant,
) -> Job:
    """`base` with another definition. Its name, owner and history stay."""
    return msgspec.structs.replace(
        base,
        task=task,
        trigger=trigger,
        args=args,
        queue=execution.queue,
        priority=execution.priority,
        key=key,
        limit=execution.limit,
        policy=policy,
        options=execution.options,
        updated_at=now,
    )


def change(job: Job, values: Values, clear: tuple[str, ...] = ()) -> Job:
    """A job with some options changed, and others cleared."""
    values = {**values, **{name: OPTIONS[name].default for name in clear}}
    policy = read_policy(msgspec.structs.asdict(job.policy) | values)
    options = {name: values[name] for name in RunOptions.__struct_fields__ if name in values}
    own = {name: values[name] for name in _OF_THE_JOB if name in values}
    if job.options.said is not None:
        options["said"] = tuple(sorted({*job.options.said, *values}))
    changed = msgspec.structs.replace(job.options, **options)
    check_timeouts(changed)
    return msgspec.structs.replace(job, policy=policy, options=changed, **own)


def change_retries(retry: Retry, retries: int | None, policy: RetryPolicy | None) -> Retry:
    """Another number of retries, or other waits between them. For which errors, and how waits are spread, stays."""
    anew = msgspec.to_builtins(Retry(retry.retries if retries is None else retries, policy=policy))
    changed = ("retries", "delays", "factor", "cap") if policy is not None else ("retries",)
    return msgspec.convert({**msgspec.to_builtins(retry), **{name: anew[name] for name in changed}}, Retry)
