"""Renews the claims of a worker. The fence stops the work of those that could not be renewed in time."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.load.leadership import trusted_until
from mainspring.core.model import Worker
from mainspring.services.loop import Loop, within
from mainspring.services.worker.claims import Claims
from mainspring.services.worker.fence import Stop
from mainspring.settings import Settings
from mainspring.store import WorkStore

HEAR_S = 0.1
"""How often at most to look for cancellations: a busy store hints at changes all the time."""
LOOK_S = 1.0
"""How often at least: a hint may be lost, or not sent to this process."""
SHORTEST_S = 0.01


class Heartbeat(Loop):
    """Renews all claims in one call, and learns of cancellations and of requests to drain. `lose` stops the work of
    claims that other workers have."""

    name = "heartbeat"

    def __init__(
        self,
        store: WorkStore,
        worker: Worker,
        claims: Claims,
        stop: Stop,
        lose: Callable[[Iterable[tuple[str, int]], str], None],
        settings: Settings,
        clock: Clock,
        random: Random,
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._worker = worker
        self._claims = claims
        self._stop_run = stop
        self._lose = lose
        self._ttl = settings.claim_ttl
        self._every_s = settings.claim_renew / SECOND
        self._timeout_s = settings.heartbeat_timeout / SECOND
        self._pauses_s = [pause / SECOND for pause in settings.heartbeat_retries]
        self._beat_at = self._heard_at = -math.inf
        self.on_drain: Callable[[], None] = lambda: None
        """Called at each heartbeat while the worker is asked to drain."""

    async def turn(self) -> float:
        now = self.clock.monotonic()
        if now - self._beat_at >= self._every_s:
            await self._beat(now)
        elif now - self._heard_at >= HEAR_S:
            await self._hear_cancels(now)
        else:
            return max(self._heard_at + HEAR_S - now, SHORTEST_S)
        until_beat = self._beat_at + self._every_s - self.clock.monotonic()
        return max(min(until_beat, LOOK_S), SHORTEST_S)

    def count(self) -> None:
        """Another call has counted as a heartbeat, which matters only while nothing is held."""
        if not len(self._claims):
            self._beat_at = self.clock.monotonic()

    async def _beat(self, sent_at: float) -> None:
        claims = self._claims.pairs()
        renewal = await within(self.clock, self._patience(), self._store.renew(self._worker, claims, self._ttl))
        self._beat_at = self._heard_at = sent_at
        self._claims.trust(renewal.held, trusted_until(sent_at, self._ttl))
        self._lose(set(claims) - renewal.held, "its claim has passed to another worker")
        for run_id, reason in renewal.cancels.items():
            self._stop_run(run_id, "cancelled", reason)
        if renewal.drain:
            self.on_drain()

    async def _hear_cancels(self, sent_at: float) -> None:
        """Look for cancellations between two heartbeats, after a hint."""
        run_ids = [run_id for run_id, _ in self._claims.pairs()]
        cancels = await within(self.clock, self._patience(), self._store.cancels(run_ids)) if run_ids else {}
        self._heard_at = sent_at
        for run_id, reason in cancels.items():
            self._stop_run(run_id, "cancelled", reason)

    def _patience(self) -> float:
        """How long this loop may wait for the store: until the first claim expires."""
        doubt = self._claims.earliest_doubt()
        safe_s = self._every_s if doubt is None else max(doubt - self.clock.monotonic(), SHORTEST_S)
        return min(safe_s, self._timeout_s)

    def _longest_pause(self) -> float:
        return self._patience()

    def _next_pause(self, failures: int) -> float:
        if not self._pauses_s:
            return super()._next_pause(failures)
        return self._pauses_s[min(failures, len(self._pauses_s)) - 1]
