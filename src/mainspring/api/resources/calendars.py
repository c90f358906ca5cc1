"""Calendars: times at which jobs do not fire."""

from __future__ import annotations

from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.resources.acting import Acting
from mainspring.api.schemas.bodies import CalendarBody
from mainspring.core.schedules.calendars import Calendar
from mainspring.operations import records
from mainspring.operations.calendars import Calendars


async def list_calendars(call: Call) -> Answer:
    """All calendars, by name."""
    return Answer(200, {"items": await Calendars(Acting(call).context).list()})


async def get_calendar(call: Call) -> Answer:
    """A calendar by name."""
    return Answer(200, await Calendars(Acting(call).context).get(call.named("name")))


async def save_calendar(call: Call) -> Answer:
    """Create a calendar, or replace it: jobs that use it are planned anew."""
    call.wrong.settle()
    calendars, name = Calendars(Acting(call).context), call.named("name")
    known = {each.name for each in await calendars.list()}
    saved = await calendars.save(Calendar(name, tuple(call.given["rules"]), call.given.get("timezone", "UTC")))
    return Answer(200 if name in known else 201, saved)


EXAMPLE = {
    "timezone": "Europe/Berlin",
    "rules": [{"kind": "weekdays", "days": ["sat", "sun"]}, {"kind": "dates", "dates": ["12-25", "2030-04-22"]}],
}

ENDPOINTS = (
    Endpoint(
        "GET", "/v1/calendars", list_calendars, "calendars:read", "List calendars.", {200: records.Calendars},
    ),
    Endpoint(
        "GET", "/v1/calendars/{name}", get_calendar, "calendars:read", "Look at a calendar.", {200: records.Calendar},
    ),
    Endpoint(
        "PUT", "/v1/calendars/{name}", save_calendar, "calendars:write", "Create or replace a calendar.",
        {200: records.Calendar, 201: records.Calendar}, CalendarBody, problems=(409,), example=EXAMPLE,
    ),
)  # fmt: skip
