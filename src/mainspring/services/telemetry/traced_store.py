"""A store whose submissions, plans, claims and reports leave spans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import msgspec

from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Claim, Firing, Job, NewRun, Report, Term, Worker
from mainspring.core.planning.plans import Plan, PlannedFiring
from mainspring.core.runs.priority import Ordering
from mainspring.services.store_layers import StoreLayer
from mainspring.services.telemetry.tracing import Tracing
from mainspring.store import Audit, Fired, JoiningStore, StandingClaim, Store, Verdict


class TracedStore(StoreLayer):
    """See `store.Store`."""

    def __init__(self, store: Store, tracing: Tracing, on_closing: Callable[[], None] = lambda: None) -> None:
        """`on_closing` is called from a thread before the store is closed: it may block."""
        super().__init__(store)
        self.tracing = tracing
        self._on_closing = on_closing
        self.submit = self._submit
        self.trigger = self._trigger
        self.backfill = self._backfill
        self.fire = self._fire
        self.claim = self._claim
        self.claim_these = self._claim_these
        self.leave_claim = self._leave_claim
        self.report = self._report
        self.close = self._close
        if store.joining is not None:
            self.joining = _TracedJoining(store.joining, tracing)

    async def _submit(self, runs: Sequence[NewRun], *, audit: Audit[list[str]] | None = None) -> list[str]:
        with self.tracing.submitting(runs) as traced:
            return await self._store.submit(traced, audit=audit)

    async def _trigger(
        self,
        namespace: str,
        name: str,
        request_id: str,
        runs: Callable[[Job, Instant], Sequence[NewRun]],
        *,
        audit: Audit[Firing] | None = None,
    ) -> Firing:
        with self.tracing.triggering(name) as traced:
            return await self._store.trigger(
                namespace, name, request_id, lambda job, now: traced(runs(job, now)), audit=audit
            )

    async def _backfill(
        self, job: Job, firings: Sequence[PlannedFiring], *, audit: Audit[list[str]] | None = None
    ) -> list[str]:
        with self.tracing.planning(firings) as traced:
            return await self._store.backfill(job, traced, audit=audit)

    async def _fire(self, plans: Sequence[Plan], term: Term | None) -> list[Fired]:
        with ExitStack() as spans:
            traced = [
                msgspec.structs.replace(plan, firings=tuple(spans.enter_context(self.tracing.planning(plan.firings))))
                for plan in plans
            ]
            return await self._store.fire(traced, term)

    async def _claim(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        began = self.tracing.now()
        claims = await self._store.claim(worker, limit, ttl, ordering, ahead=ahead)
        self.tracing.claimed(claims, began)
        return claims

    async def _claim_these(self, worker: Worker, runs: Sequence[tuple[str, int]], ttl: Duration) -> list[Claim]:
        began = self.tracing.now()
        claims = await self._store.claim_these(worker, runs, ttl)
        self.tracing.claimed(claims, began)
        return claims

    def _leave_claim(self, standing: StandingClaim | None) -> None:
        if standing is not None:
            standing = standing._replace(take=partial(self._take, standing.take))
        self._store.leave_claim(standing)

    def _take(self, take: Callable[[Sequence[Claim], float], None], claims: Sequence[Claim], sent_at: float) -> None:
        take(claims, sent_at)
        self.tracing.claimed(claims, self.tracing.now())

    async def _report(self, reports: Sequence[Report]) -> list[Verdict]:
        with self.tracing.reporting(reports):
            return await self._store.report(reports)

    async def _close(self) -> None:
        await asyncio.to_thread(self._on_closing)
        await self._store.close()
        await asyncio.to_thread(self.tracing.flush)


class _TracedJoining:
    """See `store.JoiningStore`."""

    def __init__(self, joining: JoiningStore, tracing: Tracing) -> None:
        self._joining = joining
        self._tracing = tracing

    async def submit_within(self, connection: Any, runs: Sequence[NewRun]) -> list[str]:
        with self._tracing.submitting(runs) as traced:
            return await self._joining.submit_within(connection, traced)
