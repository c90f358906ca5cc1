"""The keywords that select runs and jobs: the same for the app, the client and their lists, pages and counts."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Literal, TypedDict

from mainspring.core.answers import Delay
from mainspring.core.states import State


class RunFilters(TypedDict, total=False):
    """Which runs. What is left out, or None, selects all."""

    states: Sequence[State]
    job: str | None
    task: str | None
    tag: str | None
    queue: str | None
    worker: str | None
    """Running runs that this worker holds."""
    region: str | None
    key: str | None
    late: Delay | None
    """Runs whose last attempt began at least this long after it was due."""
    took: Delay | None
    """Runs that have ended and took at least this long."""
    submitted_by: str | None
    """Runs that this subject submitted over HTTP, or retried."""
    since: datetime | None
    """Runs that were due or submitted from here on,"""
    until: datetime | None
    """and before this."""


class JobFilters(TypedDict, total=False):
    """Which jobs. What is left out, or None, selects all."""

    app: str | None
    task: str | None
    tag: str | None
    queue: str | None
    q: str | None
    """Part of the name, in any case."""
    state: Literal["active", "paused"] | None
