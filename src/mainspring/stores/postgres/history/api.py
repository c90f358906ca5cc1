"""What the API keeps: answers to repeated requests, limits, revoked tokens, the audit trail."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring.core.instants import Duration, Instant
from mainspring.core.load.rate_limits import Allowance, Pace, allow
from mainspring.store import Audit, Change, Reply, Reserved
from mainspring.stores.postgres.history.trail import audited, note
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.rows.replies import reservation
from mainspring.stores.sql import load_migrations, load_queries

_Q = load_queries("postgres", "api")


class Api:
    """See `store.ApiStore`. Only revocations and the audit trail wait for the disk: the rest is computed again after a
    power cut."""

    _db: Database

    async def reserve_reply(
        self, scope: str, key: str, fingerprint: str, *, hold: Duration, keep: Duration
    ) -> Reserved:
        async def work(tx: Transaction) -> Reserved:
            await tx.fetchval(_Q["lock_reply"], scope, key)
            row = await tx.fetchrow(_Q["find_reply"], scope, key, tx.now)
            found = reservation(row, key, fingerprint, tx.now)
            if found.reply is None and not found.busy:
                await tx.run(_Q["reserve"], scope, key, fingerprint, found.since, tx.now + hold, tx.now + keep)
            return found

        return await self._db.write(work, durable=False)

    async def keep_reply(
        self, scope: str, key: str, fingerprint: str, reply: Reply | None, *, keep: Duration = 0
    ) -> None:
        async def work(tx: Transaction) -> None:
            if reply is None:
                await tx.run(_Q["let_go"], scope, key, fingerprint)
            else:
                await tx.run(_Q["keep"], scope, key, fingerprint, reply.status, reply.body, tx.now + keep)

        await self._db.write(work, durable=False)

    async def spend(self, name: str, cost: int, pace: Pace) -> Allowance:
        async def work(tx: Transaction) -> Allowance:
            allowance = allow(await tx.fetchval(_Q["paid_at"], name), tx.now, cost, pace)
            if allowance.granted:
                await tx.run(_Q["pay"], name, allowance.paid_at)
            return allowance

        return await self._db.write(work, durable=False)

    async def revoke(self, name: str, keep: Duration, *, audit: Audit[None] | None = None) -> None:
        async def work(tx: Transaction) -> None:
            await tx.run(_Q["revoke"], name, tx.now, tx.now + keep)

        await self._db.write(audited(work, audit))

    async def revocations(self) -> dict[str, Instant]:
        return dict(await self._db.read(lambda tx: tx.fetch(_Q["revocations"], tx.now)))

    async def note_changes(self, changes: Sequence[Change]) -> None:
        await self._db.write(lambda tx: note(tx, changes))

    async def schema(self) -> tuple[int, int]:
        version = await self._db.read(lambda tx: tx.fetchval(_Q["schema"]))
        return int(version), len(load_migrations("postgres"))


async def forget(tx: Transaction, keep_changes: Duration, keep_runs: Duration, limit: int) -> int:
    """Delete expired rows; returns how many. Single submissions are kept as long as runs."""
    return (
        await tx.run(_Q["forget_replies"], tx.now, limit)
        + await tx.run(_Q["forget_paces"], tx.now)
        + await tx.run(_Q["forget_revocations"], tx.now)
        + await tx.run(_Q["forget_notes"], tx.now - keep_changes, limit)
        + await tx.run(_Q["forget_submissions"], tx.now - keep_runs, limit)
    )
