"""Keeps a worker's claims, and gives them up in time when it cannot."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.leadership import trusted_until
from mainspring.core.model import Worker
from mainspring.executor import StopKind
from mainspring.services.held import Held
from mainspring.services.loop import Loop, log
from mainspring.settings import Settings
from mainspring.store import WorkStore

RETRY_S = 0.3

Stop = Callable[[str, StopKind, str], None]


class Heart(Loop):
    """Beats: renews all claims in one go and hears of cancels. A claim that was not renewed in time is fenced: its
    work is stopped before anyone else may have it."""

    name = "heart"

    def __init__(
        self, store: WorkStore, worker: Worker, held: Held, stop: Stop, settings: Settings, clock: Clock, random: Random
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._worker = worker
        self._held = held
        self._stop_run = stop
        self._ttl = settings.claim_ttl
        self._every_s = settings.claim_renew / SECOND
        self._beat_at = 0.0

    async def turn(self) -> float:
        self._fence(self._held.untrusted(self.clock.monotonic()), "its claim could not be renewed in time")
        if self.clock.monotonic() - self._beat_at < self._every_s:
            await self._hear_cancels()
        else:
            await self._beat()
        return max(self._every_s - (self.clock.monotonic() - self._beat_at), 0.01)

    async def _beat(self) -> None:
        sent_at, claims = self.clock.monotonic(), self._held.claims()
        doubt = self._held.earliest_doubt()
        patience = self._every_s if doubt is None else max(doubt - sent_at, 0.01)
        try:
            renewal = await asyncio.wait_for(self._store.renew(self._worker, claims, self._ttl), patience)
        except TimeoutError:
            self._fence(self._held.untrusted(self.clock.monotonic()), "the store did not answer in time")
            return
        self._beat_at = sent_at
        self._held.trust(renewal.held, trusted_until(sent_at, self._ttl))
        self._fence(set(claims) - renewal.held, "its claim has passed to another")
        for run_id, reason in renewal.cancels.items():
            self._stop_run(run_id, "cancelled", reason)

    async def _hear_cancels(self) -> None:
        """Woken early, because something changed: perhaps somebody wants a run to end."""
        run_ids = [run_id for run_id, _ in self._held.claims()]
        if run_ids:
            for run_id, reason in (await self._store.cancels(run_ids)).items():
                self._stop_run(run_id, "cancelled", reason)

    def _fence(self, claims: Iterable[tuple[str, int]], why: str) -> None:
        """Those that were reported meanwhile are no longer held, and not meant."""
        still_held = set(self._held.claims())
        lost = [claim for claim in claims if claim in still_held]
        for run_id, _ in lost:
            log.warning("run %s is stopped here: %s", run_id, why)
            self._stop_run(run_id, "fenced", why)
        self._held.remove(lost)
