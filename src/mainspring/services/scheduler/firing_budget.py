"""How many runs each namespace may still fire: see `core.planning.firing_limits`.

A planner of all jobs counts in memory, which costs the store nothing; a new leader starts afresh. Where several
planners share the jobs, each fires a tenth of the rate without asking. Beyond that, all draw on one budget in the
store, a second's worth at a time.
"""

from __future__ import annotations

from typing import NamedTuple

from mainspring.core.instants import MINUTE, SECOND, Duration, Instant
from mainspring.core.load.rate_limits import Pace, allow
from mainspring.settings import Settings
from mainspring.store import Store

FREE_SHARE = 10
"""Each of several planners fires one part in ten without asking the store."""
LONGEST_WAIT = 5 * SECOND
"""The longest wait for a budget: rates may be raised, and other planners may give budget back."""
MOST_NAMESPACES = 100_000


class Grant(NamedTuple):
    """How many runs may fire now and, if that is less than asked for, how long to wait for more."""

    runs: int
    wait: Duration = 0


class FiringBudget:
    """The budgets of one planner. `sole` says whether it plans all jobs alone."""

    def __init__(self, store: Store, settings: Settings, *, sole: bool) -> None:
        self._store = store
        self._settings = settings
        self._sole = sole
        self._paid_at: dict[str, Instant] = {}
        self._spare: dict[str, int] = {}
        """Taken from a budget, and not used."""

    def rate(self, namespace: str) -> int:
        """How many runs a namespace may fire per minute."""
        return self._settings.firing_rate_of(namespace)

    async def take(self, namespace: str, runs: int) -> Grant:
        """Take this much of a namespace's budget, or what is left of it."""
        spare = self._spare.pop(namespace, 0)
        if spare > runs:
            self._spare[namespace] = spare - runs
        if spare >= runs:
            return Grant(runs)
        got = spare + self._take_own(namespace, runs - spare)
        if got >= runs:
            return Grant(runs)
        if self._sole:
            return Grant(got, self._own_wait(namespace, runs - got))
        return await self._take_shared(namespace, runs, got)

    def give_back(self, namespace: str, runs: int) -> None:
        """Return what was taken and not used."""
        if runs > 0:
            self._spare[namespace] = min(self._spare.get(namespace, 0) + runs, self.rate(namespace))

    def _own_pace(self, namespace: str) -> Pace:
        rate = self.rate(namespace)
        return Pace(rate if self._sole else max(rate // FREE_SHARE, 1), MINUTE)

    def _take_own(self, namespace: str, runs: int) -> int:
        pace, now, paid_at = self._own_pace(namespace), self._store.now(), self._paid_at.get(namespace, 0)
        asked = allow(paid_at, now, runs, pace)
        if not asked.granted:
            runs = asked.left
            asked = allow(paid_at, now, runs, pace)
        if runs > 0:
            if len(self._paid_at) > MOST_NAMESPACES:
                self._paid_at = {name: paid for name, paid in self._paid_at.items() if paid > now}
            self._paid_at[namespace] = asked.paid_at
        return runs

    def _own_wait(self, namespace: str, runs: int) -> Duration:
        asked = allow(self._paid_at.get(namespace, 0), self._store.now(), runs, self._own_pace(namespace))
        return min(max(asked.wait, 1), LONGEST_WAIT)

    async def _take_shared(self, namespace: str, runs: int, got: int) -> Grant:
        name, pace = f"fire:{namespace}", Pace(self.rate(namespace), MINUTE)
        wanted = max(runs - got, pace.amount // 60)
        asked = await self._store.spend(name, wanted, pace)
        if not asked.granted and asked.left:
            wait, wanted = asked.wait, min(asked.left, runs - got)
            asked = await self._store.spend(name, wanted, pace)
            if asked.granted and wanted < runs - got:
                return Grant(got + wanted, min(max(wait, 1), LONGEST_WAIT))
        if not asked.granted:
            return Grant(got, min(max(asked.wait, 1), LONGEST_WAIT))
        self.give_back(namespace, got + wanted - runs)
        return Grant(runs)
