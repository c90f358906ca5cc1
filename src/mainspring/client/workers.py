"""Workers, calendars, events, the audit trail and tokens, over HTTP."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

import msgspec

from mainspring.client.connection import Line, Request, path_of
from mainspring.client.pages import each
from mainspring.client.streams import follow
from mainspring.core.schedules.calendars import Calendar
from mainspring.operations import records
from mainspring.operations.records import WorkerStatus


class Workers:
    """`client.workers`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def list(self) -> list[records.Worker]:
        """All that were heard of lately, with the state that each is really in."""
        return (await self._line.ask(Request("GET", path_of("workers")), records.Workers)).items

    async def get(self, worker_id: str) -> records.Worker:
        """A worker."""
        return await self._line.ask(Request("GET", path_of("workers", worker_id)), records.Worker)

    async def status(self, worker_id: str, *, fresh: bool = False) -> WorkerStatus:
        """Whether a worker takes work: from the cache, where the server has one and it need not be `fresh`."""
        query = {"fresh": True} if fresh else {}
        return await self._line.ask(Request("GET", path_of("workers", worker_id, "status"), query), WorkerStatus)

    async def drain(self, worker_id: str, reason: str = "") -> records.Worker:
        """Ask a worker that works over HTTP to finish what it holds and to take no more."""
        body = {"reason": reason} if reason else {}
        return await self._line.ask(Request("POST", path_of("workers", worker_id, "drain"), body=body), records.Worker)


class Calendars:
    """`client.calendars`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def list(self) -> list[records.Calendar]:
        """All, by name."""
        return (await self._line.ask(Request("GET", path_of("calendars")), records.Calendars)).items

    async def get(self, name: str) -> records.Calendar:
        """A calendar."""
        return await self._line.ask(Request("GET", path_of("calendars", name)), records.Calendar)

    async def save(self, calendar: Calendar) -> records.Calendar:
        """Create a calendar, or replace it: jobs that use it are planned anew."""
        body = {"timezone": calendar.tz, "rules": msgspec.to_builtins(calendar.rules)}
        return await self._line.ask(Request("PUT", path_of("calendars", calendar.name), body=body), records.Calendar)


class Events:
    """`client.events`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def follow(
        self,
        *,
        after: int | None = None,
        kinds: Sequence[str] = (),
        job: str | None = None,
        task: str | None = None,
        run: str | None = None,
    ) -> AsyncGenerator[records.Event, None]:
        """What happens from now on, or beyond a position, as it happens: each event once, over broken connections."""
        query = {"after": after, "kind": list(kinds), "job": job, "task": task, "run": run}
        async for told in follow(self._line, Request("GET", path_of("events"), query)):
            yield msgspec.json.decode(told.data, type=records.Event)


class Audit:
    """`client.audit`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    def list(
        self, *, subject: str | None = None, target: str | None = None, limit: int | None = None
    ) -> AsyncGenerator[records.Change, None]:
        """Who changed what, newest first."""
        return each(self._line, path_of("audit"), {"subject": subject, "target": target}, records.Change, limit)


class Tokens:
    """`client.tokens`. They are made where the secret is: `mainspring token create`."""

    def __init__(self, line: Line) -> None:
        self._line = line

    async def revoke(self, *, token_id: str | None = None, subject: str | None = None) -> list[str]:
        """Make a token worthless by its id, or all that a subject got until now: everywhere, within seconds."""
        given = {"token_id": token_id, "subject": subject}
        body = {name: value for name, value in given.items() if value is not None}
        return (await self._line.ask(Request("POST", path_of("tokens:revoke"), body=body), records.Revoked)).revoked
