"""Leadership: holds the lease, begins a term, and knows until when it may trust either."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeVar

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.load.leadership import LEASE, trusted_until
from mainspring.core.model import Hold, Term
from mainspring.errors import StoreError
from mainspring.lease import Lease, LeaseTimes
from mainspring.services.loop import Loop, log, within
from mainspring.services.scheduler.standin import StandIn
from mainspring.settings import Settings
from mainspring.store import LeaseStore

T = TypeVar("T")

SHORTEST_S = 0.1
"""A candidate is woken by every change in the store, since one of them may be that the leader released the lease. It
asks at most this often. A lease that is watched says itself when it is free; then changes in the store mean nothing."""
NEXT = ":next"
"""A node that leads nothing holds the lease of this suffix beside the one that it waits for."""


def times_of(lease: Lease, settings: Settings) -> LeaseTimes:
    """The times of the settings, where they were set; else the lease's own defaults, where it has any."""
    usual = Settings()
    is_set = (settings.lease_ttl, settings.lease_renew) != (usual.lease_ttl, usual.lease_renew)
    if lease.times is not None and not is_set:
        return lease.times
    return LeaseTimes(settings.lease_ttl, settings.lease_renew, settings.lease_renew)


class Elector(Loop):
    """Tries for the lease until it has it, then renews it. `term()` is the only way to ask whether this node leads.

    Where jobs are shared by several leaders, each node has an elector for each lease, and `led` says how many of them
    it leads. A node that leads none waits for each; one that leads several then releases one. So as many nodes lead as
    there are leases.

    A lease that pushes its loss ends leadership at once; the next turn asks whether the hold is still good.
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
        """Its place behind the leader, where this node leads nothing."""
        self._stand_back_until = 0.0
        times = times_of(lease, settings)
        self._ttl = times.ttl
        self._renew_s, self._retry_s = times.renew_every / SECOND, times.retry_every / SECOND
        self._hold: Hold | None = None
        self._term: Term | None = None
        self._trusted_until = 0.0
        self._shortest_s = self._retry_s if lease.watched else SHORTEST_S
        self._tried_at = -self._shortest_s
        self._watched: int | None = None
        """The token of the hold whose loss would be pushed."""
        self._doubts = 0
        """How often a loss was pushed."""
        self._stop_watching: Callable[[], None] = lambda: None
        self._stop_waiting: Callable[[], None] | None = None
        self._ended: tuple[Term, str] | None = None
        """The last term of this node and why it ended, until that is written down."""
        self._gives_way_s: float | None = None
        """Set where another node leads by a lease that does not answer this one."""
        self.on_elected: list[Callable[[], None]] = []
        self.on_resigned: list[Callable[[], None]] = []
        self.on_change: list[Callable[[Term, str | None], None]] = []
        """Called with each term that begins, and again with the reason when it has ended."""

    def term(self) -> Term | None:
        """The term of this node, if it leads and may still trust that it does."""
        if self._term is not None and self.clock.monotonic() < self._trusted_until:
            return self._term
        return None

    async def turn(self) -> float:
        try:
            return await self._turn()
        except GeneratorExit:
            self._ended = None  # The event loop has ended, so nothing can be awaited: the next term closes this one.
            raise
        finally:
            await self._note_end()

    async def _turn(self) -> float:
        if self._stop_waiting is None:
            self._stop_waiting = self._lease.on_free(self._lease_name, self._hear_free)
        sent_at, doubts = self.clock.monotonic(), self._doubts
        if sent_at >= self._trusted_until:
            self._resign("could not renew in time")
        if self._gives_way_s is not None:
            self._stand_back_until, self._gives_way_s = sent_at + self._gives_way_s, None
            await self._let_go("another node leads by the lease")
        if isinstance(self._lease, StandIn) and self._lease.is_cut_off:
            self._stand_back_until = sent_at + self._ttl / SECOND
            await self._let_go("the store does not answer this node")
        if self._hold is not None:
            self._hold = await self._in_time(self._lease.renew(self._hold))
            if self._hold is None:
                self._resign("the lease went to another node")
                return 0.0
        else:
            earliest = max(self._tried_at + self._shortest_s, self._stand_back_until)
            if sent_at < earliest:
                return earliest - sent_at
            self._hold = await self._in_time(self._lease.acquire(self._lease_name, self._owner, self._ttl))
            self._tried_at = sent_at
        self._watch()
        if doubts != self._doubts:
            return 0.0  # The answer may be older than the doubt: ask again.
        if self._hold is not None:
            await self._lead(trusted_until(sent_at, self._hold.ttl))
        if self._led is not None:
            await self._share()
        return self._retry_s if self._hold is None else self._renew_s

    def _watch(self) -> None:
        """Hear of the loss of the present hold, and of no earlier one."""
        token = None if self._hold is None else self._hold.token
        if token != self._watched:
            self._stop_watching()
            self._watched = token
            self._stop_watching = lambda: None
            if self._hold is not None:
                self._stop_watching = self._lease.on_lost(self._hold, self._hear_lost)

    def _hear_lost(self, reason: str) -> None:
        self._doubts += 1
        self._trusted_until = 0.0
        self._resign(f"the lease is in doubt: {reason}")
        self.wake()

    def _hear_free(self) -> None:
        if self._hold is None:
            self._tried_at = -self._shortest_s
            self.wake()

    async def _in_time(self, call: Awaitable[T]) -> T:
        """An answer that takes longer than the lease lasts is of no use. Over a dead connection it never comes."""
        return await within(self.clock, self._ttl / SECOND, call)

    def _count_led(self) -> int:
        return 0 if self._led is None else self._led()

    async def _share(self) -> None:
        """Take the place behind the leader where this node leads nothing; release the lease where it leads several and
        another node waits."""
        name, led = self._lease_name + NEXT, self._count_led()
        if led == 0 and self._hold is None:
            self._place = await self._lease.renew(self._place) if self._place is not None else None
            self._place = self._place or await self._lease.acquire(name, self._owner, self._ttl)
            return
        place, self._place = self._place, None
        if place is None and led > 1 and self._hold is not None:
            place = await self._lease.acquire(name, self._owner, self._ttl)
            if place is None and led == self._count_led():  # Of several electors that see it, one releases its lease.
                self._stand_back_until = self.clock.monotonic() + self._ttl / SECOND
                await self._let_go("another node leads nothing")
        if place is not None:
            await self._lease.release(place)

    def _longest_pause(self) -> float:
        """No longer than the usual interval: a leader has little time to renew, and a cluster without one has none."""
        return self._renew_s

    async def _lead(self, until: float) -> None:
        if self._term is None:
            if self.clock.monotonic() >= until:
                return  # The answer came too late: another node may lead by now, and must not be overtaken.
            self._term = await self._in_time(self._store.begin_term(self._lease_name, self._owner))
            self._trusted_until = until
            log.info("%s leads %s, term %d", self._owner, self._lease_name, self._term.number)
            for callback in self.on_elected:
                callback()
            for notify in self.on_change:
                notify(self._term, None)
        self._trusted_until = until

    def begin_anew(self) -> None:
        """A node that did not know that it had lost the lease began a later term: begin one that is later still."""
        self._resign("another node has begun a term")
        self._gives_way_s = self._lease.give_way_s if isinstance(self._lease, StandIn) else None
        self.wake()

    def _resign(self, why: str) -> None:
        led, self._term = self._term, None
        if led is not None:
            log.info("%s no longer leads %s: %s", self._owner, self._lease_name, why)
            self._ended = (led, why)
            for callback in self.on_resigned:
                callback()
            for notify in self.on_change:
                notify(led, why)

    async def _note_end(self) -> None:
        """Write down why this node's last term ended. Without the store it stays open until the next term begins."""
        ended, self._ended = self._ended, None
        if ended is not None and ended[0] != self._term:
            try:
                await within(self.clock, self._ttl / SECOND, self._store.end_term(*ended))
            except StoreError as error:
                log.debug("the end of a term could not be written down: %s", error)

    async def hand_over(self) -> None:
        """Stop, and release the lease, so that a candidate takes over at once."""
        await self.halt()
        if self._stop_waiting is not None:
            self._stop_waiting()
        await self._let_go("shutting down")
        if self._place is not None:
            await self._lease.release(self._place)

    async def _let_go(self, why: str) -> None:
        self._resign(why)
        await self._note_end()  # Before the next term begins, which would close this one.
        hold, self._hold = self._hold, None
        self._watch()
        if hold is not None:
            await self._in_time(self._lease.release(hold))
