"""The lease port: the right to act under a name for a while.

A lease is a hint that keeps others from trying; it never decides. What it protects is checked again by the store: a
leader's writes by the term (`store.begin_term`), a worker's by the run's token.
"""

from __future__ import annotations

from typing import Protocol

from mainspring.core.instants import Duration
from mainspring.core.model import Hold


class Lease(Protocol):
    """Three verbs. Times are those of whoever keeps the lease, not of the caller. A name may have any characters. What
    cannot be asked raises LeaseUnavailable, or StoreError where the database keeps the leases."""

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        """The lease if it is free or has expired, else None. Its token grows with each acquisition."""

    async def renew(self, hold: Hold) -> Hold | None:
        """The same hold with a later expiry; None if it is no longer ours. After a lost reply: renew again, or let it
        expire."""

    async def release(self, hold: Hold) -> None:
        """Free it at once if it is still ours; otherwise nothing."""

    async def close(self) -> None:
        """Let go of connections. What is held stays so until it is released or expires."""
