"""Schedules in words: `every weekday at 09:30 (Europe/Berlin)`."""

from __future__ import annotations

import re

from mainspring.core.instants import format_duration
from mainspring.core.schedules.cron import MACROS
from mainspring.core.schedules.triggers import CronTrigger, EveryTrigger, Trigger, describe

_DAYS = ("Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday")
_NUMBERED = {str(number): name for number, name in enumerate((*_DAYS, "Sunday"))}
_SHORT = _NUMBERED | {name[:3].upper(): name for name in _DAYS}
_STEP = re.compile(r"\*/([1-9]\d?)")
_NUMBER = re.compile(r"\d{1,2}")
_RANGE = re.compile(r"(\d{1,2})-(\d{1,2})")
_PERIOD = re.compile(r"(\d+)([smhd])")
_UNITS = {"s": "second", "m": "minute", "h": "hour", "d": "day"}
_MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November")
_NAMED_MONTHS = {str(number): name for number, name in enumerate((*_MONTHS, "December"), start=1)}


def in_words(trigger: Trigger) -> str:
    """A schedule as a person says it. Where the expression is not one of the usual ones, the expression itself."""
    if isinstance(trigger, EveryTrigger) and trigger.anchor is None:
        return _say_period(format_duration(trigger.period))
    if not isinstance(trigger, CronTrigger):
        return describe(trigger)
    fields = MACROS.get(trigger.expression, trigger.expression).split()
    said = _say(*fields) if trigger.dialect is None and len(fields) == 5 else None
    return describe(trigger) if said is None else f"{said} ({trigger.tz})"


def _say_period(period: str) -> str:
    found = _PERIOD.fullmatch(period)
    if found is None:
        return f"every {period}"
    return f"every {_UNITS[found[2]]}" if found[1] == "1" else f"every {found[1]} {_UNITS[found[2]]}s"


def _say(minute: str, hour: str, day: str, month: str, weekday: str) -> str | None:
    days = _say_days(day, month, weekday)
    if days is None:
        return None
    if _NUMBER.fullmatch(minute) and _is_list(hour):
        times = [f"{int(each):02}:{int(minute):02}" for each in hour.split(",")]
        return f"{days} at {', '.join(times)}"
    often = _say_often(minute, hour)
    return often if often is None or days == "every day" else f"{often}, {days}"


def _say_often(minute: str, hour: str) -> str | None:
    if hour == "*":
        if minute == "*":
            return "every minute"
        if (step := _STEP.fullmatch(minute)) and 60 % int(step[1]) == 0:
            return "every minute" if step[1] == "1" else f"every {step[1]} minutes"
        return f"every hour at minute {minute}" if _is_list(minute) else None
    if (step := _STEP.fullmatch(hour)) and 24 % int(step[1]) == 0 and _NUMBER.fullmatch(minute):
        every = "every hour" if step[1] == "1" else f"every {step[1]} hours"
        return f"{every} at minute {minute}"
    return _say_hours(minute, hour)


def _say_hours(minute: str, hour: str) -> str | None:
    """A range of hours: `every 20 minutes from 08:00 to 18:59`, `every hour from 08:15 to 18:15`."""
    hours, step = _RANGE.fullmatch(hour), _STEP.fullmatch(minute)
    if hours is None or int(hours[1]) >= int(hours[2]):
        return None
    first, last = (f"{int(each):02}" for each in hours.groups())
    if _NUMBER.fullmatch(minute):
        return f"every hour from {first}:{int(minute):02} to {last}:{int(minute):02}"
    often = "every minute" if minute in ("*", "*/1") else f"every {step[1]} minutes" if step else None
    return f"{often} from {first}:00 to {last}:59" if often and (step is None or 60 % int(step[1]) == 0) else None


def _say_days(day: str, month: str, weekday: str) -> str | None:
    if month != "*":
        named = _NAMED_MONTHS.get(month)
        return f"every year on {int(day)} {named}" if named and weekday == "*" and _NUMBER.fullmatch(day) else None
    if day == "*" and weekday == "*":
        return "every day"
    if day == "*":
        if weekday.upper() in ("1-5", "MON-FRI"):
            return "every weekday"
        names = [_SHORT.get(each.upper()) for each in weekday.split(",")]
        return None if None in names else "every " + ", ".join(name for name in names if name)
    if weekday == "*" and _is_list(day):
        return f"every month on day {day.replace(',', ', ')}"
    return None


def _is_list(field: str) -> bool:
    return all(_NUMBER.fullmatch(each) for each in field.split(","))
