"""Calendars: times at which jobs do not fire."""

from __future__ import annotations

from mainspring.api.endpoint import Endpoint, Request, Response
from mainspring.api.resources.acting import Acting
from mainspring.api.schemas.bodies import CalendarBody
from mainspring.api.schemas.queries import ReasonQuery
from mainspring.api.schemas.views import CalendarDaysQuery, CalendarPreviewQuery
from mainspring.core.schedules.calendars import Calendar
from mainspring.operations import records
from mainspring.operations.calendars import Calendars
from mainspring.operations.planning.records import CalendarDays, CalendarPreview


async def list_calendars(request: Request) -> Response:
    """All calendars, by name."""
    return Response(200, {"items": await Calendars(Acting(request).context).list()})


async def get_calendar(request: Request) -> Response:
    """A calendar by name."""
    return Response(200, await Calendars(Acting(request).context).get(request.named("name")))


async def save_calendar(request: Request) -> Response:
    """Create a calendar, or replace it: jobs that use it are planned anew."""
    request.wrong.settle()
    await request.spend_definitions(1)
    calendars, calendar = Calendars(Acting(request).context), _calendar(request)
    known = {each.name for each in await calendars.list()}
    return Response(200 if calendar.name in known else 201, await calendars.save(calendar))


async def remove_calendar(request: Request) -> Response:
    """Forget a calendar. Refused while jobs or other calendars refer to it: the problem names them."""
    await Calendars(Acting(request).context).remove(request.named("name"), request.query.get("reason", ""))
    return Response(204)


async def show_calendar_days(request: Request) -> Response:
    """The days that a calendar excludes, from `from` (today) to `to` (a year later), and the jobs that use it."""
    words = {"since": request.query.get("from"), "until": request.query.get("to")}
    return Response(200, await Calendars(Acting(request).context).days(request.named("name"), **words))


async def preview_calendar(request: Request) -> Response:
    """Which firings of the next days would move, disappear or appear if this calendar were saved. Nothing is stored."""
    request.wrong.settle()
    calendars = Calendars(Acting(request).context)
    return Response(200, await calendars.preview(_calendar(request), request.query.get("days", 30)))


def _calendar(request: Request) -> Calendar:
    return Calendar(request.named("name"), tuple(request.given["rules"]), request.given.get("timezone", "UTC"))


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
    Endpoint(
        "DELETE", "/v1/calendars/{name}", remove_calendar, "calendars:write", "Remove a calendar.", {204: None},
        query=ReasonQuery, problems=(409,),
    ),
    Endpoint(
        "GET", "/v1/calendars/{name}/days", show_calendar_days, "calendars:read", "The days that a calendar excludes.",
        {200: CalendarDays}, query=CalendarDaysQuery,
    ),
    Endpoint(
        "POST", "/v1/calendars/{name}/preview", preview_calendar, "calendars:read",
        "The firings that an edit of a calendar would change.", {200: CalendarPreview}, CalendarBody,
        query=CalendarPreviewQuery, example=EXAMPLE,
    ),
)  # fmt: skip
