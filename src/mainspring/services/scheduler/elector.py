"""Who plans: holds the lease, begins a term, and knows until when it may trust either."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.load.leadership import LEASE, trusted_until
from mainspring.core.model import Hold, Term
from mainspring.lease import Lease
from mainspring.services.loop import Loop, log, within
from mainspring.settings import Settings
from mainspring.store import LeaseStore

T = TypeVar("T")

SHORTEST_S = 0.1
"""A stand-by is told of every change, since one of them may be that the leader let go: it need not look at each."""
NEXT = ":next"
"""Whoever leads nothing holds the lease of this name beside the one that it would like to have."""


class Elector(Loop):
    """Tries for the lease until it has it, then renews it. `term()` is the only way to ask whether this node leads.

    Where jobs are shared by several leaders, each node has an elector for each lease, and `led` says how many of them
    it leads. A node that leads none stands in line for each; one that leads several then lets one go. So as many nodes
    lead as there are leases.
    """

    name = "elector"

    def __init__(
        self,
        store: LeaseStore,
        lease: Lease,
        owner: str,
        settings: Settings,
        clock: Clock,
        random: Random,
        *,
        lease_name: str = LEASE,
        led: Callable[[], int] | None = None,
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._lease = lease
        self._owner = owner
        self._lease_name = lease_name
        self.name = self.name + lease_name.removeprefix(LEASE)
        self._led = led
        self._place: Hold | None = None
        """In line for the lease."""
        self._stand_back_until = 0.0
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
            self._hold = await self._in_time(self._lease.renew(self._hold))
            if self._hold is None:
                self._resign("the lease went to another node")
                return 0.0
        else:
            earliest = max(self._tried_at + SHORTEST_S, self._stand_back_until)
            if sent_at < earliest:
                return earliest - sent_at
            self._hold = await self._in_time(self._lease.acquire(self._lease_name, self._owner, self._ttl))
            self._tried_at = sent_at
        if self._hold is not None:
            await self._lead(trusted_until(sent_at, self._ttl))
        if self._led is not None:
            await self._share()
        return self._renew_s

    async def _in_time(self, call: Awaitable[T]) -> T:
        """An answer that takes longer than the lease lasts is of no use: over a line that is dead, it never comes."""
        return await within(self.clock, self._ttl / SECOND, call)

    def _count_led(self) -> int:
        return 0 if self._led is None else self._led()

    async def _share(self) -> None:
        """Stand in line where this node leads nothing; let go where it leads more than enough and somebody waits."""
        name, led = self._lease_name + NEXT, self._count_led()
        if led == 0 and self._hold is None:
            self._place = await self._lease.renew(self._place) if self._place is not None else None
            self._place = self._place or await self._lease.acquire(name, self._owner, self._ttl)
            return
        place, self._place = self._place, None
        if place is None and led > 1 and self._hold is not None:
            place = await self._lease.acquire(name, self._owner, self._ttl)
            if place is None and led == self._count_led():  # Of several electors that see it, one lets go.
                self._stand_back_until = self.clock.monotonic() + self._ttl / SECOND
                await self._let_go("another node leads nothing")
        if place is not None:
            await self._lease.release(place)

    def _longest_pause(self) -> float:
        """No longer than when all is well: a leader has little time to renew, and a cluster without one none."""
        return self._renew_s

    async def _lead(self, until: float) -> None:
        if self._term is None:
            if self.clock.monotonic() >= until:
                return  # The answer took so long that somebody else may lead by now, and must not be overtaken.
            self._term = await self._store.begin_term(self._lease_name, self._owner)
            self._trusted_until = until
            log.info("%s leads %s, term %d", self._owner, self._lease_name, self._term.number)
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
            log.info("%s no longer leads %s: %s", self._owner, self._lease_name, why)
            for callback in self.on_resigned:
                callback()

    async def hand_over(self) -> None:
        """Stop, and let go of the lease, so that a stand-by takes over at once."""
        await self.halt()
        await self._let_go("shutting down")
        if self._place is not None:
            await self._lease.release(self._place)

    async def _let_go(self, why: str) -> None:
        self._resign(why)
        hold, self._hold = self._hold, None
        if hold is not None:
            await self._lease.release(hold)
