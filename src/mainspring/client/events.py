"""Events and the audit trail, over HTTP; and tokens, which the audit trail shows revoked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime

import msgspec

from mainspring.client.connection import Connection, Request, path_of
from mainspring.client.pages import each
from mainspring.client.streams import follow
from mainspring.operations import records
from mainspring.operations.audit import Revoked


class Events:
    """`client.events`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

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
        async for message in follow(self._connection, Request("GET", path_of("events"), query)):
            yield msgspec.json.decode(message.data, type=records.Event)


class Audit:
    """`client.audit`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def list(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        **named: str | None,
    ) -> AsyncGenerator[records.Change, None]:
        """Changes, newest first: by a `subject`, of a `target`, of one `action`, made from `since` to `until`."""
        bounds = {"since": since, "until": until}
        moments = {name: moment.isoformat() for name, moment in bounds.items() if moment is not None}
        return each(self._connection, path_of("audit"), {**named, **moments}, records.Change, limit)

    def of_job(self, job: str, limit: int | None = None) -> AsyncGenerator[records.Change, None]:
        """The changes that were made to a job over the API, newest first."""
        return each(self._connection, path_of("jobs", job, "versions"), {}, records.Change, limit)


class Tokens:
    """`client.tokens`. `mainspring token create` makes them, where the secret is."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    async def revoke(self, *, token_id: str | None = None, subject: str | None = None) -> list[str]:
        """Revoke a token by its id, or all that a subject got until now: on every server, within seconds."""
        given = {"token_id": token_id, "subject": subject}
        body = {name: value for name, value in given.items() if value is not None}
        return (await self._connection.ask(Request("POST", path_of("tokens:revoke"), body=body), Revoked)).revoked
