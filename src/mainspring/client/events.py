"""Events and the audit trail, over HTTP; and tokens, which the audit trail shows revoked."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from datetime import datetime
from typing import Any

import msgspec

from mainspring.client.connection import Request, path_of
from mainspring.client.resource import Resource
from mainspring.client.streams import follow
from mainspring.operations import records
from mainspring.operations.audit import Revoked


class Events(Resource):
    """`client.events`."""

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


class Audit(Resource):
    """`client.audit`."""

    def list(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        **named: str | None,
    ) -> AsyncGenerator[records.Change, None]:
        """Changes, newest first: by a `subject`, of a `target`, of one `action`, made from `since` to `until`."""
        query: dict[str, Any] = {"since": since, "until": until, **named}
        return self._each(records.Change, "audit", limit=limit, **query)

    def of_job(self, job: str, limit: int | None = None) -> AsyncGenerator[records.Change, None]:
        """The changes that were made to a job over the API, newest first."""
        return self._each(records.Change, "jobs", job, "versions", limit=limit)


class Tokens(Resource):
    """`client.tokens`. `mainspring token create` makes them, where the secret is."""

    async def revoke(self, *, token_id: str | None = None, subject: str | None = None) -> list[str]:
        """Revoke a token by its id, or all that a subject got until now: on every server, within seconds."""
        return (await self._post(Revoked, "tokens:revoke", token_id=token_id, subject=subject)).revoked
