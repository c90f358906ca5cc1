"""Stops work whose claim has expired. It calls nothing that could keep it waiting."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from random import Random

from mainspring.clock import Clock
from mainspring.executor import StopKind
from mainspring.services.loop import Loop, log
from mainspring.services.worker.claims import Claims

LONGEST_S = 5.0
SHORTEST_S = 0.001

Stop = Callable[[str, StopKind, str], None]


class Fence(Loop):
    """Apart from the heartbeat, which may wait for the store while a claim expires that was granted after the wait
    began."""

    name = "fence"

    def __init__(self, claims: Claims, stop: Stop, clock: Clock, random: Random) -> None:
        super().__init__(clock, random)
        self._claims = claims
        self._stop_run = stop
        self._looks_at = math.inf
        claims.on_doubt = self._expect

    async def turn(self) -> float:
        now = self.clock.monotonic()
        self.lower(self._claims.untrusted(now), "its claim could not be renewed in time")
        doubt = self._claims.earliest_doubt()
        wait = LONGEST_S if doubt is None else min(max(doubt - now, SHORTEST_S), LONGEST_S)
        self._looks_at = now + wait
        return wait

    def _expect(self, doubt: float) -> None:
        if doubt < self._looks_at:
            self.wake()

    def lower(self, claims: Iterable[tuple[str, int]], why: str) -> None:
        """Stop the work of these claims, unless it was reported meanwhile."""
        still_held = set(self._claims.pairs())
        lost = [claim for claim in claims if claim in still_held]
        for run_id, token in lost:
            if self._claims.has_ended((run_id, token)):
                continue  # It was reported; the answer is on its way.
            log.warning("stopping run %s on this worker: %s", run_id, why)
            self._stop_run(run_id, "fenced", why)
        self._claims.remove(lost)
