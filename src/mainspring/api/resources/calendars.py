"""Calendars: times at which jobs do not fire."""

from __future__ import annotations

from mainspring.api.endpoint import Answer, Call, Endpoint
from mainspring.api.resources.audit import audit_of
from mainspring.api.schemas.bodies import CalendarBody
from mainspring.core.instants import load_zone
from mainspring.core.schedules.calendars import Calendar, check_calendar
from mainspring.errors import InvalidInput, NotFound
from mainspring.operations import records
from mainspring.operations.options import check_name
from mainspring.operations.views import calendar_view


async def list_calendars(call: Call) -> Answer:
    """All calendars, by name."""
    found = await call.desk.store.list_calendars(call.namespace)
    return Answer(200, {"items": [calendar_view(found[name]) for name in sorted(found)]})


async def get_calendar(call: Call) -> Answer:
    """A calendar by name."""
    name = call.named("name")
    found = await call.desk.store.list_calendars(call.namespace)
    if name not in found:
        raise NotFound(f"there is no calendar {name!r}")
    return Answer(200, calendar_view(found[name]))


async def save_calendar(call: Call) -> Answer:
    """Create a calendar, or replace it: jobs that use it are planned anew."""
    name, store, wrong = call.named("name"), call.desk.store, call.wrong
    zone = call.given.get("timezone", "UTC")
    known = await store.list_calendars(call.namespace)
    try:
        check_name("name", name)
        load_zone(zone, "timezone")
    except InvalidInput as error:
        wrong.take(error)
    calendar = Calendar(name, tuple(call.given.get("rules", ())), zone)
    if not wrong.faults:
        try:
            check_calendar(calendar, known)
        except InvalidInput as error:
            wrong.take(error)
    wrong.settle()
    before = calendar_view(known[name]) if name in known else None
    audit = audit_of(call, "calendar.save", f"calendar:{name}", before, lambda _: calendar_view(calendar))
    await store.save_calendar(call.namespace, calendar, audit=audit)
    return Answer(200 if name in known else 201, calendar_view(calendar))


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
