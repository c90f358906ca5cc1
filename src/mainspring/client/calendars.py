"""Calendars, over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.client.connection import Connection, Request, path_of
from mainspring.core.schedules.calendars import Calendar
from mainspring.operations import records


class Calendars:
    """`client.calendars`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def list(self) -> Sequence[records.Calendar]:
        """All, by name."""
        return (await self._connection.ask(Request("GET", path_of("calendars")), records.Calendars)).items

    async def get(self, name: str) -> records.Calendar:
        """A calendar."""
        return await self._connection.ask(Request("GET", path_of("calendars", name)), records.Calendar)

    async def save(self, calendar: Calendar) -> records.Calendar:
        """Create a calendar, or replace it: jobs that use it are planned anew."""
        body = {"timezone": calendar.tz, "rules": msgspec.to_builtins(calendar.rules)}
        return await self._connection.ask(
            Request("PUT", path_of("calendars", calendar.name), body=body), records.Calendar
        )
