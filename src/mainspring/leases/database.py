"""The lease in the job database itself: nothing more to install."""

from __future__ import annotations

from mainspring.core.instants import Duration
from mainspring.core.model import Hold
from mainspring.lease import Unwatched
from mainspring.store import LeaseStore


class DatabaseLease(Unwatched):
    """See `lease.Lease`; expiry is judged on the store's clock. Candidates are woken by the store's own changes."""

    def __init__(self, store: LeaseStore) -> None:
        self._store = store

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        return await self._store.acquire(name, owner, ttl)

    async def renew(self, hold: Hold) -> Hold | None:
        return await self._store.renew_hold(hold)

    async def release(self, hold: Hold) -> None:
        await self._store.release(hold)

    async def close(self) -> None:
        """The opener of the store closes it."""
