"""Calendars, events and the audit trail behind a database, as commands see them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence

from mainspring.cli.backends.stored_jobs import shown
from mainspring.core.model import Event
from mainspring.core.schedules.calendars import Calendar, check_calendar
from mainspring.errors import NotFound
from mainspring.operations import records
from mainspring.operations.options import check_name
from mainspring.operations.views import calendar_view, change_view, event_view
from mainspring.sdk.app import Mainspring

LOOK_S = 0.2
"""How often to look for events while they are followed."""
BATCH = 200
PAGE = 100


class StoredCalendars:
    """Fulfils `scheduler.Calendars`."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def list(self) -> list[records.Calendar]:
        """See `scheduler.Calendars`."""
        found = await (await self._app.open()).list_calendars(self._app.settings.namespace)
        return [shown(calendar_view(found[name]), records.Calendar) for name in sorted(found)]

    async def get(self, name: str) -> records.Calendar:
        """See `scheduler.Calendars`."""
        found = await (await self._app.open()).list_calendars(self._app.settings.namespace)
        if name not in found:
            raise NotFound(f"there is no calendar {name!r}")
        return shown(calendar_view(found[name]), records.Calendar)

    async def save(self, calendar: Calendar) -> records.Calendar:
        """See `scheduler.Calendars`."""
        store, namespace = await self._app.open(), self._app.settings.namespace
        check_name("name", calendar.name)
        check_calendar(calendar, await store.list_calendars(namespace))
        await store.save_calendar(namespace, calendar)
        return shown(calendar_view(calendar), records.Calendar)


class StoredEvents:
    """Fulfils `scheduler.Events`."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def follow(
        self,
        *,
        after: int | None = None,
        kinds: Sequence[str] = (),
        job: str | None = None,
        task: str | None = None,
        run: str | None = None,
    ) -> AsyncGenerator[records.Event, None]:
        """See `scheduler.Events`."""
        store = await self._app.open()
        position = await store.next_position() if after is None else after + 1
        while True:
            batches = await store.events_since(position, BATCH)
            for batch in batches:
                for offset, event in enumerate(batch.events):
                    if self._fits(event, kinds, job, task, run):
                        yield shown(event_view(batch.position + offset, event), records.Event)
                position = batch.position + len(batch.events)
            if not batches:
                await asyncio.sleep(LOOK_S)

    def _fits(self, event: Event, kinds: Sequence[str], job: str | None, task: str | None, run: str | None) -> bool:
        return (
            event.namespace == self._app.settings.namespace
            and (not kinds or event.kind in kinds)
            and (job is None or job in (event.job, event.job_id))
            and task in (None, event.task)
            and run in (None, event.run_id)
        )


class StoredAudit:
    """Fulfils `scheduler.Audit`."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    async def list(
        self, *, subject: str | None = None, target: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[records.Change, None]:
        """See `scheduler.Audit`."""
        store, namespace = await self._app.open(), self._app.settings.namespace
        before: int | None = None
        left = limit
        while left is None or left > 0:
            size = PAGE if left is None else min(PAGE, left)
            page = await store.list_changes(namespace, subject=subject, target=target, before=before, limit=size)
            for number, change in page:
                yield shown(change_view(number, change), records.Change)
            if len(page) < size:
                return
            left, before = None if left is None else left - size, page[-1][0]
