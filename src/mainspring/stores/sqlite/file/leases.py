"""Leases and terms in the database."""

from __future__ import annotations

from mainspring.core.instants import Duration
from mainspring.core.load.leadership import OVERTAKEN
from mainspring.core.model import Hold, Node, Term
from mainspring.stores.rows.term_rows import begin_term, check_in, end_term
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction, at_once

_Q = load_queries("sqlite", "leases")


class Leases:
    """See `store.LeaseStore`."""

    _db: Database

    async def acquire(self, name: str, owner: str, ttl: Duration) -> Hold | None:
        def work(tx: Transaction) -> Hold | None:
            tx.execute(_Q["end_silent"], (name, owner, ttl, tx.now, OVERTAKEN))
            row = tx.execute(_Q["acquire"], (name, owner, tx.now + ttl, tx.now)).fetchone()
            return None if row is None else Hold(name, owner, row[0], ttl, tx.now + ttl)

        return await self._db.write(work, promised=False, quick=True)

    async def renew_hold(self, hold: Hold) -> Hold | None:
        def work(tx: Transaction) -> Hold | None:
            expires_at = tx.now + hold.ttl
            cursor = tx.execute(_Q["renew"], (expires_at, hold.name, hold.owner, hold.token, tx.now))
            return Hold(hold.name, hold.owner, hold.token, hold.ttl, expires_at) if cursor.rowcount else None

        return await self._db.write(work, promised=False, quick=True)

    async def release(self, hold: Hold) -> None:
        def work(tx: Transaction) -> None:
            tx.execute(_Q["release"], (hold.name, hold.owner, hold.token))
            tx.changed = True

        await self._db.write(work, promised=False, quick=True)

    async def holders(self, name: str) -> list[str]:
        rows = await self._db.read(lambda tx: tx.execute(_Q["holders"], (name, tx.now)).fetchall(), quick=True)
        return sorted(row[0] for row in rows)

    async def begin_term(self, name: str, owner: str) -> Term:
        return await self._db.write(lambda tx: at_once(begin_term(tx, name, owner)), promised=False, quick=True)

    async def end_term(self, term: Term, reason: str) -> None:
        await self._db.write(lambda tx: at_once(end_term(tx, term, reason)), promised=False, quick=True)

    async def check_in(self, node: Node) -> None:
        await self._db.write(lambda tx: at_once(check_in(tx, node)), promised=False, quick=True)

    async def leave(self, name: str) -> None:
        await self._db.write(lambda tx: tx.execute(_Q["leave"], (name,)) and None, promised=False, quick=True)
