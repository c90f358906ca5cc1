"""What can be done with calendars."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.core.instants import load_zone
from mainspring.core.schedules.calendars import Calendar, check_calendar
from mainspring.errors import NotFound
from mainspring.operations import records
from mainspring.operations.context import Context
from mainspring.operations.jobs.options import check_name
from mainspring.operations.values.from_rows import calendar_record
from mainspring.store import Audit


class Calendars:
    """What `/v1/calendars` and `mainspring calendar` do."""

    def __init__(self, context: Context) -> None:
        self._context = context

    async def list(self) -> Sequence[records.Calendar]:
        """All, in order of name."""
        found = await (await self._context.open()).list_calendars(self._context.namespace)
        return [calendar_record(found[name]) for name in sorted(found)]

    async def get(self, name: str) -> records.Calendar:
        """One of them; NotFound if there is none."""
        found = await (await self._context.open()).list_calendars(self._context.namespace)
        if name not in found:
            raise NotFound(f"there is no calendar {name!r}: `mainspring calendar list` shows those that exist")
        return calendar_record(found[name])

    async def save(self, calendar: Calendar) -> records.Calendar:
        """Create a calendar, or replace it: jobs that use it are planned anew."""
        store, namespace = await self._context.open(), self._context.namespace
        known = await store.list_calendars(namespace)
        check_name("name", calendar.name)
        load_zone(calendar.tz, "timezone")
        check_calendar(calendar, known)
        before = known.get(calendar.name)
        record = calendar_record(calendar)
        audit: Audit[None] | None = self._context.audit(
            "calendar.save",
            f"calendar:{calendar.name}",
            None if before is None else calendar_record(before),
            lambda _: record,
        )
        await store.save_calendar(namespace, calendar, audit=audit)
        return record
