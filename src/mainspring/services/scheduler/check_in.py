"""Check-ins of a node that plans beside others, without a leader (`coordination="cluster"` or `"lock"`).

Nothing is decided by them: row locks decide which node fires, and claims which work is recovered. They show which nodes
there are, and which have died.
"""

from __future__ import annotations

from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.services.loop import Loop
from mainspring.settings import Settings
from mainspring.store import LeaseStore


class CheckIn(Loop):
    """Checks in at the interval of the settings."""

    name = "check-in"

    def __init__(self, store: LeaseStore, owner: str, settings: Settings, clock: Clock, random: Random) -> None:
        super().__init__(clock, random)
        self._store = store
        self._owner = owner
        self._settings = settings

    async def turn(self) -> float:
        settings = self._settings
        await self._store.check_in(self._owner, settings.coordination, settings.check_in)
        return settings.check_in / SECOND

    async def leave(self) -> None:
        """This node stops."""
        await self.halt()
        await self._store.leave(self._owner)
