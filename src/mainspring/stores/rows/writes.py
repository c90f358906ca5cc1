"""Writes of a few statements each, written once for every dialect: a store says only how it runs a transaction.

Answers to repeated requests, rate limits, revoked tokens and the audit trail; paused queues; workers that are to drain;
positions of events.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from mainspring.core.answers import Change, PausedQueue, Reply, Reserved
from mainspring.core.ids import encode_time
from mainspring.core.instants import Duration, Instant
from mainspring.core.load.rate_limits import Allowance, Pace, allow
from mainspring.core.model import Event, Worker
from mainspring.errors import Conflict
from mainspring.store import Audit
from mainspring.stores.rows.job_rows import queue_event
from mainspring.stores.rows.trail import audited, note
from mainspring.stores.rows.transaction import Transaction
from mainspring.stores.rows.worker_rows import read_worker
from mainspring.stores.sql import load_queries

T = TypeVar("T")


class StoredWrites(ABC):
    """The writes of `store.Store` that are the same statements in every dialect."""

    _api: Mapping[str, str]
    _events: Mapping[str, str]
    _insight: Mapping[str, str]
    _work: Mapping[str, str]

    @abstractmethod
    async def _change(
        self, work: Callable[[Transaction], Awaitable[T]], *, durable: bool = True, quick: bool = False
    ) -> T:
        """Run work in a transaction. What is not `durable` may be lost in a power cut; `quick` work takes no time."""

    @abstractmethod
    async def _look(self, work: Callable[[Transaction], Awaitable[T]]) -> T:
        """Run work that only reads."""

    async def reserve_reply(
        self, scope: str, key: str, fingerprint: str, *, hold: Duration, keep: Duration
    ) -> Reserved:
        async def work(tx: Transaction) -> Reserved:
            await tx.take_turns(scope, key)
            found = _reservation(
                await tx.fetchrow(self._api["find_reply"], scope, key, tx.now), key, fingerprint, tx.now
            )
            if found.reply is None and not found.busy:
                times = (found.since, tx.now + hold, tx.now + keep)
                await tx.run(self._api["reserve"], scope, key, fingerprint, *times)
            return found

        return await self._change(work, durable=False, quick=True)

    async def keep_reply(
        self, scope: str, key: str, fingerprint: str, reply: Reply | None, *, keep: Duration = 0
    ) -> None:
        async def work(tx: Transaction) -> None:
            if reply is None:
                await tx.run(self._api["let_go"], scope, key, fingerprint)
            else:
                await tx.run(self._api["keep"], scope, key, fingerprint, reply.status, reply.body, tx.now + keep)

        await self._change(work, durable=False, quick=True)

    async def spend(self, name: str, cost: int, pace: Pace) -> Allowance:
        async def work(tx: Transaction) -> Allowance:
            allowance = allow(await tx.fetchval(self._api["paid_at"], name) or 0, tx.now, cost, pace)
            if allowance.granted:
                await tx.run(self._api["pay"], name, allowance.paid_at)
            return allowance

        return await self._change(work, durable=False, quick=True)

    async def revoke(self, name: str, keep: Duration, *, audit: Audit[None] | None = None) -> None:
        async def work(tx: Transaction) -> None:
            await tx.run(self._api["revoke"], name, tx.now, tx.now + keep)

        await self._change(audited(work, audit))

    async def revocations(self) -> dict[str, Instant]:
        async def work(tx: Transaction) -> dict[str, Instant]:
            return dict(await tx.fetch(self._api["revocations"], tx.now))

        return await self._look(work)

    async def note_changes(self, changes: Sequence[Change]) -> None:
        await self._change(lambda tx: note(tx, changes), quick=True)

    async def pause_queue(
        self,
        namespace: str,
        queue: str,
        *,
        paused: bool,
        reason: str,
        audit: Audit[PausedQueue | None] | None = None,
    ) -> PausedQueue | None:
        async def work(tx: Transaction) -> PausedQueue | None:
            row = None
            if paused:
                row = await tx.fetchrow(self._insight["pause"], namespace, queue, tx.now, reason)
            else:
                await tx.run(self._insight["resume"], namespace, queue)
                tx.changed = True
            tx.events.append(queue_event(namespace, queue, reason, tx.now, paused=paused))
            return None if row is None else PausedQueue(*row)

        return await self._change(audited(work, audit))

    async def request_drain(
        self, namespace: str, worker_id: str, *, audit: Audit[Worker | None] | None = None
    ) -> Worker | None:
        async def work(tx: Transaction) -> Worker | None:
            row = await tx.fetchrow(self._work["request_drain"], namespace, worker_id, tx.given)
            return None if row is None else read_worker(row)

        return await self._change(audited(work, audit), quick=True)

    async def position_at(self, instant: Instant) -> int:
        """By halving: positions grow with time, and no index has the times."""
        relayed_from = self._insight["relayed_from"]

        async def work(tx: Transaction) -> int:
            ((first, last),) = await tx.fetch(self._insight["first_position"])
            low, high = first or last + 1, last + 1
            while low < high:
                middle = (low + high) // 2
                row = await tx.fetchrow(relayed_from, middle)
                if row is None or row[0] >= high or row[1] >= instant:
                    high = middle
                else:
                    low = row[0] + 1
            # A position within a transaction before the instant stands for the next transaction.
            row = await tx.fetchrow(relayed_from, low)
            return int(last + 1 if row is None else min(row[0], last + 1))

        return await self._look(work)

    async def note_heard(self, listener: str, position: int) -> None:
        await self._change(lambda tx: tx.run(self._events["note_heard"], listener, position))

    async def record_events(self, events: Sequence[Event]) -> None:
        async def work(tx: Transaction) -> None:
            tx.events.extend(events)

        await self._change(work)


def _reservation(row: Sequence[Any] | None, key: str, fingerprint: str, now: Instant) -> Reserved:
    """The response to a key, or that another caller computes it; otherwise the caller has to reserve the key. Conflict
    if the key was used with another fingerprint. `row` has fingerprint, since, held_until, status and body."""
    if row is None:
        return Reserved(now)
    seen, since, held_until, status, body = row
    if seen != fingerprint:
        raise Conflict(f"idempotency key {key!r} was used for another request: use a new key")
    if status is not None:
        return Reserved(since, Reply(status, body))
    return Reserved(since, busy=held_until > now)


UNHEARD_FACTOR = 4
"""How many times longer than others events are kept that some listener has not heard: a sink that is away for weeks
misses none, and one that was taken out of the settings does not keep them for ever."""


async def forget_tallies(tx: Transaction, keep: Duration, keep_runs: Duration, limit: int) -> int:
    """Delete tallies, groups of errors and their runs past their retention; returns how many rows."""
    queries = load_queries(tx.dialect, "insight")
    return (
        await tx.run(queries["forget_tallies"], tx.now - keep, limit)
        + await tx.run(queries["forget_error_runs"], encode_time(max(tx.now - keep_runs, 0)), limit)
        + await tx.run(queries["forget_errors"], tx.now - keep)
    )


async def forget(
    tx: Transaction, keep_changes: Duration, keep_runs: Duration, keep_events: Duration, limit: int
) -> int:
    """Delete events, and what the API kept and that has expired; returns how many rows. Single submissions are kept as
    long as runs."""
    queries, forget_events = load_queries(tx.dialect, "api"), load_queries(tx.dialect, "maintenance")["forget_events"]
    return (
        await tx.run(forget_events, tx.now - keep_events, limit, tx.now - UNHEARD_FACTOR * keep_events)
        + await tx.run(queries["forget_replies"], tx.now, limit)
        + await tx.run(queries["forget_paces"], tx.now)
        + await tx.run(queries["forget_revocations"], tx.now)
        + await tx.run(queries["forget_notes"], tx.now - keep_changes, limit)
        + await tx.run(queries["forget_submissions"], tx.now - keep_runs, limit)
    )
