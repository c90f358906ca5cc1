"""What is due, for a broker; and claims of what a broker delivered."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.broker import Notice
from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Claim, Worker
from mainspring.stores.sql import load_queries
from mainspring.stores.sqlite.claims.work import look_closer, take, without_paused
from mainspring.stores.sqlite.file.database import Database
from mainspring.stores.sqlite.file.transaction import Transaction

_Q = load_queries("sqlite", "dispatch")
_encode = msgspec.json.Encoder().encode


class Dispatching:
    """See `store.DispatchStore`."""

    _db: Database

    async def due_runs(self, limit: int) -> tuple[list[Notice], Instant | None]:
        def work(tx: Transaction) -> tuple[list[Notice], Instant | None]:
            notices: list[Notice] = []
            nexts: list[Instant | None] = []
            for line in tx.execute(_Q["lines"]).fetchall():
                notices += [Notice(*row) for row in tx.execute(_Q["due"], (*line, tx.now, limit))]
                nexts.append(tx.execute(_Q["next"], (*line, tx.now)).fetchone()[0])
            return notices, min((instant for instant in nexts if instant is not None), default=None)

        return await self._db.read(work)

    async def claim_these(self, worker: Worker, runs: Sequence[tuple[str, int]], ttl: Duration) -> list[Claim]:
        def work(tx: Transaction) -> list[Claim]:
            place = {run: number for number, run in enumerate(runs)}
            queues = without_paused(tx, worker).queues
            lists = [_encode(list(names)).decode() for names in (worker.tasks, queues, worker.regions)]
            ids = _encode([run_id for run_id, _ in runs]).decode()
            rows = tx.execute(_Q["delivered"], (ids, worker.namespace, tx.now, *lists)).fetchall()
            found = sorted(
                (place[run_id, token], seq, special)
                for run_id, token, _priority, _due_at, seq, special in rows
                if (run_id, token) in place
            )
            chosen, _ = look_closer(tx, found, len(found), first=True)
            return take(tx, worker, chosen, tx.now + ttl) if chosen else []

        return await self._db.write(work, promised=False, quick=True)
