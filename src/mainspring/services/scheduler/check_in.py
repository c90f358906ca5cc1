"""Check-ins of a process that schedules: which nodes there are, which have died, and how each is.

Nothing is decided by them. The lease decides which node leads; without a leader, row locks decide which node fires.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import SECOND
from mainspring.core.model import Node
from mainspring.services.loop import Loop
from mainspring.settings import Settings
from mainspring.store import Store


class CheckIn(Loop):
    """Checks in at the interval of the settings."""

    name = "check-in"

    def __init__(self, store: Store, owner: str, settings: Settings, clock: Clock, random: Random) -> None:
        super().__init__(clock, random)
        self.loops: Callable[[], Mapping[str, str]] = dict
        """Returns what is wrong with each loop of the process; empty for one that is well."""
        self._store = store
        self._owner = owner
        self._settings = settings

    async def turn(self) -> float:
        settings = self._settings
        skew, loops = self._store.strain().skew, self.loops()
        node = Node(self._owner, settings.coordination, settings.check_in, skew=skew, loops=loops)
        await self._store.check_in(node)
        return settings.check_in / SECOND

    async def leave(self) -> None:
        """This node stops."""
        await self.halt()
        await self._store.leave(self._owner)
