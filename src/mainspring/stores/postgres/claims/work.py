"""Claims, heartbeats and output: what workers ask of the store. What they report is in `reports`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import msgspec

from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Claim, Event, LogLine, Progress, Worker
from mainspring.core.runs.priority import Ordering
from mainspring.core.text import clean
from mainspring.store import Audit, Outlook, Renewal, StandingClaim
from mainspring.stores.postgres.claims.claim import Claims, look_columns
from mainspring.stores.postgres.ends.reports import hand_back
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.postgres.submissions.idle_workers import Offers
from mainspring.stores.rows.trail import audited
from mainspring.stores.rows.worker_rows import worker_values
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "work")
_OFFERS = load_queries("postgres", "offers")
_encode = msgspec.json.Encoder().encode


class Claiming:
    """See `store.WorkStore`."""

    _db: Database

    @cached_property
    def _claims(self) -> Claims:
        return Claims(self._db)

    @cached_property
    def _offers(self) -> Offers:
        return Offers(self._db)

    async def register(self, worker: Worker, *, audit: Audit[None] | None = None) -> None:
        async def work(tx: Transaction) -> None:
            await tx.run(_Q["register"], *worker_values(worker, tx))
            if worker.state != "active":
                await tx.run(_OFFERS["withdraw"], worker.id)
            if worker.state == "stopped":
                # A run may have been handed to it at the last moment, without its knowledge.
                await hand_back(tx, [(row[0], row[1]) for row in await tx.fetch(_OFFERS["unheard"], worker.id)])
            kind = {"active": "worker.started", "draining": "worker.draining"}.get(worker.state, "worker.stopped")
            tx.events.append(Event(kind, tx.now, worker.namespace, worker=worker.id))

        await self._db.write(audited(work, audit))

    async def claim(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        return await self._claims.take(worker, limit, ttl, ordering, ahead)

    def leave_claim(self, standing: StandingClaim | None) -> None:
        self._offers.leave_claim(standing)

    async def next_due(self, worker: Worker) -> Instant | None:
        return await self._claims.next_due(worker)

    async def look(self, worker: Worker, *, idle: bool = False, fresh: bool = True) -> Outlook:
        known, due_at = (False, None) if fresh else self._claims.seen(worker)
        if known:
            return Outlook(due_at, self._offers.on_duty)
        return await self._offers.look(worker, look_columns(worker), idle)

    async def renew(self, worker: Worker, claims: Collection[tuple[str, int]], ttl: Duration) -> Renewal:
        tokens = dict(claims)
        rows = await self._db.alone(
            _Q["renew"],
            *(self._db.clock.given(), worker.id, len(claims), list(tokens), _encode(tokens).decode(), ttl),
        )
        found = [row for row in rows if row[0] is not None]
        held = frozenset((run_id, token) for run_id, token, _, _ in found)
        cancels = {run_id: reason for run_id, _, requested, reason in found if requested is not None}
        return Renewal(held, cancels, drain=len(found) < len(rows))

    async def cancels(self, run_ids: Collection[str]) -> dict[str, str]:
        ids = list(run_ids)
        return dict(await self._db.read(lambda tx: tx.fetch(_Q["cancels"], ids)))

    async def record(self, lines: Sequence[LogLine], progress: Sequence[Progress]) -> None:
        async def work(tx: Transaction) -> None:
            if lines:
                rows = [(line.run_id, line.attempt, line.at, line.stream, clean(line.text)) for line in lines]
                await tx.run(_Q["add_logs"], *zip(*rows, strict=True))
            if progress:
                newest = {mark.run_id: mark for mark in progress}
                marks = [(mark.run_id, mark.token, mark.fraction, clean(mark.note)) for mark in newest.values()]
                await tx.run(_Q["set_progress"], *zip(*marks, strict=True))

        await self._db.write(work, durable=False)
