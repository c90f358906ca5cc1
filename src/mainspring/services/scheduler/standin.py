"""Leadership while the elector is away: the store's own lease stands in.

The node that leads by the lease keeps the store's lease of the same name as well, for longer and renewed less often.
Where the lease cannot be asked, its holder goes on by that; and no other node can, unless the holder has died too. When
the lease answers again, the node that stands in takes it, or resigns if another node has it. All of this only decides
which node tries: the terms of the store decide which one leads.

The store's lease also shows whether a leader reaches the store at all: one that does not for as long as that lease
lives releases the other, so that a node that does reach it can lead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from mainspring.clock import Clock
from mainspring.core.instants import SECOND, Duration
from mainspring.core.model import Hold
from mainspring.errors import LeaseUnavailable, StoreError, StoreUnavailable
from mainspring.lease import Lease, LeaseTimes
from mainspring.services.loop import log, within
from mainspring.store import LeaseStore

PATIENCE: Final = 0.3
"""How long a leader waits for an answer, of the time to live: enough of it must be left to ask the store."""
CANDIDATE_PATIENCE: Final = 0.6
"""As PATIENCE, for a candidate: it holds no lease whose time runs out."""
ASK_AGAIN_S: Final = 2.0
"""How often a lease is asked that did not answer twice in a row. One slow answer must not keep a candidate from a lease
that becomes free meanwhile."""
LONGER: Final = 6
LONGEST: Final = 10 * SECOND
"""The store's lease lives that many times longer, up to this; never shorter than the one that it stands for."""


class StandIn:
    """See `lease.Lease`: for an elector, on a lease that is not the store's. What it asks for under other names than
    its own goes straight to the lease."""

    def __init__(self, lease: Lease, store: LeaseStore, clock: Clock, name: str) -> None:
        self._lease = lease
        self._name = name
        self._store = store
        self._clock = clock
        self._ask_at = 0.0
        self._silent = False
        """Whether the lease did not answer the last time."""
        self._ttl: Duration = 0
        """What the elector asked for: the lease may give less."""
        self._own: Hold | None = None
        """The latest hold of the lease itself: it may still be good when the lease answers again."""
        self._spare: Hold | None = None
        """The store's lease, while this node holds it."""
        self._spare_at = 0.0
        self._answered_at = 0.0
        """When the store last answered this node while it held the lease."""
        self._stands_in = False

    @property
    def is_cut_off(self) -> bool:
        """Whether this node holds the lease, and the store has not answered it for as long as its own lease lives."""
        silent_s = self._clock.monotonic() - self._answered_at
        return self._own is not None and not self._stands_in and silent_s >= _spare_ttl(self._ttl) / SECOND

    @property
    def give_way_s(self) -> float | None:
        """While the store's lease stands in: how long this node stands back once another node has begun a term, since
        that node leads by the lease itself, and takes the store's lease within this time. None otherwise."""
        return _spare_ttl(self._ttl) / SECOND if self._stands_in else None

    @property
    def times(self) -> LeaseTimes | None:
        """The times of the lease."""
        return self._lease.times

    @property
    def watched(self) -> bool:
        """As the lease is."""
        return self._lease.watched

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        if name != self._name:
            return await self._lease.acquire(name, owner, ttl)
        self._ttl = ttl
        try:
            patience_s = ttl / SECOND * CANDIDATE_PATIENCE
            hold = self._own = await self._ask(patience_s, lambda: self._lease.acquire(name, owner, ttl))
        except LeaseUnavailable as error:
            return await self._stand_in(name, owner, ttl, error)
        if hold is not None:
            self._answered_at = self._clock.monotonic()
            await self._keep_spare(hold)
        return hold

    async def renew(self, hold: Hold) -> Hold | None:
        if hold.name != self._name:
            return await self._lease.renew(hold)
        if self._stands_in:
            return await self._renew_standing_in(hold)
        try:
            renewed = await self._ask(hold.ttl / SECOND * PATIENCE, lambda: self._lease.renew(hold))
        except LeaseUnavailable as error:
            standing = await self._stand_in(hold.name, hold.owner, self._ttl, error)
            if standing is None:
                raise
            return standing
        self._own = renewed
        if renewed is not None:
            await self._keep_spare(renewed)
        else:
            await self._let_spare_go()
        return renewed

    async def release(self, hold: Hold) -> None:
        if hold.name != self._name:
            await self._lease.release(hold)
            return
        if self.is_cut_off:
            self._spare = None  # It has expired, and the store does not answer.
        stood_in, self._stands_in = self._stands_in, False
        own, self._own = self._own, None
        await self._let_spare_go()
        if not stood_in:
            await self._lease.release(hold)
        elif own is not None and self._clock.monotonic() >= self._ask_at:
            with suppress(LeaseUnavailable, StoreUnavailable):
                await within(self._clock, self._ttl / SECOND * PATIENCE, self._lease.release(own))

    def on_lost(self, hold: Hold, callback: Callable[[str], None]) -> Callable[[], None]:
        """The watched lease does not report on the store's lease, so nothing is called while that stands in."""
        return (lambda: None) if self._stands_in else self._lease.on_lost(hold, callback)

    def on_free(self, name: str, callback: Callable[[], None]) -> Callable[[], None]:
        return self._lease.on_free(name, callback)

    async def close(self) -> None:
        await self._lease.close()

    async def _ask(self, patience_s: float, call: Callable[[], Awaitable[Hold | None]]) -> Hold | None:
        if self._clock.monotonic() < self._ask_at:
            raise LeaseUnavailable("the lease has not answered lately, and is asked again in a moment")
        try:
            answer = await within(self._clock, patience_s, call())
        except (LeaseUnavailable, StoreUnavailable) as error:
            if self._silent:
                self._ask_at = self._clock.monotonic() + ASK_AGAIN_S
            self._silent = True
            raise LeaseUnavailable(str(error)) from error
        self._silent = False
        return answer

    async def _stand_in(self, name: str, owner: str, ttl: Duration, why: Exception) -> Hold | None:
        spare = None if self._spare is None else await self._store.renew_hold(self._spare)
        self._spare = spare or await self._store.acquire(name, owner, _spare_ttl(ttl))
        if self._spare is None:
            return None
        self._stands_in = True
        log.warning("%s leads %s by the store's lease: %s", owner, name, why)
        return self._as_asked(name, owner, ttl)

    async def _renew_standing_in(self, hold: Hold) -> Hold | None:
        try:
            own = self._own = await self._ask(self._ttl / SECOND * PATIENCE, lambda: self._regain(hold))
        except LeaseUnavailable:
            if self._spare is not None:
                self._spare = await self._store.renew_hold(self._spare)
            self._stands_in = self._spare is not None
            return self._as_asked(hold.name, hold.owner, hold.ttl) if self._spare is not None else None
        self._stands_in, self._answered_at = False, self._clock.monotonic()
        if own is None:
            await self._let_spare_go()  # Another leads by the lease.
        else:
            log.warning("%s leads %s by the lease again", hold.owner, hold.name)
        return own

    async def _regain(self, hold: Hold) -> Hold | None:
        """The lease itself, once it answers: the earlier hold may not have expired yet."""
        own = None if self._own is None else await self._lease.renew(self._own)
        return own or await self._lease.acquire(hold.name, hold.owner, self._ttl)

    def _as_asked(self, name: str, owner: str, ttl: Duration) -> Hold:
        """The store's lease lives longer than the one that it stands for; its holder must not count on that."""
        spare = self._spare
        return Hold(name, owner, 0 if spare is None else spare.token, ttl, 0 if spare is None else spare.expires_at)

    async def _keep_spare(self, hold: Hold) -> None:
        """Best effort: a leader may lead on for a while without it."""
        now = self._clock.monotonic()
        if now < self._spare_at:
            return
        try:
            await within(self._clock, self._ttl / SECOND * PATIENCE, self._renew_spare(hold))
        except StoreError as error:
            self._spare_at = now + self._ttl / SECOND
            log.warning("the store's lease cannot be kept beside the other: %s", error)
        else:
            self._answered_at, self._spare_at = now, now + _spare_ttl(self._ttl) / SECOND / 3

    async def _renew_spare(self, hold: Hold) -> None:
        spare = None if self._spare is None else await self._store.renew_hold(self._spare)
        self._spare = spare or await self._store.acquire(hold.name, hold.owner, _spare_ttl(self._ttl))

    async def _let_spare_go(self) -> None:
        spare, self._spare, self._spare_at = self._spare, None, 0.0
        if spare is not None:
            await self._store.release(spare)


def _spare_ttl(ttl: Duration) -> Duration:
    return max(ttl, min(ttl * LONGER, LONGEST))
