"""The loops that plan: an elector and a planner for each shard; where there is a broker, the dispatcher and the reader
of its depths."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random

from mainspring.broker import Broker
from mainspring.clock import Clock
from mainspring.core.load.leadership import LEASE, lease_names
from mainspring.core.model import Term
from mainspring.lease import Lease
from mainspring.services.broker_metrics import DepthReader
from mainspring.services.loop import Loop
from mainspring.services.scheduler.check_in import CheckIn
from mainspring.services.scheduler.contender import Contender
from mainspring.services.scheduler.dispatcher import Dispatcher
from mainspring.services.scheduler.elector import Elector
from mainspring.services.scheduler.planner import Planner
from mainspring.services.scheduler.standin import StandIn
from mainspring.settings import Settings
from mainspring.store import Store

PLANNER_GAP_S, PLANNER_BUSY_S = 0.02, 0.1
"""Most changes concern runs, not jobs. A planner looks for edits shortly after a change, but no more often than this
while changes keep coming."""


class SchedulerService:
    """One node at a time leads, unless the coordination is `cluster` or `lock`. With shards, several nodes lead."""

    def __init__(
        self,
        store: Store,
        lease: Lease,
        owner: str,
        settings: Settings,
        clock: Clock,
        random: Random,
        *,
        broker: Broker | None = None,
        checks_in: bool = False,
    ) -> None:
        """Without a leader a node always checks in; under one, if it `checks_in`."""
        self._lease = lease
        self._pending = False
        self._woken_at = -PLANNER_BUSY_S
        self.random = random
        everyone = settings.coordination != "leader"
        contender = Contender(lease, owner, settings.lease_ttl) if settings.coordination == "lock" else None
        names = [LEASE] if everyone else lease_names(settings.shards)
        led = self.count_led if len(names) > 1 else None
        foreign = settings.lease is not None
        self.electors = [
            Elector(
                *(store, StandIn(lease, store, clock, name) if foreign else lease, owner, settings, clock, random),
                lease_name=name,
                led=led,
            )
            for name in names
        ]
        self.planners = [
            Planner(
                *(store, None if everyone else elector.term, settings, clock, random),
                shard=number,
                contender=contender,
            )
            for number, elector in enumerate(self.electors)
        ]
        for elector, planner in zip(self.electors, self.planners, strict=True):
            elector.on_elected.append(planner.wake)
            planner.on_overtaken.append(elector.begin_anew)
        self.check_in = CheckIn(store, owner, settings, clock, random) if everyone or checks_in else None
        self._dispatcher = None if broker is None else Dispatcher(store, broker, self.leads, clock, random)
        self._depths = None if broker is None else DepthReader(broker, self.leads, store.metrics, clock, random)

    def term(self) -> Term | None:
        """The term of this node while it leads; with shards, that of the first."""
        return self.electors[0].term()

    def leads(self) -> bool:
        """Whether this node does what only one node should do."""
        return self.term() is not None

    def count_led(self) -> int:
        """How many shards this node leads."""
        return sum(elector.term() is not None for elector in self.electors)

    @property
    def loops(self) -> Sequence[Loop]:
        """All loops, to be run."""
        optional = (self.check_in, self._dispatcher, self._depths)
        return (*self.electors, *self.planners, *(loop for loop in optional if loop is not None))

    def hint(self) -> None:
        """The store has changed. Several changes are one wake-up, a moment later."""
        if not self._pending:
            self._pending = True
            loop = asyncio.get_running_loop()
            loop.call_later(max(PLANNER_GAP_S, self._woken_at + PLANNER_BUSY_S - loop.time()), self._wake)

    def _wake(self) -> None:
        self._pending, self._woken_at = False, asyncio.get_running_loop().time()
        if self._dispatcher is not None:
            self._dispatcher.wake()
        for elector, planner in zip(self.electors, self.planners, strict=True):
            planner.wake()
            if elector.term() is None:
                elector.wake()

    async def hand_over(self) -> None:
        """Stop planning, and release the leases so that a stand-by leads at once."""
        for planner in self.planners:
            planner.stop()
        await asyncio.gather(*(elector.hand_over() for elector in self.electors))
        if self.check_in is not None:
            await self.check_in.leave()

    async def close(self) -> None:
        """Close the connections of the lease."""
        await self._lease.close()
