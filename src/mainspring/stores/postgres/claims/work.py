"""Claims, heartbeats and output: what workers ask of the store. What they report is in `reports`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import cached_property

import msgspec

from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Claim, Event, LogLine, Progress, TaskNotice, Worker
from mainspring.core.runs.priority import Ordering
from mainspring.core.text import clean
from mainspring.store import Audit, Outlook, Renewal, StandingClaim
from mainspring.stores.postgres.claims.claim import Claims, look_columns
from mainspring.stores.postgres.ends.reports import hand_back
from mainspring.stores.postgres.server.database import Database, Transaction
from mainspring.stores.postgres.submissions.idle_workers import Offers
from mainspring.stores.rows.trail import audited
from mainspring.stores.sql import load_queries

_Q = load_queries("postgres", "work")
_OFFERS = load_queries("postgres", "offers")
_encode = msgspec.json.Encoder().encode
_COLUMNS = tuple(name for name in Worker.__struct_fields__ if name not in ("priorities", "notices"))
_notice = msgspec.json.Decoder(TaskNotice).decode
_pools = msgspec.json.Decoder(tuple[tuple[int, int], ...]).decode


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
            await tx.run(_Q["register"], *_worker_row(worker, tx))
            if worker.state != "active":
                await tx.run(_OFFERS["withdraw"], worker.id)
            if worker.state == "stopped":
                # A run may have been handed to it at the last moment, without its knowledge.
                await hand_back(tx, [(row[0], row[1]) for row in await tx.fetch(_OFFERS["unheard"], worker.id)])
            kind = {"active": "worker.started", "draining": "worker.draining"}.get(worker.state, "worker.stopped")
            tx.events.append(Event(kind, tx.now, worker.namespace, worker=worker.id))

        await self._db.write(audited(work, audit))

    async def list_workers(self, namespace: str, worker_id: str | None = None) -> list[Worker]:
        query = (_Q["workers"], namespace) if worker_id is None else (_Q["worker"], namespace, worker_id)
        return [_worker(row) for row in await self._db.read(lambda tx: tx.fetch(*query))]

    async def request_drain(
        self, namespace: str, worker_id: str, *, audit: Audit[Worker | None] | None = None
    ) -> Worker | None:
        async def work(tx: Transaction) -> Worker | None:
            row = await tx.fetchrow(_Q["request_drain"], namespace, worker_id, tx.given)
            return None if row is None else _worker(row)

        return await self._db.write(audited(work, audit))

    async def announced(self, namespace: str, task: str) -> list[Worker]:
        rows = await self._db.read(lambda tx: tx.fetch(_Q["announced"], namespace, task))
        return [msgspec.structs.replace(_worker(row[:-1]), notices=(_notice(row[-1]),)) for row in rows]

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


def _worker_row(worker: Worker, tx: Transaction) -> tuple[object, ...]:
    return (
        worker.id,
        worker.namespace,
        worker.app,
        worker.host,
        worker.pid,
        worker.queues,
        worker.regions,
        worker.tasks,
        worker.concurrency,
        worker.running,
        worker.state,
        worker.started_at or tx.now,
        tx.given,
        _encode(worker.notices).decode(),
        worker.version,
        _encode(worker.pools).decode(),
    )


def _worker(row: Sequence[object]) -> Worker:
    values = dict(zip(_COLUMNS, row, strict=True))
    values["pools"] = _pools(str(values["pools"]))
    return msgspec.convert(values, Worker)
