"""The chores of a fleet, which any process may do: recover what dead workers held, forget what is old, number events
and pass them to sinks, report failures.

A scheduler does them where it leads. While no scheduler runs, one of the workers does, under a lease: so the runs of a
worker that was killed are given to another one even then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from mainspring.clock import Clock
from mainspring.core.instants import LATEST, SECOND, Duration
from mainspring.core.load.leadership import LEASE, trusted_until
from mainspring.core.model import Hold
from mainspring.services.chores.alerter import Alerter
from mainspring.services.chores.cleaner import Cleaner
from mainspring.services.chores.reaper import Reaper
from mainspring.services.chores.relay import Relay
from mainspring.services.loop import Loop, log
from mainspring.settings import Settings
from mainspring.sink import Sink
from mainspring.store import Store

CHORES = "chores"
"""The lease of the worker that does the chores while nobody schedules."""
LOOK_S = 5.0
"""How often a worker asks whether a scheduler runs, at the latest: the only cost of this while one does."""
TTL: Duration = 10 * SECOND
RENEW_S = 3.0
ALONE_S = 4.0
"""How long no scheduler must have been seen before a worker takes its place: longer than a change of leaders takes."""
WARN_S = 600.0
"""How often to warn that jobs are not fired."""
SLOWLY_S = 2.0
"""How often a worker that does the chores looks for lost runs, and for events if it heard of no change: it has other
things to do, and an idle one should ask little of the store."""


class Chores:
    """The loops, of which those act that must while `on_duty` says so."""

    def __init__(
        self,
        store: Store,
        on_duty: Callable[[], bool],
        sinks: Sequence[Sink],
        settings: Settings,
        clock: Clock,
        random: Random,
        *,
        alerts: bool | None = None,
        aside: bool = False,
    ) -> None:
        """`alerts`: whether somebody is surely to be told of failures; None: nobody ever is. `aside`: whether these are
        done beside other work, by one process and less often; otherwise every process looks for lost runs, so that
        whoever died, another is there to notice at once."""
        self.on_duty = on_duty
        self.reaper = Reaper(store, settings, clock, random)
        self.cleaner = Cleaner(store, on_duty, settings, clock, random)
        self.relay = Relay(store, on_duty, sinks, clock, random)
        if aside:
            self.reaper.on_duty, self.reaper.every_s, self.relay.idle_s = on_duty, SLOWLY_S, SLOWLY_S
        self.alerter: Alerter | None = None
        if alerts is not None:
            self.alerter = Alerter(store, on_duty, settings.alert, clock, random, wanted=alerts)
        self.loops: tuple[Loop, ...] = (self.reaper, self.cleaner, self.relay)
        if self.alerter is not None:
            self.loops = (*self.loops, self.alerter)

    def begin(self) -> None:
        """This process is on duty from now on."""
        for loop in self.loops:
            loop.wake()


class Duty(Loop):
    """Decides whether this worker does the chores: while no scheduler runs, and it holds the lease of that name."""

    name = "duty"

    def __init__(self, store: Store, owner: str, clock: Clock, random: Random) -> None:
        super().__init__(clock, random)
        self._store = store
        self._owner = owner
        self._hold: Hold | None = None
        self._trusted_until = 0.0
        self._alone_since: float | None = None
        self._warn_at = 0.0
        self.on_begun: Callable[[], None] = lambda: None

    def is_on_duty(self) -> bool:
        """Whether this worker does the chores, and may still trust that it is the one."""
        return self._hold is not None and self.clock.monotonic() < self._trusted_until

    async def turn(self) -> float:
        now = self.clock.monotonic()
        if await self._store.holders(LEASE):
            self._alone_since = None
            await self.let_go()
            return self.jitter(LOOK_S)
        if self._alone_since is None:
            self._alone_since = now
        alone_s = now - self._alone_since
        if alone_s < ALONE_S:
            return self.jitter(ALONE_S - alone_s) + 0.01
        await self._take_turn(now)
        if now >= self._warn_at:
            await self._warn(now)
        return RENEW_S if self._hold is not None else self.jitter(LOOK_S)

    async def _take_turn(self, sent_at: float) -> None:
        had = self._hold
        self._hold = None if had is None else await self._store.renew_hold(had)
        if self._hold is None:
            self._hold = await self._store.acquire(CHORES, self._owner, TTL)
        self._trusted_until = trusted_until(sent_at, TTL)
        if had is None and self._hold is not None:
            log.info("%s does the fleet's chores: no scheduler runs", self._owner)
            self.on_begun()

    async def _warn(self, now: float) -> None:
        """Without a scheduler runs are executed and recovered, but nothing is fired."""
        jobs = await self._store.due_jobs(LATEST, 1)
        self._warn_at = now + (WARN_S if jobs else 2 * LOOK_S)
        if jobs:
            log.warning(
                "no scheduler runs, so no job fires (the next one would be %s): start `mainspring server` or "
                "`mainspring up` with the same store",
                jobs[0].name,
            )

    async def let_go(self) -> None:
        """Leave the chores to others."""
        hold, self._hold = self._hold, None
        if hold is not None:
            await self._store.release(hold)
