"""Which schedules a CronJob can have: five fields with `* , - /` and names, macros, and `@every`."""

from __future__ import annotations

import re

from mainspring.core.instants import HOUR, MINUTE, SECOND, Duration, format_duration, parse_duration
from mainspring.core.schedules.cron import parse_cron
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger, Trigger, check_trigger
from mainspring.errors import InvalidInput

_EVERY = "@every "
_NAMES = "SUN|MON|TUE|WED|THU|FRI|SAT|JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_VALUE = rf"(?:[0-9]+|{_NAMES})"
_PART = rf"(?:\*|{_VALUE}(?:-{_VALUE})?)(?:/[0-9]+)?"
_FIELD = re.compile(rf"{_PART}(?:,{_PART})*", re.IGNORECASE)
_ZONE = re.compile(r"(?:CRON_)?TZ=(\S+)\s+")
_SUNDAY = re.compile(r"(?<![0-9/])7(?![0-9])")


def write_schedule(trigger: Trigger) -> tuple[str, str | None, list[str]]:
    """The schedule and zone of a CronJob, and what is lost. InvalidInput if no CronJob can have this schedule."""
    match trigger:
        case CronTrigger(expression, tz, dialect):
            return _write_cron(expression, dialect), tz, []
        case EveryTrigger(period, anchor):
            lost = [] if anchor is None else ["anchor: a CronJob counts @every from its creation"]
            return _EVERY + _write_period(period), None, lost
    kind = type(trigger).__name__.removesuffix("Trigger").lower()
    raise InvalidInput("trigger", kind, "has no counterpart in a CronJob", "export jobs with a cron or every trigger")


def _write_period(period: Duration) -> str:
    """A duration as Go writes it: without days, and here without fractions."""
    if period % SECOND:
        problem = "has a fraction of a second, which a CronJob cannot have"
        raise InvalidInput("every", format_duration(period), problem, "choose whole seconds")
    hours, rest = divmod(period, HOUR)
    minutes, rest = divmod(rest, MINUTE)
    parts = ((hours, "h"), (minutes, "m"), (rest // SECOND, "s"))
    return "".join(f"{count}{unit}" for count, unit in parts if count)


def _write_cron(expression: str, dialect: str | None) -> str:
    fields, problem = expression.split(), ""
    if parse_cron(expression, dialect).dialect != "unix":
        problem = "is written for Quartz"
    elif fields[0].startswith("@"):
        return fields[0].lower()
    elif len(fields) != 5:
        problem = "has seconds"
    elif not all(map(_FIELD.fullmatch, fields)):
        problem = "uses more than * , - / and names"
    elif _SUNDAY.search(fields[4]):
        problem = "has 7 for Sunday"
    if problem:
        raise InvalidInput("schedule", expression, f"{problem}, which a CronJob cannot have", "use five plain fields")
    return " ".join(fields)


def read_schedule(schedule: str, zone: str | None) -> Trigger:
    """The trigger of a CronJob's schedule. Without a zone, that of the controller is meant, which is mostly UTC. Older
    manifests have their zone in the schedule."""
    trigger: Trigger
    if (stated := _ZONE.match(schedule)) is not None:
        if zone is not None:
            problem = "names a zone, beside that of spec.timeZone"
            raise InvalidInput("spec.schedule", schedule, problem, "name it in spec.timeZone alone")
        zone, schedule = stated[1], schedule[stated.end() :]
    if schedule.startswith(_EVERY):
        trigger = EveryTrigger(parse_duration(schedule.removeprefix(_EVERY), "spec.schedule"))
    else:
        trigger = CronTrigger(_write_cron(schedule.replace("?", "*"), "unix"), zone or "UTC")
    check_trigger(trigger)
    return trigger
