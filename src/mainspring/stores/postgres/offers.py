"""Offers: a worker with nothing to do lets the server know, and is given lone submissions with the claim already made.

An offer is good for a moment, and is repeated for as long as the worker has nothing to do. What is handed over comes
through the process's listener, together with the instant, by this process's own clock, at which the offer was sent: the
claim is no older than that, however late it is heard of. One that is not heard of at all runs out like any other.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from typing import Any, Final

import msgspec

from mainspring.core.instants import SECOND, Duration
from mainspring.core.model import Claim
from mainspring.errors import MainspringError
from mainspring.store import Standing
from mainspring.stores.postgres.database import Database
from mainspring.stores.sql import load_queries

log = logging.getLogger("mainspring")

_Q = load_queries("postgres", "offers")
_decode = msgspec.json.Decoder(tuple[int, list[Any]]).decode

GOOD: Final[Duration] = 2 * SECOND
"""How long an offer is good for, or a quarter of a claim, if that is less: what is handed to a worker that stands still
waits until its claim has run out."""
FRESH_S: Final = 0.5
"""An offer is not repeated sooner than this."""
LINGER_S: Final = 0.005
"""Who has something to do for so short a time need not take its offer back."""


class Offers:
    """Those of one process: of the worker that stood there last."""

    def __init__(self, db: Database) -> None:
        self._db = db
        self._standing: Standing | None = None
        self._last: Standing | None = None
        """Who is given what comes: some of it may be under way when an offer is taken back."""
        self._out: tuple[str, str] | None = None
        """The worker whose offer is with the server, and through which ear it will hear."""
        self._offered_at = 0.0
        self._saying: asyncio.Task[None] | None = None
        db.listener.on_hand = self._handed

    def stand(self, standing: Standing | None) -> None:
        """See `WorkStore.stand`. On the worker's loop."""
        before, self._standing = self._standing, standing
        if standing is not None:
            self._last = standing
            self._look()
        elif before is not None:
            asyncio.get_running_loop().call_later(LINGER_S, self._look)

    def _look(self) -> None:
        """Whether the server knows what holds by now; if not, say it."""
        if self._saying is None and not self._is_known():
            self._saying = asyncio.get_running_loop().create_task(self._say())

    def _is_known(self) -> bool:
        if self._standing is None:
            return self._out is None
        ear = self._db.listener.ear
        if ear is None:
            return True  # Nothing can be offered by whoever cannot hear.
        fresh = self._db.monotonic() < self._offered_at + FRESH_S
        return fresh and self._out == (self._standing.worker.id, ear)

    async def _say(self) -> None:
        try:
            if self._standing is not None:
                await self._offer(self._standing)
            elif self._out is not None:
                worker, self._out = self._out[0], None
                await self._db.alone(_Q["withdraw"], worker)
        except MainspringError as error:
            log.debug("an offer could not be made or taken back: %s", error)
        finally:
            self._saying = None
        self._look()  # It may have changed its mind meanwhile.

    async def _offer(self, standing: Standing) -> None:
        worker, ear, now = standing.worker, self._db.listener.ear, self._db.monotonic()
        if ear is None:
            return
        self._out, self._offered_at = (worker.id, ear), now
        await self._db.alone(
            _Q["offer"],
            *(worker.id, worker.namespace, worker.queues, worker.regions, worker.tasks, ear, standing.ttl),
            *(int(now * SECOND), self._db.clock.given(), min(GOOD, standing.ttl // 4)),
        )

    def _handed(self, message: str) -> None:
        """On the listener's thread."""
        offered_at, claim = _decode(message)
        if self._last is not None:
            with suppress(RuntimeError):  # The worker's loop has ended; what it was given runs out.
                self._last.take([Claim(*claim)], offered_at / SECOND)
