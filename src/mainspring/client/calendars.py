"""Calendars, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

import msgspec

from mainspring.client.connection import Request, path_of
from mainspring.client.resource import Resource
from mainspring.core.schedules.calendars import Calendar
from mainspring.operations import records
from mainspring.operations.planning.records import CalendarDays, CalendarPreview


class Calendars(Resource):
    """`client.calendars`."""

    async def list(self) -> Sequence[records.Calendar]:
        """All, by name."""
        return (await self._get(records.Calendars, "calendars")).items

    async def get(self, name: str) -> records.Calendar:
        """A calendar."""
        return await self._get(records.Calendar, "calendars", name)

    async def save(self, calendar: Calendar) -> records.Calendar:
        """Create a calendar, or replace it: jobs that use it are planned anew."""
        request = Request("PUT", path_of("calendars", calendar.name), body=_body(calendar))
        return await self._connection.ask(request, records.Calendar)

    async def remove(self, name: str, reason: str = "") -> None:
        """Forget a calendar. Conflict while jobs or other calendars refer to it."""
        query = {"reason": reason} if reason else {}
        await self._connection.send(Request("DELETE", path_of("calendars", name), query))

    async def days(self, name: str, *, since: date | None = None, until: date | None = None) -> CalendarDays:
        """The days from `since` (today) to `until` (a year later), both included, that a calendar excludes, and the
        jobs that use it."""
        return await self._get(CalendarDays, "calendars", name, "days", **{"from": since, "to": until})

    async def preview(self, calendar: Calendar, days: int = 30) -> CalendarPreview:
        """Which firings of the next days move, disappear or appear if the calendar is saved. Nothing is stored."""
        path = path_of("calendars", calendar.name, "preview")
        return await self._connection.ask(Request("POST", path, {"days": days}, body=_body(calendar)), CalendarPreview)


def _body(calendar: Calendar) -> dict[str, Any]:
    return {"timezone": calendar.tz, "rules": msgspec.to_builtins(calendar.rules)}
