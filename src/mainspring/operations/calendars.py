"""What can be done with calendars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date

from mainspring.core.instants import load_zone
from mainspring.core.schedules.calendars import Calendar, check_calendar, settled
from mainspring.errors import NotFound
from mainspring.operations import records
from mainspring.operations.context import InContext
from mainspring.operations.jobs.options import check_name
from mainspring.operations.planning.calendar_changes import calendar_days, preview_calendar
from mainspring.operations.planning.records import CalendarDays, CalendarPreview
from mainspring.operations.values.from_rows import calendar_record
from mainspring.store import Audit


class Calendars(InContext):
    """What `/v1/calendars` and `mainspring calendar` do."""

    async def list(self) -> Sequence[records.Calendar]:
        """All calendars, in order of name."""
        found = await (await self._context.open()).list_calendars(self._context.namespace)
        return [calendar_record(found[name]) for name in sorted(found)]

    async def get(self, name: str) -> records.Calendar:
        """One calendar; NotFound if there is none of that name."""
        return calendar_record((await self._with(name))[name])

    async def _with(self, name: str) -> dict[str, Calendar]:
        """All by name; NotFound if this one is not among them."""
        found = await (await self._context.open()).list_calendars(self._context.namespace)
        if name not in found:
            raise NotFound(f"there is no calendar {name!r}: `mainspring calendar list` shows those that exist")
        return found

    async def days(self, name: str, *, since: date | None = None, until: date | None = None) -> CalendarDays:
        """The days from `since` (today) to `until` (a year later), both included, that a calendar excludes, and the
        jobs that use it."""
        return await calendar_days(self._context, name, await self._with(name), since, until)

    async def preview(self, calendar: Calendar, days: int = 30) -> CalendarPreview:
        """Which firings of the next days move, disappear or appear if the calendar is saved. Nothing is stored."""
        known = await (await self._context.open()).list_calendars(self._context.namespace)
        _check(calendar, known)
        return await preview_calendar(self._context, settled(calendar), known, days)

    async def save(self, calendar: Calendar) -> records.Calendar:
        """Create a calendar, or replace it: jobs that use it are planned anew."""
        store, namespace = await self._context.open(), self._context.namespace
        known = await store.list_calendars(namespace)
        _check(calendar, known)
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

    async def remove(self, name: str, reason: str = "") -> None:
        """Delete a calendar. Conflict, with the names, while jobs or other calendars refer to it."""
        before = calendar_record((await self._with(name))[name])
        said = {"reason": reason} if reason else None
        audit: Audit[None] | None = self._context.audit("calendar.delete", f"calendar:{name}", before, lambda _: said)
        await (await self._context.open()).remove_calendar(self._context.namespace, name, audit=audit)


def _check(calendar: Calendar, known: Mapping[str, Calendar]) -> None:
    check_name("name", calendar.name)
    load_zone(calendar.tz, "timezone")
    check_calendar(calendar, known)
