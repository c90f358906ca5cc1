"""Leases and terms in the database, by the server's clock."""

from __future__ import annotations

from mainspring.core.instants import Duration
from mainspring.core.load.leadership import LEASE, NODES_KEPT, OVERTAKEN, TERMS_KEPT
from mainspring.core.model import Event, Hold, Node, Term
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.rows.term_rows import node_values, resigned
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
        async def work(tx: Transaction) -> Term:
            newest = await tx.fetchrow(_Q["newest_term"], name)
            if newest is not None and newest[1] == owner:
                number, opened = newest[0], await tx.fetchval(_Q["open_term"], name, newest[0], owner, tx.now)
            else:
                number = opened = await tx.fetchval(_Q["begin_term"], name, owner, tx.now)
                await tx.fetchval(_Q["close_terms"], name, number, tx.now, OVERTAKEN)
                await tx.fetchval(_Q["forget_terms"], name, number - TERMS_KEPT)
                await tx.fetchval(_Q["open_term"], name, number, owner, tx.now)
            if opened is not None:
                tx.events.append(Event("leader.elected", tx.now, worker=owner, count=number, reason=name))
            return Term(name, number, owner)

        await self._db.end_suspended()  # The previous leader may have been suspended while it wrote under its term.
        return await self._db.write(work)

    async def end_term(self, term: Term, reason: str) -> None:
        async def work(tx: Transaction) -> None:
            ended = await tx.fetchval(_Q["end_term"], term.name, term.number, term.owner, tx.now, reason)
            if ended is not None:
                tx.events.append(resigned(term, reason, tx.now))

        await self._db.write(work)

    async def check_in(self, node: Node) -> None:
        async def work(tx: Transaction) -> None:
            await tx.fetchval(_Q["check_in"], *node_values(node, tx.now))
            await tx.fetchval(_Q["forget_nodes"], tx.now - NODES_KEPT)

        await self._db.write(work)

    async def leave(self, name: str) -> None:
        await self._db.alone(_Q["leave"], name)
