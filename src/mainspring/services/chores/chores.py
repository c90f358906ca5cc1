"""Starts and stops the chores of one process."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from random import Random

from mainspring.cache import StatusCache
from mainspring.clock import Clock
from mainspring.services.chores.alerter import Alerter
from mainspring.services.chores.chore_lease import ChoreLease
from mainspring.services.chores.cleaner import Cleaner
from mainspring.services.chores.forwarder import Forwarder
from mainspring.services.chores.reaper import Reaper
from mainspring.services.chores.relay import Relay
from mainspring.services.chores.status_feeder import StatusFeeder
from mainspring.services.chores.tally_keeper import TallyKeeper
from mainspring.services.loop import Loop
from mainspring.settings import Settings
from mainspring.sink import Sink
from mainspring.store import Store

UNHURRIED_S = 2.0
"""How often a worker with the chores looks for lost runs, and for events that no hint announced. An idle worker should
ask little of the store, and a claim takes longer than this to expire."""


class Chores:
    """The loops of all chores. Every process has them; they act only while this process is on duty.

    A process that schedules is on duty while it leads. Any other process is on duty while it holds the chore lease,
    which is free only where no scheduler leads. So the runs of a killed worker are recovered without a scheduler, too.
    """

    def __init__(
        self,
        store: Store,
        owner: str,
        settings: Settings,
        clock: Clock,
        random: Random,
        *,
        leads: Callable[[], bool] | None = None,
        sinks: Sequence[Sink] = (),
        forwarded: Mapping[str, Sink] | None = None,
        alerts: bool | None = False,
        cache: StatusCache | None = None,
    ) -> None:
        """`sinks` receive what happens from now on; `forwarded`, by name, every event since the sink was first named.
        `leads` says whether the scheduler of this process leads; None where it has no scheduler. `alerts` says
        whether the app names recipients of alerts; None turns alerts off."""
        self._leads = leads
        self._cache = cache
        self.lease = ChoreLease(store, owner, clock, random) if leads is None else None
        self.on_duty: Callable[[], bool] = leads or (lambda: self.lease is not None and self.lease.is_held())
        self.reaper = Reaper(store, settings, clock, random, on_duty=self.on_duty)
        self.cleaner = Cleaner(store, self.on_duty, settings, clock, random)
        self.relay = Relay(store, self.on_duty, sinks, clock, random)
        self.tally_keeper = TallyKeeper(store, self.on_duty, clock, random, dict(settings.service_levels))
        self.relay.on_numbered = self._on_events
        self.alerter: Alerter | None = None
        loops: list[Loop] = [self.reaper, self.cleaner, self.relay, self.tally_keeper]
        if alerts is not None:
            self.alerter = Alerter(store, self.on_duty, settings.alert, clock, random, wanted=alerts)
            loops.append(self.alerter)
        self.forwarders = [
            Forwarder(store, name, sink, self.on_duty, clock, random) for name, sink in (forwarded or {}).items()
        ]
        loops += self.forwarders
        if cache is not None:
            loops.append(StatusFeeder(store, cache, self.on_duty, clock, random))
        if self.lease is not None:
            self.reaper.every_s = self.relay.idle_s = UNHURRIED_S
            self.lease.on_begun = self.begin
            loops.append(self.lease)
        self.loops: Sequence[Loop] = loops

    def begin(self) -> None:
        """This process is on duty from now on."""
        for loop in self.loops:
            if loop is not self.lease:
                loop.wake()

    def _on_events(self) -> None:
        self.tally_keeper.hint()
        self.cleaner.hint()

    def hint(self) -> None:
        """The store has changed, so there may be events."""
        self.relay.hint()
        for forwarder in self.forwarders:
            forwarder.wake()

    async def finish(self) -> None:
        """Relay the events of this process, which may be the last one, and let another process take over."""
        if self.lease is not None:
            await self.lease.halt()
        if self._leads is not None or self.on_duty():
            await self.relay.finish()
            await self.tally_keeper.finish()
            for forwarder in self.forwarders:
                await forwarder.finish()
        if self.lease is not None:
            await self.lease.release()

    async def close(self) -> None:
        """Close the connections that only chores use."""
        if self._cache is not None:
            await self._cache.close()
        for forwarder in self.forwarders:
            await forwarder.close()
