"""The audit trail: the actor of each change over the API, with the values before and after."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from datetime import datetime

import msgspec

from mainspring.core.instants import from_datetime
from mainspring.operations import records
from mainspring.operations.context import InContext
from mainspring.operations.paging import number_of, walk
from mainspring.operations.values.from_rows import change_record


class Revoked(msgspec.Struct, frozen=True):
    """What is no longer good."""

    revoked: list[str]


class Audit(InContext):
    """What `/v1/audit` and `mainspring audit` do."""

    def list(
        self,
        *,
        since: datetime | None = None,
        until: datetime | None = None,
        limit: int | None = None,
        **named: str | None,
    ) -> AsyncGenerator[records.Change, None]:
        """Changes, newest first: by a `subject`, of a `target`, of one `action`, made from `since` to `until`."""
        return walk(
            lambda place, size: self.page(**named, since=since, until=until, before=number_of(place), limit=size), limit
        )

    async def page(
        self,
        *,
        subject: str | None = None,
        target: str | None = None,
        action: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> records.Page[records.Change]:
        """One page of changes, newest first, those before a number."""
        store = await self._context.open()
        found = await store.list_changes(
            self._context.namespace,
            subject=subject,
            target=target,
            action=action,
            since=None if since is None else from_datetime(since, "since"),
            until=None if until is None else from_datetime(until, "until"),
            before=before,
            limit=limit + 1,
        )
        following = str(found[limit - 1][0]) if len(found) > limit else None
        read = self._context.read
        return records.Page([change_record(*row, read) for row in found[:limit]], following)

    def of_job(self, job: str, limit: int | None = None) -> AsyncGenerator[records.Change, None]:
        """The changes that were made to a job over the API, newest first, each with the definition before and after
        it. What code declares is not among them."""
        return walk(lambda place, size: self.page_of_job(job, before=number_of(place), limit=size), limit)

    async def page_of_job(
        self, job: str, *, before: int | None = None, limit: int = 50
    ) -> records.Page[records.Change]:
        """One page of them, those before a number."""
        found = await (await self._context.open()).get_job(self._context.namespace, job)
        return await self.page(target=f"job:{found.id}", before=before, limit=limit)
