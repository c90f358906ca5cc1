"""What is due, for a broker; and claims of what a broker delivered."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from mainspring.broker import Notice
from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Claim, Worker
from mainspring.stores.postgres.claims.claim import judge, take
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "dispatch")
_encode = msgspec.json.Encoder().encode


class Dispatching:
    """See `store.DispatchStore`."""

    _db: Database

    async def due_runs(self, limit: int) -> tuple[list[Notice], Instant | None]:
        rows = await self._db.read(lambda tx: tx.fetch(_Q["due"], tx.now, limit))
        notices = [Notice(*row[:8]) for row in rows if row["id"] is not None]
        return notices, min((row["next_due"] for row in rows if row["next_due"] is not None), default=None)

    async def claim_these(self, worker: Worker, runs: Sequence[tuple[str, int]], ttl: Duration) -> list[Claim]:
        tokens = dict(runs)
        places = (worker.tasks, worker.queues, worker.regions)
        question = (list(tokens), _encode(tokens).decode(), worker.namespace, self._db.clock.now(), *places)
        rows = await self._db.alone(_Q["claim_delivered"], self._db.clock.given(), *question, worker.id, ttl)
        if not any(row["special"] for row in rows):
            claims = {row["id"]: Claim(*row[:14]) for row in rows}
            return [claims[run_id] for run_id in tokens if run_id in claims]
        return await self._claim_carefully(worker, tokens, ttl)

    async def _claim_carefully(self, worker: Worker, tokens: dict[str, int], ttl: Duration) -> list[Claim]:
        """Claim runs one by one, because one of them needs a slot at a gate, or was lost before."""

        async def work(tx: Transaction) -> list[Claim]:
            words = (tx.given, list(tokens), worker.namespace, tx.now, worker.tasks, worker.queues, worker.regions)
            rows = [row for row in await tx.fetch(_Q["delivered"], *words) if tokens[row["id"]] == row["token"] - 1]
            place = {run_id: number for number, run_id in enumerate(tokens)}
            rows.sort(key=lambda row: place[row["id"]])  # The order in which they were delivered.
            judgement = await judge(tx, worker.namespace, rows, len(rows), first=True)
            return await take(tx, worker, judgement.chosen, ttl) if judgement.chosen else []

        return await self._db.write(work)
