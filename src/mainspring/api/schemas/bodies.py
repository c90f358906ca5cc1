"""The bodies and queries that requests may have: types, bounds and, in the words of the documentation, meaning."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mainspring.core.schedules.calendar_rules import Rule
from mainspring.core.schedules.triggers import OnFailure, When
from mainspring.operations.jobs.options import JOB, RUN, options_of
from mainspring.operations.values.json_types import (
    LARGEST,
    LONGEST_NAME,
    MOST_NAMES,
    CountFrom0,
    FewNames,
    InstantText,
    Name,
    Names,
    Priority,
    SomeNames,
    Span,
    Text,
)

MOST_RUNS = 10_000

Zone = Annotated[str, Meta(max_length=100, description="a name of the IANA database", examples=["Europe/Berlin"])]
Limit = Annotated[int, Meta(ge=1, le=1_000, description="how many on a page, at most 1000")]
Cursor = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=400,
        description="the `next` of the page before",
        extra_json_schema={"format": "cursor"},
    ),
]
Command = Annotated[
    Annotated[str, Meta(min_length=1, max_length=100_000)] | Annotated[list[str], Meta(min_length=1, max_length=1_000)],
    Meta(
        description="a command, split into words as a shell would, or as a list of words; no shell runs it",
        examples=["python generate_report.py"],
    ),
]
Arguments = Annotated[dict[str, Any], Meta(description="the task's arguments by name")]
Outcome = Annotated[str, Meta(max_length=100, description="success; a failure is reported by /fail")]
Output = Annotated[Any, Meta(description="the same as result")]
WorkerId = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, description="which of your workers reports")]
Token = Annotated[int, Meta(ge=1, le=LARGEST, description="the token that came with the claim")]


class _TaskFields(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """What to do: the fields that runs and jobs share besides their options. null is the same as leaving one out."""

    task: Name | UnsetType | None = UNSET
    command: Command | UnsetType | None = UNSET
    args: Arguments | UnsetType | None = UNSET
    type: Annotated[Name, Meta(description="the same as task")] | UnsetType | None = UNSET
    payload: Annotated[dict[str, Any], Meta(description="the same as args")] | UnsetType | None = UNSET
    max_retries: Annotated[CountFrom0, Meta(description="the same as retry, as a number")] | UnsetType | None = UNSET
    run_at: InstantText | UnsetType | None = UNSET
    at: Annotated[str, Meta(max_length=100, description="the same as run_at")] | UnsetType | None = UNSET
    executeAt: Annotated[InstantText, Meta(description="the same as run_at")] | UnsetType | None = UNSET
    execute_at: Annotated[InstantText, Meta(description="the same as run_at")] | UnsetType | None = UNSET


def _with_options(name: str, what: str) -> type[msgspec.Struct]:
    """`_TaskFields` with a field for each option that applies: see `operations.jobs.options.OPTIONS`."""
    options = [each for each in options_of(what) if each.field is not None and each.kind.json is not None]
    fields = [(each.field or each.name, each.kind.json | UnsetType | None, UNSET) for each in options]
    return msgspec.defstruct(name, fields, bases=(_TaskFields,), forbid_unknown_fields=True, kw_only=True)


if TYPE_CHECKING:
    _RunOptions: TypeAlias = _TaskFields
    _JobOptions: TypeAlias = _TaskFields
else:
    _RunOptions, _JobOptions = _with_options("_RunOptions", RUN), _with_options("_JobOptions", JOB)


class _Definition(_JobOptions, forbid_unknown_fields=True, kw_only=True):
    """A job: when it is due, besides what it does and its options."""

    schedule: Annotated[str, Meta(max_length=1000, description="cron", examples=["0 2 * * *"])] | UnsetType | None = (
        UNSET
    )
    cron: Annotated[str, Meta(max_length=1000, description="the same as schedule")] | UnsetType | None = UNSET
    cronExpression: Annotated[str, Meta(max_length=1000, description="the same as schedule")] | UnsetType | None = UNSET
    every: Span | UnsetType | None = UNSET
    anchor: InstantText | UnsetType | None = UNSET
    after: SomeNames | UnsetType | None = UNSET
    dependencies: (
        Annotated[
            SomeNames,
            Meta(description="jobs that its runs wait for, to have succeeded; without its own time, as after"),
        ]
        | UnsetType
        | None
    ) = UNSET
    when: When | UnsetType | None = UNSET
    on_failure: OnFailure | UnsetType | None = UNSET
    manual: Annotated[bool, Meta(description="due only when it is triggered by hand")] | UnsetType | None = UNSET
    timezone: Zone | UnsetType | None = UNSET
    tz: Annotated[str, Meta(max_length=100, description="the same as timezone")] | UnsetType | None = UNSET
    dialect: Literal["quartz", "unix"] | UnsetType | None = UNSET
    targetDataCenters: Annotated[FewNames, Meta(description="the same as regions")] | UnsetType | None = UNSET


class JobBody(_Definition, forbid_unknown_fields=True, kw_only=True):
    """A job: what to do (`task` or `command`), when (one of `schedule`, `every`, `run_at`, `after`, `manual`), and
    policies."""

    name: Name


class JobChange(_Definition, forbid_unknown_fields=True, kw_only=True):
    """What should be different about a job; null takes a value away."""

    name: Name | UnsetType = UNSET


class RunBody(_RunOptions, forbid_unknown_fields=True, kw_only=True):
    """One run of a task or a command."""

    dependencies: Annotated[Names, Meta(description="the same as after")] | UnsetType | None = UNSET


class ScheduleBody(msgspec.Struct, forbid_unknown_fields=True):
    """One piece of work at an instant, in the words of other schedulers: a run."""

    type: Annotated[Name, Meta(description="the task")]
    executeAt: Annotated[InstantText, Meta(description="when it is due; not in the past")]
    priority: Priority | UnsetType = UNSET
    payload: Annotated[dict[str, Any], Meta(description="the task's arguments by name")] | UnsetType = UNSET


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Many runs: all are accepted, or none."""

    runs: Annotated[list[RunBody], Meta(min_length=1, max_length=MOST_RUNS, description="1 to 10000 runs")]


class ReasonBody(msgspec.Struct, forbid_unknown_fields=True):
    """The reason, for later readers."""

    reason: Text | UnsetType = UNSET


class BackfillBody(msgspec.Struct, forbid_unknown_fields=True, rename={"from_": "from"}):
    """A past interval, both ends included."""

    from_: InstantText
    to: InstantText
    limit: Annotated[int, Meta(ge=1, le=1_000, description="the most instants; 100 if left out")] | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="only say which")] | UnsetType = UNSET
    reason: Text | UnsetType = UNSET


class TriggerBody(msgspec.Struct, forbid_unknown_fields=True):
    """A firing by hand."""

    request_id: (
        Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, description="the same id gives the same firing")]
        | UnsetType
    ) = UNSET
    reason: Text | UnsetType = UNSET


class SyncBody(msgspec.Struct, forbid_unknown_fields=True):
    """All jobs that an app declares: its stored jobs become these."""

    app: Name
    jobs: Annotated[list[JobBody], Meta(max_length=MOST_RUNS, description="up to 10000 jobs")]
    source: Annotated[str, Meta(max_length=200, description="identifies the declaring program")] | UnsetType = UNSET


class RerunBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which failed runs to run again: these, or all of a job, a task or a tag."""

    run_ids: Annotated[list[Name], Meta(min_length=1, max_length=MOST_RUNS)] | UnsetType = UNSET
    job: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET
    tag: Name | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=MOST_RUNS, description="the most runs")] | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="only say which")] | UnsetType = UNSET


class CalendarBody(msgspec.Struct, forbid_unknown_fields=True):
    """Times at which jobs do not fire."""

    rules: Annotated[list[Rule], Meta(max_length=1_000)]
    timezone: Zone | UnsetType = UNSET


class WorkerBody(msgspec.Struct, forbid_unknown_fields=True):
    """A worker that takes its work over HTTP."""

    tasks: Annotated[list[Name], Meta(min_length=1, max_length=MOST_NAMES, description="the tasks it knows")]
    name: (
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,80}$(?!\n)", description="letters, digits, . _ -")] | UnsetType
    ) = UNSET
    queues: Annotated[list[Name], Meta(min_length=1, max_length=100)] | UnsetType = UNSET
    regions: Annotated[list[Name], Meta(min_length=1, max_length=100)] | UnsetType = UNSET
    concurrency: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType = UNSET


class HeldClaim(msgspec.Struct, forbid_unknown_fields=True):
    """A claim that a worker still works on."""

    run_id: Name
    token: Token


class HeartbeatBody(msgspec.Struct, forbid_unknown_fields=True):
    """A sign of life, and the claims to be renewed by it."""

    claims: Annotated[list[HeldClaim], Meta(max_length=10_000)] | UnsetType = UNSET


class AssignBody(msgspec.Struct, forbid_unknown_fields=True):
    """How much work a worker wants, and how long it will wait for some."""

    limit: Annotated[int, Meta(ge=1, le=1_000, description="the most runs")] | UnsetType = UNSET
    wait: Span | UnsetType = UNSET
    job_id: (
        Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, description="only runs of this job, or this run")]
        | UnsetType
    ) = UNSET


class CompleteBody(msgspec.Struct, forbid_unknown_fields=True):
    """A run has succeeded."""

    token: Token
    result: Any = None
    status: Outcome | UnsetType = UNSET
    output: Output = UNSET


class CompleteJobBody(msgspec.Struct, forbid_unknown_fields=True):
    """The current run of a job has succeeded."""

    token: Token | UnsetType = UNSET
    worker_id: WorkerId | UnsetType = UNSET
    result: Any = None
    status: Outcome | UnsetType = UNSET
    output: Output = UNSET


class ErrorBody(msgspec.Struct, forbid_unknown_fields=True):
    """Why an attempt failed. It is kept as text: nothing is ever rebuilt from it."""

    message: Text
    type: Annotated[str, Meta(max_length=200, pattern=r"^[\w.]+$(?!\n)")] | UnsetType = UNSET
    traceback: Annotated[str, Meta(max_length=100_000, pattern=r"^[^\x00]*$")] | UnsetType = UNSET


class FailBody(msgspec.Struct, forbid_unknown_fields=True):
    """An attempt has failed; whether there is another, the run's retry policy says."""

    token: Token
    error: ErrorBody | Text
    retry_after: Span | UnsetType = UNSET
    final: Annotated[bool, Meta(description="the same would happen again: do not retry")] | UnsetType = UNSET


class FailJobBody(msgspec.Struct, forbid_unknown_fields=True):
    """An attempt at the current run of a job has failed."""

    error: ErrorBody | Text
    token: Token | UnsetType = UNSET
    worker_id: WorkerId | UnsetType = UNSET
    retry_after: Span | UnsetType = UNSET
    final: Annotated[bool, Meta(description="the same would happen again: do not retry")] | UnsetType = UNSET


class ProgressBody(msgspec.Struct, forbid_unknown_fields=True):
    """How far a run has come."""

    token: Token
    fraction: Annotated[float, Meta(ge=0, le=1, description="from 0 to 1")]
    note: Text | UnsetType = UNSET


class LinesBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a run wrote."""

    token: Token
    lines: Annotated[list[Text], Meta(min_length=1, max_length=1_000)]
    stream: Literal["stdout", "stderr", "log"] | UnsetType = UNSET


class RevokeBody(msgspec.Struct, forbid_unknown_fields=True):
    """Which tokens are no longer good: one by its id, or all that a subject got until now."""

    token_id: Annotated[str, Meta(min_length=1, max_length=200)] | UnsetType = UNSET
    subject: Name | UnsetType = UNSET
