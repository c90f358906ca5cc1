"""The queries that requests may have."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mainspring.api.schemas.bodies import Cursor, Limit, Zone
from mainspring.core.answers import Delay
from mainspring.core.states import State
from mainspring.operations.values.json_types import LONGEST_NAME, InstantText, Name

ErrorId = Annotated[str, Meta(pattern=r"^[0-9a-f]{16}$(?!\n)", description="the id of an error group")]


class ReasonQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The reason, for later readers."""

    reason: Annotated[str, Meta(max_length=1_000)] | UnsetType = UNSET


class JobFilterFields(msgspec.Struct, forbid_unknown_fields=True):
    """The filters of jobs that lists and bulk actions share: see `operations.filters.JobFilters`."""

    app: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET
    tag: Name | UnsetType = UNSET
    state: Literal["active", "paused"] | UnsetType = UNSET
    queue: Name | UnsetType = UNSET


class JobQuery(JobFilterFields, forbid_unknown_fields=True):
    """Which jobs to list."""

    name: Annotated[str, Meta(max_length=LONGEST_NAME, description="the one of this name")] | UnsetType = UNSET
    q: Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, description="part of the name")] | UnsetType = UNSET
    last: Annotated[bool, Meta(description="each with the newest row of its ledger")] | UnsetType = UNSET
    recent: (
        Annotated[int, Meta(ge=1, le=100, description="each with the outcomes of this many latest firings")] | UnsetType
    ) = UNSET
    times: (
        Annotated[bool, Meta(description="each with how long its runs took, and how late they began")] | UnsetType
    ) = UNSET
    fields: Annotated[Literal["row"], Meta(description="without arguments")] | UnsetType = UNSET
    sort: (
        Annotated[
            Literal["name", "next", "last"],
            Meta(description="`next`: those that will fire, soonest first; `last`: those that fired, latest first"),
        ]
        | UnsetType
    ) = UNSET
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET


class RunFilterFields(msgspec.Struct, forbid_unknown_fields=True):
    """The filters of runs that lists, counts and bulk actions share: see `operations.filters.RunFilters`."""

    state: list[State] | UnsetType = UNSET
    job: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET
    tag: Name | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    worker: Annotated[Name, Meta(description="running runs that this worker holds")] | UnsetType = UNSET
    region: Annotated[Name, Meta(description="where the run waits, runs or ran")] | UnsetType = UNSET
    key: Name | UnsetType = UNSET
    late: Annotated[Delay, Meta(description="began at least this long after it was due")] | UnsetType = UNSET
    took: Annotated[Delay, Meta(description="ended, and took at least this long")] | UnsetType = UNSET
    submitted_by: Annotated[Name, Meta(description="submitted over HTTP by this subject")] | UnsetType = UNSET
    since: InstantText | UnsetType = UNSET
    until: InstantText | UnsetType = UNSET


class CountQuery(RunFilterFields, forbid_unknown_fields=True):
    """Which runs to count."""


class RunQuery(RunFilterFields, forbid_unknown_fields=True):
    """Which runs to list. `since` and `until` are about when a run was due, or submitted."""

    id: (
        Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME, description="runs whose ids begin or end with this")]
        | UnsetType
    ) = UNSET
    error: ErrorId | UnsetType = UNSET
    fields: Annotated[Literal["row"], Meta(description="without arguments, results and errors")] | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET


class DeadQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which failed runs to list."""

    job: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET
    tag: Name | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET


class StatusQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The source of the answer."""

    fresh: Annotated[bool, Meta(description="ask the store, not the cache")] | UnsetType = UNSET


class PageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which page."""

    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET


class FiringQuery(PageQuery):
    """Which firings of a job."""

    region: Annotated[Name, Meta(description="those of this region")] | UnsetType = UNSET


class NextQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many fire times, and by whose clocks."""

    count: Annotated[int, Meta(ge=1, le=1_000)] | UnsetType = UNSET
    timezone: Zone | UnsetType = UNSET


class LogQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which lines."""

    after: Annotated[int, Meta(ge=0, le=2**62, description="lines beyond this number")] | UnsetType = UNSET
    before: (
        Annotated[int, Meta(ge=1, le=2**62, description="the last lines before this number, at most `limit`")]
        | UnsetType
    ) = UNSET
    limit: Annotated[int, Meta(ge=1, le=10_000)] | UnsetType = UNSET
    tail: Annotated[int, Meta(ge=1, le=10_000, description="only this many of the last lines")] | UnsetType = UNSET
    format: Annotated[Literal["text"], Meta(description="as plain text")] | UnsetType = UNSET
    follow: Annotated[bool, Meta(description="go on, as server-sent events, until the run has ended")] | UnsetType = (
        UNSET
    )


class WaitQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How long to wait."""

    timeout: (
        Annotated[
            str,
            Meta(
                max_length=100,
                description='longest wait, e.g. "30s"',
                extra_json_schema={"format": "duration-text"},
            ),
        ]
        | UnsetType
    ) = UNSET


class EventQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which events, and from where on."""

    after: Annotated[int, Meta(ge=-1, le=2**62, description="events beyond this id")] | UnsetType = UNSET
    kind: list[Name] | UnsetType = UNSET
    job: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET
    run: Name | UnsetType = UNSET


class AuditQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which changes."""

    subject: Name | UnsetType = UNSET
    target: Name | UnsetType = UNSET
    action: Annotated[Name, Meta(description="the kind of change, such as `job.pause`")] | UnsetType = UNSET
    since: InstantText | UnsetType = UNSET
    until: InstantText | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET


class ClusterQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How many terms of the history."""

    limit: Limit | UnsetType = UNSET
