"""Calendars: times at which jobs do not fire."""

from __future__ import annotations

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.resources.acting import Acting
from mainspring.api.schemas.bodies import CalendarBody
from mainspring.core.schedules.calendars import Calendar
from mainspring.operations import records
from mainspring.operations.calendars import Calendars


async def list_calendars(request: Request) -> Response:
    """All calendars, by name."""
    return Response(200, {"items": await Calendars(Acting(request).context).list()})


async def get_calendar(request: Request) -> Response:
    """A calendar by name."""
    return Response(200, await Calendars(Acting(request).context).get(request.named("name")))


async def save_calendar(request: Request) -> Response:
    """Create a calendar, or replace it: jobs that use it are planned anew."""
    request.wrong.settle()
    calendars, name = Calendars(Acting(request).context), request.named("name")
    known = {each.name for each in await calendars.list()}
    saved = await calendars.save(Calendar(name, tuple(request.given["rules"]), request.given.get("timezone", "UTC")))
    return Response(200 if name in known else 201, saved)


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
