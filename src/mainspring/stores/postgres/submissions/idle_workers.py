"""Offers: an idle worker registers an offer with the server, and is given single submissions that are already claimed
for it.

An offer is good for a moment, and is repeated for as long as the worker has nothing to do. What is handed over comes
through the process's listener, together with the instant, by this process's own clock, at which the offer was sent: the
claim is no older than that, however late it is heard of. One that is not heard of at all runs out like any other.

However many workers have nothing to do, `MOST_STANDING` of them stand by: they listen, offer, and look as soon as there
may be work. The others neither listen nor offer; they look once a second, which is also when they see that fewer stand
by and take a place among them. A worker that is full makes no offer and does not count, so under load as many come to
stand by as there is work for. A worker stands by when it starts, and leaves with its next offer, once a second, if
others were enough: also under load, when it is woken so often that it never looks. If all woke at each notification, a
fleet would spend its time on being woken and on claims that find nothing: 30 workers did a fifth of the runs of two.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final

import msgspec

from mainspring.core.instants import SECOND, Duration
from mainspring.core.load.leadership import LEASE
from mainspring.core.model import Claim, Worker
from mainspring.errors import MainspringError
from mainspring.store import Outlook, StandingClaim
from mainspring.stores.postgres.server.database import Database
from mainspring.stores.postgres.server.errors import DRIVER_ERRORS
from mainspring.stores.sql import load_queries

log = logging.getLogger("mainspring")

_Q = load_queries("postgres", "offers")
_decode = msgspec.json.Decoder(tuple[int, list[Any]]).decode

GOOD: Final[Duration] = 2 * SECOND
"""How long an offer is valid; at most a quarter of a claim. A run that is handed to a suspended worker waits until its
claim has expired."""
FRESH_S: Final = 1.0
"""An offer is not repeated sooner than this."""
LINGER_S: Final = 1.0
"""A worker that claims from the store for less than this time need not withdraw its offer."""
MOST_STANDING: Final = 2
"""How many idle workers, for each set of tasks, queues and regions, are woken when there is work."""
DUTY_S: Final = 5.0
"""How long a worker stays on stand-by, even if others have become idle: starting to listen costs the server a
process."""
ADDRESS_KEPT_S: Final = 2.0
"""How long a worker listens after it stood by: a run handed to it at the last moment may be on its way."""
ANY_NUMBER: Final = 1_000_000
HEARTBEAT: Final[Duration] = 2 * SECOND
"""A query counts as a heartbeat if the last heartbeat is older than this."""


class Offers:
    """The offers of this process, made for the worker that most recently became idle."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._standing: StandingClaim | None = None
        self._last: StandingClaim | None = None
        """The receivers of runs that arrive: a run may be under way when an offer is withdrawn."""
        self._out: tuple[str, str] | None = None
        """The worker whose offer is with the server, and the address at which it listens."""
        self._offered_at = 0.0
        self._saying: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.on_duty = True
        """Whether the worker is among those that stand by."""
        self._duty_until = 0.0
        db.listener.on_hand = self._handed
        db.listener.on_address = self._have_address

    def leave_claim(self, standing: StandingClaim | None) -> None:
        """See `WorkStore.leave_claim`. On the worker's loop."""
        self._loop = asyncio.get_running_loop()
        if standing is None:
            if self._standing is not None:
                self._loop.call_later(LINGER_S, self._forget, self._standing)
        elif standing.limit <= 0:
            self._standing = None
            self._look()
        else:
            self._standing = self._last = standing
            if self.on_duty:
                self._db.listener.keep_address(True)
            self._look()

    def _forget(self, standing: StandingClaim) -> None:
        """The worker has claimed from the store for long, and has not offered again."""
        if self._standing is standing:
            self._standing = None
            self._look()

    def _have_address(self) -> None:
        """On the listener's thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # The worker's loop has ended.
                self._loop.call_soon_threadsafe(self._look)

    def _look(self) -> None:
        """Send the current offer to the server, unless the server has it already."""
        if self._saying is None and not self._is_known():
            self._saying = asyncio.get_running_loop().create_task(self._say())

    def _is_known(self) -> bool:
        if self._standing is None or not self.on_duty:
            return self._out is None
        address = self._db.listener.address
        if address is None:
            return True  # A process that does not listen cannot offer anything.
        fresh = self._db.monotonic() < self._offered_at + FRESH_S
        return fresh and self._out == (self._standing.worker.id, address)

    async def _say(self) -> None:
        try:
            if self._standing is not None and self.on_duty:
                await self._offer(self._standing)
            elif self._out is not None:
                worker, self._out = self._out[0], None
                await self._db.alone(_Q["withdraw"], worker)
        except MainspringError as error:
            log.debug("an offer could not be made or taken back: %s", error)
        finally:
            self._saying = None
        self._look()  # The offer may have changed meanwhile.

    async def _offer(self, standing: StandingClaim) -> None:
        worker, address, now = standing.worker, self._db.listener.address, self._db.monotonic()
        if address is None:
            return
        self._out, self._offered_at = (worker.id, address), now
        most = self._most(now)
        ((others, before),) = await self._db.alone(
            _Q["offer"],
            *(worker.id, worker.namespace, worker.queues, worker.regions, worker.tasks, address, standing.ttl),
            *(int(now * SECOND), self._db.clock.given(), min(GOOD, standing.ttl // 4), most),
        )
        self._take_or_leave_duty(most, others, before)

    def _most(self, now: float) -> int:
        """How many may stand by. A worker that has just begun to does not leave."""
        return MOST_STANDING if now >= self._duty_until else ANY_NUMBER

    async def look(self, worker: Worker, places: Sequence[Sequence[object]], idle: bool) -> Outlook:
        """When the next run is due, and whether to stay on stand-by. `places` are columns: queues, regions,
        priorities."""
        db, sent_at = self._db, self._db.monotonic()
        standing = self._standing if self.on_duty else None
        address = db.listener.address if standing is not None else None
        ttl = standing.ttl if standing is not None else 0
        most = self._most(sent_at)
        if address is not None:
            self._out, self._offered_at = (worker.id, address), sent_at
        values = (
            *(db.clock.given(), worker.id, worker.namespace, worker.queues, worker.regions, worker.tasks, idle),
            *(HEARTBEAT, address, ttl, int(sent_at * SECOND), min(GOOD, ttl // 4), most, *places, LEASE),
        )
        ((now, others, before, due_at, schedulers, drain),) = await self._ask(address, values)
        db.clock.learn(now, sent_at)
        db.schedulers = (sent_at, schedulers)
        self._take_or_leave_duty(most, others, before)
        return Outlook(due_at, self.on_duty, idle, bool(drain))

    async def _ask(self, address: str | None, values: tuple[object, ...]) -> list[Any]:
        """Through the listening connection, if there is one: the query then also shows that the connection is alive."""
        if address is not None:
            with suppress(*DRIVER_ERRORS):
                return await self._db.listener.ask(_Q["look"], *values)
        return await self._db.alone(_Q["look"], *values)

    def _take_or_leave_duty(self, most: int, others: int, before: int) -> None:
        if self.on_duty and before >= most:
            self.on_duty, self._out = False, None
            asyncio.get_running_loop().call_later(ADDRESS_KEPT_S, self._drop_address)
        elif not self.on_duty and others < MOST_STANDING:
            self.on_duty, self._duty_until = True, self._db.monotonic() + DUTY_S
            self._db.listener.keep_address(True)

    def _drop_address(self) -> None:
        if not self.on_duty:
            self._db.listener.keep_address(False)

    def _handed(self, message: str) -> None:
        """On the listener's thread."""
        offered_at, claim = _decode(message)
        if self._last is not None:
            with suppress(RuntimeError):  # The worker's loop has ended; what it was given runs out.
                self._last.take([Claim(*claim)], offered_at / SECOND)
