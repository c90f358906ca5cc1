"""The public records of what is to come: see `operations.records` for those of jobs and runs."""

from __future__ import annotations

import msgspec

from mainspring.core.planning.calendar_changes import Effect
from mainspring.operations.records import Moment


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
