"""Leases and terms in the database, by the server's clock."""

from __future__ import annotations

from mainspring.core.instants import Duration
from mainspring.core.load.leadership import LEASE, OVERTAKEN
from mainspring.core.model import Hold, Node, Term
from mainspring.stores.postgres.server.database import Database
from mainspring.stores.rows.term_rows import begin_term, check_in, end_term
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "leases")

SEEN_S = 2.0
"""The holder of the scheduler's lease is read again if it was read longer ago than this."""


class Leases:
    """See `store.LeaseStore`."""

    _db: Database

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        rows = await self._db.alone(_Q["acquire"], name, owner, ttl, self._db.clock.given(), OVERTAKEN)
        return Hold(name, owner, rows[0][0], ttl, rows[0][1]) if rows else None

    async def renew_hold(self, hold: Hold) -> Hold | None:
        given, sent_at = self._db.clock.given(), self._db.monotonic()
        rows = await self._db.alone(_Q["renew"], hold.name, hold.owner, hold.token, hold.ttl, given)
        if not rows:
            return None
        self._db.clock.learn(rows[0][0] - hold.ttl, sent_at)
        return Hold(hold.name, hold.owner, hold.token, hold.ttl, rows[0][0])

    async def release(self, hold: Hold) -> None:
        await self._db.alone(_Q["release"], hold.name, hold.owner, hold.token)
        self._db.announce()  # A stand-by need not wait until it looks by itself.

    async def holders(self, name: str) -> list[str]:
        seen_at, schedulers = self._db.schedulers
        if name == LEASE and self._db.monotonic() < seen_at + SEEN_S:
            return sorted(schedulers)
        rows = await self._db.read(lambda tx: tx.fetch(_Q["holders"], name, tx.given))
        return sorted(row[0] for row in rows)

    async def begin_term(self, name: str, owner: str) -> Term:
        await self._db.end_suspended()  # The previous leader may have been suspended while it wrote under its term.
        return await self._db.write(lambda tx: begin_term(tx, name, owner))

    async def end_term(self, term: Term, reason: str) -> None:
        await self._db.write(lambda tx: end_term(tx, term, reason))

    async def check_in(self, node: Node) -> None:
        await self._db.write(lambda tx: check_in(tx, node))

    async def leave(self, name: str) -> None:
        await self._db.alone(_Q["leave"], name)
