"""The public records of a whole namespace: how it stands, what needs attention, what has changed."""

from __future__ import annotations

from typing import Literal

import msgspec

from mainspring.operations.records import Degradation, ListedJob, ListedRun, Moment


class Leader(msgspec.Struct, frozen=True):
    """The node that plans."""

    owner: str
    term: int
    since: Moment


class Fleet(msgspec.Struct, frozen=True):
    """The workers of a namespace together."""

    active: int
    known: int
    running: int
    slots: int


class RunCounts(msgspec.Struct, frozen=True):
    """How many runs wait, and how many have ended in the last 24 hours. Each is counted up to 10,000."""

    due: int
    blocked: int
    later: int
    succeeded: int
    failed: int
    missed: int


AttentionKind = Literal[
    "no-leader", "no-worker", "queue-unserved", "task-unknown", "queue-paused", "job-failed", "job-missed",
    "job-failing", "job-paused",
]  # fmt: skip
"""What matters most comes first."""


class Attention(msgspec.Struct, kw_only=True, frozen=True):
    """Something that needs attention, and what to do."""

    kind: AttentionKind
    state: Literal["failed", "missed", "held", "paused"]
    name: str
    text: str
    remedy: str
    since: Moment | None = None
    job: str | None = None
    run_id: str | None = None
    queue: str | None = None


class Overview(msgspec.Struct, kw_only=True, frozen=True):
    """How a namespace stands."""

    at: Moment
    leader: Leader | None
    workers: Fleet
    counts: RunCounts
    oldest_due: Moment | None
    attention: list[Attention]
    """What matters most comes first."""
    running: list[ListedRun]
    next: list[ListedJob]
    degradation: Degradation = "normal"
    given_up: str = ""
    """What the answering process gives up for this namespace, under the pressure that it causes or that all share."""
    pressure: float = 0.0
    breakers: dict[str, str] = {}
    """The circuit breakers of the answering process that are not closed, each with what happens meanwhile."""


class News(msgspec.Struct, frozen=True):
    """Which jobs and runs have changed."""

    jobs: list[str]
    runs: list[str]
    more: bool
    """Whether more have changed than are named."""
