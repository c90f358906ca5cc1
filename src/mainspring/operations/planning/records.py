"""The public records of what is to come: see `operations.records` for those of jobs and runs."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from mainspring.core.planning.calendar_changes import Effect
from mainspring.operations.records import Moment
from mainspring.operations.views.records import FiringCell


class ExcludedDay(msgspec.Struct, frozen=True):
    """A day, by the clocks of the calendar's zone, that the calendar excludes wholly or in part."""

    day: str
    whole: bool
    reason: str


class CalendarDays(msgspec.Struct, frozen=True, kw_only=True):
    """The days that a calendar excludes, and what uses it."""

    items: list[ExcludedDay]
    used_by: list[str]
    """Jobs by name, at most 200: those that name the calendar, or another one that refers to it."""
    jobs: int
    """How many there are."""
    calendars: list[str]
    """Other calendars that refer to it, also by way of others."""
    partial: bool
    """Whether the search for days was cut short: ask for fewer days."""


class CalendarChange(msgspec.Struct, frozen=True):
    """A firing that an edit of a calendar changes."""

    job: str
    effect: Effect
    at: Moment | None
    """When it is planned now; null if it appears."""
    to: Moment | None
    """When it would be planned; null if it disappears."""
    reason: str


class CalendarPreview(msgspec.Struct, frozen=True, kw_only=True):
    """What an edit of a calendar would change. Nothing is stored."""

    items: list[CalendarChange]
    """In order of time, at most 1,000."""
    moved: int
    dropped: int
    added: int
    jobs: int
    """How many active jobs use the calendar."""
    until: Moment
    partial: bool
    """Whether the comparison was cut short, by time or by the number of instants: ask for fewer days."""


class SimulatedLoad(msgspec.Struct, frozen=True, kw_only=True):
    """The period of five minutes in which the job and all others start most runs."""

    at: Moment
    others: int
    """Starts of the other jobs."""
    starts: int
    """All starts, with those of this job."""
    busy: float
    """Slots that are expected to be busy on average."""
    capacity: int
    """Slots of the live workers."""


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """What a job would do over a span of time. Nothing is stored."""

    items: list[FiringCell]
    """The rows that its ledger would have, oldest first, at most 10,000."""
    counts: dict[str, int]
    """Rows by outcome; a row that stands for several instants counts as often."""
    schedule: str
    """The trigger in words."""
    took: Literal["given", "history", "unknown"]
    """Where the durations of its runs come from. If they are not known, runs take no time."""
    took_s: float | None
    """How long one of its runs usually takes."""
    most_at_once: int
    """The most runs at the same time."""
    longest_wait_s: float
    """The longest time that a run waits at a gate or in a line."""
    load: SimulatedLoad | None
    """Null for a span that has begun, or is longer than 31 days."""
    partial: bool
    """Whether it was cut short, by time or by the number of rows: ask for a shorter span."""


class Peak(msgspec.Struct, frozen=True):
    """The minute in which most runs start."""

    at: Moment
    starts: int


class SpreadEdit(msgspec.Struct, frozen=True, kw_only=True):
    """A job that should move."""

    job: str
    version: int
    """Give it as `If-Match`, so that a job that has changed meanwhile is refused."""
    minutes: int
    """By how much; earlier if negative."""
    schedule: str
    to: str
    """Its schedule now, and then, in words."""
    change: dict[str, Any]
    """The body of the `PATCH` that moves it."""
    reason: str


class StayingJob(msgspec.Struct, frozen=True):
    """A job that would still start in the fullest minute."""

    job: str
    reason: str


class Spread(msgspec.Struct, frozen=True, kw_only=True):
    """Edits that flatten the peak of a span. Nothing is stored."""

    edits: list[SpreadEdit]
    before: Peak | None
    after: Peak | None
    """The peak if all edits are made."""
    staying: list[StayingJob]
    """The jobs of that peak, at most 200, and why they stay."""
    partial: bool
    """Whether the search was cut short: ask for a shorter span, or for a queue or a tag."""
