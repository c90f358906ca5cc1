"""What the API keeps: answers to repeated requests, limits, revoked tokens, the audit trail."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.core.instants import Duration, Instant
from mainspring.core.load.rate_limits import Allowance, Pace, allow
from mainspring.store import Audit, Change, Reply, Reserved
from mainspring.stores.rows.replies import reservation
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.file.connection import schema_status
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction
from mainspring.stores.sqlite.history.trail import audited, note

_Q = load_queries("sqlite", "api")


class Api:
    """See `store.ApiStore`."""

    _db: Database

    async def reserve_reply(
        self, scope: str, key: str, fingerprint: str, *, hold: Duration, keep: Duration
    ) -> Reserved:
        def work(tx: Transaction) -> Reserved:
            row = tx.execute(_Q["find_reply"], (scope, key, tx.now)).fetchone()
            found = reservation(row, key, fingerprint, tx.now)
            if found.reply is None and not found.busy:
                tx.execute(_Q["reserve"], (scope, key, fingerprint, found.since, tx.now + hold, tx.now + keep))
            return found

        return await self._db.write(work, promised=False, quick=True)

    async def keep_reply(
        self, scope: str, key: str, fingerprint: str, reply: Reply | None, *, keep: Duration = 0
    ) -> None:
        def work(tx: Transaction) -> None:
            if reply is None:
                tx.execute(_Q["let_go"], (scope, key, fingerprint))
            else:
                tx.execute(_Q["keep"], (reply.status, reply.body, tx.now + keep, scope, key, fingerprint))

        await self._db.write(work, promised=False, quick=True)

    async def spend(self, name: str, cost: int, pace: Pace) -> Allowance:
        def work(tx: Transaction) -> Allowance:
            row = tx.execute(_Q["paid_at"], (name,)).fetchone()
            allowance = allow(row[0] if row else 0, tx.now, cost, pace)
            if allowance.granted:
                tx.execute(_Q["pay"], (name, allowance.paid_at))
            return allowance

        return await self._db.write(work, promised=False, quick=True)

    async def revoke(self, name: str, keep: Duration, *, audit: Audit[None] | None = None) -> None:
        def work(tx: Transaction) -> None:
            tx.execute(_Q["revoke"], (name, tx.now, tx.now + keep))

        await self._db.write(audited(work, audit))

    async def revocations(self) -> dict[str, Instant]:
        return dict(await self._db.read(lambda tx: tx.execute(_Q["revocations"], (tx.now,)).fetchall()))

    async def note_changes(self, changes: Sequence[Change]) -> None:
        await self._db.write(lambda tx: note(tx, changes), quick=True)

    async def schema(self) -> tuple[int, int]:
        status = await self._db.read(lambda tx: schema_status(tx.connection))
        return status.version, status.latest


def forget(tx: Transaction, keep_changes: Duration, keep_runs: Duration, limit: int) -> int:
    """Delete expired rows; returns how many. Single submissions are kept as long as runs."""
    return (
        tx.execute(_Q["forget_replies"], (tx.now, limit)).rowcount
        + tx.execute(_Q["forget_paces"], (tx.now,)).rowcount
        + tx.execute(_Q["forget_revocations"], (tx.now,)).rowcount
        + tx.execute(_Q["forget_notes"], (tx.now - keep_changes, limit)).rowcount
        + tx.execute(_Q["forget_submissions"], (tx.now - keep_runs, limit)).rowcount
    )
