"""Ends the containers of runs that have ended while no worker had them.

A run that is cancelled while a worker executes it ends with its container. One that is cancelled, expires or is lost
too often after its worker died leaves its container behind, and no later attempt adopts it.
"""

from __future__ import annotations

from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.errors import BackendUnavailable
from mainspring.executor import Leftovers
from mainspring.services.loop import Loop, log
from mainspring.settings import Settings
from mainspring.store import Store

CLAIMS = 3
"""How often to look, in times that a claim lasts. A lost run cannot end before its claim expires, so looking more often
finds little."""


class Sweeper(Loop):
    """One worker of a place looks at a time, under a lease that it lets expire. Two at once would do no harm: what is
    ended is exactly what was found, before its run was seen to have ended."""

    name = "sweeper"

    def __init__(
        self, store: Store, leftovers: Leftovers, owner: str, settings: Settings, clock: Clock, random: Random
    ) -> None:
        super().__init__(clock, random)
        self._store = store
        self._leftovers = leftovers
        self._owner = owner
        self._every = CLAIMS * settings.claim_ttl
        self._failing = False

    async def turn(self) -> float:
        pause_s = self._every / SECOND
        if await self._store.acquire(f"sweep:{self._leftovers.place}", self._owner, self._every) is None:
            return self.jitter(pause_s)
        try:
            await self._sweep()
            self._failing = False
        except BackendUnavailable as error:
            if not self._failing:
                log.warning("containers whose runs have ended cannot be looked for: %s", error)
            self._failing = True
        return pause_s

    async def _sweep(self) -> None:
        """Find the containers first: a run that has ended by then is not theirs any more, whatever happens next."""
        found = await self._leftovers.find()
        runs = await self._store.finished([each.run_id for each in found]) if found else []
        ended = {run.id: run for run in runs}
        for each in found:
            run = ended.get(each.run_id)
            if run is not None and await self._leftovers.end(each):
                log.warning("ended the container of run %s, which is %s: no worker had it", run.id, run.state)
