"""Calendars, and the rules of which they are made: instants that a job leaves out.

from mainspring.calendars import Calendar, holidays, weekends

app.calendar(Calendar("workdays", (weekends(), holidays("12-25", "2026-04-03")), tz="Europe/Berlin"))
"""

from __future__ import annotations

from mainspring.core.schedules.calendar_rules import (
    Blackout,
    CronRule,
    DailyWindow,
    Dates,
    Not,
    Other,
    Rule,
    Weekdays,
    blackout,
    business_hours,
    holidays,
    weekends,
)
from mainspring.core.schedules.calendars import Calendar

__all__ = [
    "Blackout",
    "Calendar",
    "CronRule",
    "DailyWindow",
    "Dates",
    "Not",
    "Other",
    "Rule",
    "Weekdays",
    "blackout",
    "business_hours",
    "holidays",
    "weekends",
]
