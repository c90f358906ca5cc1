"""Who plans: holds the lease, begins a term, and knows until when it may trust either."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.leadership import trusted_until
from mainspring.core.model import Hold, Term
from mainspring.lease import Lease
from mainspring.services.loop import Loop, log
from mainspring.settings import Settings
from mainspring.store import LeaseStore

LEASE = "scheduler"
SHORTEST_S = 0.1
"""A stand-by is told of every change, since one of them may be that the leader let go: it need not look at each."""


class Elector(Loop):
    """Tries for the lease until it has it, then renews it. `term()` is the only way to ask whether this node leads."""

    name = "elector"

    def __init__(
        self, store: LeaseStore, lease: Lease, owner: str, settings: Settings, clock: Clock, random: Random
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._lease = lease
        self._owner = owner
        self._ttl = settings.lease_ttl
        self._renew_s = settings.lease_renew / SECOND
        self._hold: Hold | None = None
        self._term: Term | None = None
        self._trusted_until = 0.0
        self._tried_at = -SHORTEST_S
        self.on_elected: list[Callable[[], None]] = []
        self.on_resigned: list[Callable[[], None]] = []

    def term(self) -> Term | None:
        """The term of this node, if it leads and may still trust that it does."""
        if self._term is not None and self.clock.monotonic() < self._trusted_until:
            return self._term
        return None

    async def turn(self) -> float:
        sent_at = self.clock.monotonic()
        if sent_at >= self._trusted_until:
            self._resign("could not renew in time")
        if self._hold is not None:
            self._hold = await self._lease.renew(self._hold)
            if self._hold is None:
                self._resign("the lease went to another node")
                return 0.0
        else:
            if sent_at < self._tried_at + SHORTEST_S:
                return self._tried_at + SHORTEST_S - sent_at
            self._hold = await self._lease.acquire(LEASE, self._owner, self._ttl)
            self._tried_at = sent_at
        if self._hold is not None:
            await self._lead(trusted_until(sent_at, self._ttl))
        return self._renew_s

    def _back_off(self, error: Exception) -> float:
        """No longer than when all is well: a leader has little time to renew, and a cluster without one none."""
        return min(super()._back_off(error), self._renew_s)

    async def _lead(self, until: float) -> None:
        if self._term is None:
            if self.clock.monotonic() >= until:
                return  # The answer took so long that somebody else may lead by now, and must not be overtaken.
            self._term = await self._store.begin_term(LEASE, self._owner)
            self._trusted_until = until
            log.info("%s leads, term %d", self._owner, self._term.number)
            for callback in self.on_elected:
                callback()
        self._trusted_until = until

    def begin_anew(self) -> None:
        """A node that did not know that it had lost the lease began a later term: begin one that is later still."""
        self._resign("another node has begun a term")
        self.wake()

    def _resign(self, why: str) -> None:
        led, self._term = self._term, None
        if led is not None:
            log.info("%s no longer leads: %s", self._owner, why)
            for callback in self.on_resigned:
                callback()

    async def hand_over(self) -> None:
        """Stop, and let go of the lease, so that a stand-by takes over at once."""
        await self.halt()
        self._resign("shutting down")
        hold, self._hold = self._hold, None
        if hold is not None:
            await self._lease.release(hold)
