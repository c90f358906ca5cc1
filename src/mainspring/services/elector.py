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
        self.on_elected: list[Callable[[], None]] = []
        self.on_resigned: list[Callable[[], None]] = []

    def term(self) -> Term | None:
        """The term of this node, if it leads and may still trust that it does."""
        if self._term is not None and self.clock.monotonic() < self._trusted_until:
            return self._term
        return None

    async def turn(self) -> float:
        sent_at = self.clock.monotonic()
        if self._term is not None and sent_at >= self._trusted_until:
            self._resign("could not renew in time")
        hold = await (
            self._lease.renew(self._hold) if self._hold else self._lease.acquire(LEASE, self._owner, self._ttl)
        )
        if hold is None:
            if self._hold is not None:
                self._resign("the lease went to another node")
            return self._renew_s
        self._hold = hold
        if self._term is None:
            self._term = await self._store.begin_term(LEASE, self._owner)
            self._trusted_until = trusted_until(sent_at, self._ttl)
            log.info("%s leads, term %d", self._owner, self._term.number)
            for callback in self.on_elected:
                callback()
        self._trusted_until = trusted_until(sent_at, self._ttl)
        return self._renew_s

    def _resign(self, why: str) -> None:
        led, self._hold, self._term = self._term, None, None
        if led is not None:
            log.info("%s no longer leads: %s", self._owner, why)
            for callback in self.on_resigned:
                callback()

    async def hand_over(self) -> None:
        """Let go of the lease, so that a stand-by takes over at once."""
        hold = self._hold
        self._resign("shutting down")
        if hold is not None:
            await self._lease.release(hold)
