"""The lease port: the exclusive right to act under a name for a limited time.

A lease is a hint that keeps others from trying; it never decides. The store checks again what a lease protects: a
leader's writes by the term (`store.begin_term`), a worker's by the run's token.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

from mainspring.core.instants import Duration
from mainspring.core.model import Hold


class LeaseTimes(NamedTuple):
    """How long a leader holds its lease, how often it renews it, and how often other nodes try to get it."""

    ttl: Duration
    renew_every: Duration
    retry_every: Duration
    """How often a candidate tries to acquire the lease."""


class Lease(Protocol):
    """Expiry is judged by the clock of the backend, not the caller's. A name may contain any characters. A call that
    the backend does not answer raises LeaseUnavailable, or StoreError where the database keeps the leases."""

    @property
    def times(self) -> LeaseTimes | None:
        """The adapter's own defaults for leadership; None: those of the settings."""

    @property
    def watched(self) -> bool:
        """Whether the backend pushes: `on_lost` and `on_free` call back. A candidate then asks only as often as `times`
        says; otherwise each change in the store makes it ask."""

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        """The lease if it is free or has expired, else None. Its token grows with each acquisition. The backend may
        give less time than asked for: the holder trusts the hold for its `ttl`."""

    async def renew(self, hold: Hold) -> Hold | None:
        """The same hold with a later expiry; None if the lease has expired or another owner holds it. After a lost
        reply: renew again, or let it expire."""

    async def release(self, hold: Hold) -> None:
        """Free the lease at once if this hold still has it; otherwise do nothing."""

    def on_lost(self, hold: Hold, callback: Callable[[str], None]) -> Callable[[], None]:
        """Call `callback(reason)`, on the caller's loop, as soon as the backend knows that the hold is in doubt: its
        session is suspended, its keep-alive is closed, a watch shows another holder. The hold may still be good: its
        holder asks by `renew`. The returned function stops the callbacks. Backends that cannot know never call it."""

    def on_free(self, name: str, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback`, on the caller's loop, soon after the lease becomes free. It wakes a candidate and is a hint:
        nothing depends on it. The returned function stops the callbacks. Backends without a watch never call it."""

    async def close(self) -> None:
        """Close all connections. What is held stays so until it is released or expires."""


class Unwatched:
    """The part of a lease whose backend cannot push: no times of its own, no notice of a loss or of a free lease."""

    times: LeaseTimes | None = None
    watched: bool = False

    def on_lost(self, hold: Hold, callback: Callable[[str], None]) -> Callable[[], None]:
        """See `Lease.on_lost`: never called."""
        return lambda: None

    def on_free(self, name: str, callback: Callable[[], None]) -> Callable[[], None]:
        """See `Lease.on_free`: never called."""
        return lambda: None
