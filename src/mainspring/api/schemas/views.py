"""The queries and bodies of pages: see `queries` and `bodies` for those of jobs and runs."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mainspring.api.schemas.bodies import Cursor, JobChange, Limit
from mainspring.api.schemas.queries import ErrorId, JobFilterFields, RunFilterFields
from mainspring.operations.values.json_types import LARGEST, InstantText, Name, Span, Text
from mainspring.operations.views.records import JobAction, RunAction
from mainspring.operations.views.tasks import FacetName

Width = Annotated[
    str,
    Meta(max_length=100, description='a duration like "5m" or "1h"', extra_json_schema={"format": "duration-text"}),
]
Fewer = Annotated[int, Meta(ge=1, le=200, description="how many on a page, at most 200")]


class ActRunsBody(RunFilterFields, forbid_unknown_fields=True, kw_only=True):
    """What to do with which runs: these, or all that a filter fits."""

    action: RunAction
    run_ids: Annotated[list[Name], Meta(min_length=1, max_length=1_000)] | UnsetType = UNSET
    error: ErrorId | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=1_000, description="the most runs")] | UnsetType = UNSET
    cursor: Name | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="only say how many, with a sample")] | UnsetType = UNSET
    reason: Text | UnsetType = UNSET


class ActJobsBody(JobFilterFields, forbid_unknown_fields=True, kw_only=True):
    """What to do with which jobs: these, or all that a filter fits."""

    action: JobAction
    jobs: Annotated[list[Name], Meta(min_length=1, max_length=1_000)] | UnsetType = UNSET
    q: Annotated[Name, Meta(description="part of the name")] | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=1_000, description="the most jobs")] | UnsetType = UNSET
    cursor: Name | UnsetType = UNSET
    dry_run: Annotated[bool, Meta(description="only say which")] | UnsetType = UNSET
    reason: Text | UnsetType = UNSET


class EventPageQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which stored events."""

    after: Annotated[int, Meta(ge=-1, le=2**62, description="events beyond this position")] | UnsetType = UNSET
    since: InstantText | UnsetType = UNSET
    kind: list[Name] | UnsetType = UNSET
    job: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET
    run: Name | UnsetType = UNSET
    worker: Name | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET


class RunEventQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which events of a run."""

    after: Annotated[int, Meta(ge=-1, le=2**62, description="events beyond this position")] | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET


class FacetQuery(msgspec.Struct, forbid_unknown_fields=True):
    """The values of what."""

    of: FacetName
    prefix: Name | UnsetType = UNSET


class SpanQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which span of time."""

    since: InstantText | UnsetType = UNSET
    until: InstantText | UnsetType = UNSET


class TallyQuery(SpanQuery, forbid_unknown_fields=True):
    """Which tallies."""

    bucket: Width | UnsetType = UNSET
    by: Literal["job", "task", "queue"] | UnsetType = UNSET
    job: Name | UnsetType = UNSET
    task: Name | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    whole: Annotated[bool, Meta(description="an entry for each period, also where nothing ended")] | UnsetType = UNSET


class ErrorQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which error groups."""

    since: Annotated[InstantText, Meta(description="groups that failed since then")] | UnsetType = UNSET
    job: Annotated[Name, Meta(description="groups of the latest failures of this job")] | UnsetType = UNSET
    task: Annotated[Name, Meta(description="groups of the latest failures of this task")] | UnsetType = UNSET
    limit: Fewer | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET


class LoadQuery(msgspec.Struct, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Which span of the load ahead."""

    from_: InstantText | UnsetType = UNSET
    to: InstantText | UnsetType = UNSET
    bucket: Width | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    tag: Name | UnsetType = UNSET


class LoadAtQuery(msgspec.Struct, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Which period of the load ahead."""

    from_: InstantText
    to: InstantText
    queue: Name | UnsetType = UNSET
    tag: Name | UnsetType = UNSET


class TimelineQuery(SpanQuery, forbid_unknown_fields=True):
    """Which span of time, and what of each attempt."""

    jobs: Annotated[bool, Meta(description="each with the queue and the tags of its job")] | UnsetType = UNSET


class TermQuery(msgspec.Struct, forbid_unknown_fields=True):
    """Which terms."""

    since: InstantText | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET


class LedgerQuery(SpanQuery, forbid_unknown_fields=True):
    """Which span of a job's ledger, as rows or as buckets."""

    outcome: (
        Literal["fired", "missed", "succeeded", "failed", "cancelled", "skipped", "planned", "excluded"] | UnsetType
    ) = UNSET
    bucket: Width | UnsetType = UNSET
    limit: Limit | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET


class LedgerPageQuery(SpanQuery, forbid_unknown_fields=True):
    """Which span of the ledger of all jobs."""

    bucket: Width | UnsetType = UNSET
    limit: Fewer | UnsetType = UNSET
    cursor: Cursor | UnsetType = UNSET


class CalendarDaysQuery(msgspec.Struct, forbid_unknown_fields=True, rename={"from_": "from"}):
    """Which days."""

    from_: date | UnsetType = UNSET
    to: Annotated[date, Meta(description="at most 366 days")] | UnsetType = UNSET


class CalendarPreviewQuery(msgspec.Struct, forbid_unknown_fields=True):
    """How far ahead."""

    days: Annotated[int, Meta(ge=1, le=366, description="how many days ahead, 30 if not given")] | UnsetType = UNSET


class OutageBody(msgspec.Struct, forbid_unknown_fields=True, rename={"from_": "from"}):
    """A period in which no scheduler runs."""

    from_: InstantText
    to: InstantText


class SimulateBody(msgspec.Struct, forbid_unknown_fields=True, rename={"from_": "from"}, kw_only=True):
    """Which job, with which changes, over which span of the past or the future."""

    job: (
        Annotated[Name, Meta(description="a stored job, by name or id; without it, `change` is all of it")] | UnsetType
    ) = UNSET
    change: JobChange | UnsetType = UNSET
    from_: Annotated[InstantText, Meta(description="a week ago, if it is not given")] | UnsetType = UNSET
    to: Annotated[InstantText, Meta(description="a week after `from`, if it is not given")] | UnsetType = UNSET
    outages: Annotated[list[OutageBody], Meta(max_length=100)] | UnsetType = UNSET
    took: Annotated[Span, Meta(description="how long each run takes, instead of what history says")] | UnsetType = UNSET


class SpreadBody(msgspec.Struct, forbid_unknown_fields=True, rename={"from_": "from"}, kw_only=True):
    """Which span to flatten, and how far jobs may move."""

    from_: InstantText | UnsetType = UNSET
    to: InstantText | UnsetType = UNSET
    within: Annotated[Width, Meta(description="1m to 1h, 15m if it is not given")] | UnsetType = UNSET
    target: Annotated[int, Meta(ge=0, le=LARGEST, description="stop at this peak")] | UnsetType = UNSET
    queue: Name | UnsetType = UNSET
    tag: Name | UnsetType = UNSET
