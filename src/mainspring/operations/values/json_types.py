"""Values as JSON bodies carry them: types with bounds. A description says what would be right, also in a refusal."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from mainspring.core.runs.retry import Backoff, RetryPolicy

LONGEST_NAME = 200
MOST_NAMES = 1_000
LARGEST = 2**31 - 1
LONGEST_S = 36_525 * 86_400
"""A hundred years."""

Name = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=LONGEST_NAME,
        description="1 to 200 printable characters",
        extra_json_schema={"format": "name"},
    ),
]
Names = Annotated[list[Name], Meta(max_length=MOST_NAMES)]
Tags = Annotated[list[Name], Meta(max_length=100)]
FewNames = Annotated[list[Name], Meta(min_length=1, max_length=100)]
SomeNames = Annotated[list[Name], Meta(min_length=1, max_length=MOST_NAMES)]
Calendars = Annotated[list[Name], Meta(max_length=10)]
Text = Annotated[str, Meta(max_length=10_000, pattern=r"^[^\x00]*$", description="a text of at most 10000 characters")]
Span = Annotated[
    Annotated[str, Meta(max_length=100, extra_json_schema={"format": "duration-text"})]
    | Annotated[float, Meta(ge=0, le=LONGEST_S)],
    Meta(description='a duration like "30s" or "1h30m", or a number of seconds', examples=["1h30m"]),
]
InstantText = Annotated[
    str,
    Meta(
        max_length=100,
        description="an instant with its offset, like 2030-03-01T09:00:00+01:00",
        examples=["2030-03-01T09:00:00+01:00"],
    ),
]
Count = Annotated[int, Meta(ge=1, le=LARGEST, description="a whole number from 1 up")]
CountFrom0 = Annotated[int, Meta(ge=0, le=LARGEST, description="a whole number from 0 up")]
Completions = Annotated[int, Meta(ge=1, le=10_000)]
Priority = Annotated[int, Meta(ge=1, le=10, description="1 (highest) to 10 (lowest)")]
IsolationText = Annotated[
    str, Meta(max_length=10_000, description="e.g. limits,memory=1GB; other than the task's own needs run:command")
]
AlertText = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=10_000,
        pattern=r"^[^\x00]*$",
        description="receives an alert if it fails for good: a task, a URL, or $ and a command (needs run:command)",
    ),
]


class RetryBody(msgspec.Struct, forbid_unknown_fields=True):
    """How often, how late, and for which errors a failed run is tried again."""

    retries: CountFrom0 | UnsetType = UNSET
    policy: (
        Annotated[RetryPolicy, Meta(description="all waits by name, instead of delay, backoff, factor, delays and cap")]
        | UnsetType
    ) = UNSET
    delay: Span | UnsetType = UNSET
    backoff: Backoff | UnsetType = UNSET
    factor: Annotated[float, Meta(ge=1, le=1_000_000)] | UnsetType = UNSET
    delays: Annotated[list[Span], Meta(max_length=100)] | UnsetType = UNSET
    cap: Span | UnsetType = UNSET
    jitter: Annotated[float, Meta(ge=0, le=1)] | UnsetType = UNSET
    on: Names | UnsetType = UNSET
    never: Names | UnsetType = UNSET
