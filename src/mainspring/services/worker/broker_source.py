"""Claims of what a broker delivers; and of what is due in the store, while the broker does not answer.

Stands where the claimer looks for the store. A delivery only says which runs to ask the store for. While the broker has
nothing, the store is looked at once a second all the same: what the broker may have lost is found there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any, Final, cast

from mainspring.broker import Broker, Delivery
from mainspring.clock import Clock
from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Claim, Worker
from mainspring.core.runs.priority import Ordering
from mainspring.errors import BrokerUnavailable, StoreError
from mainspring.process.metrics import figures_of
from mainspring.services.breaker import Switch
from mainspring.services.loop import log
from mainspring.store import Outlook, Standing, Store

ROUNDS: Final = 10
"""So often in a row deliveries that the store refuses are replaced by others."""
LOOK_S: Final = 1.0
ACK_S: Final = 0.001
"""So much later the broker is told what was claimed: what starts then has the processor for itself."""
MANY: Final = 20
"""Whoever gets as many as it asked for, and these are many, asks the store for the next: there is a backlog."""


class Delivered:
    """A store whose claims come from a broker. All else is the store's own."""

    def __init__(self, store: Store, broker: Broker, clock: Clock, who: str) -> None:
        self._store = store
        self._broker = broker
        self._clock = clock
        self._switch = Switch(store, clock, who)
        self._began_at = clock.monotonic()
        self._looked_at: dict[tuple[int, ...], float] = {}
        self._deep: set[tuple[int, ...]] = set()
        """Priorities of which there is so much that it is claimed from the store: in bulk, that is the shorter way."""
        self._claimed: list[Delivery] = []
        """Claimed, and not acknowledged yet."""
        self._acks: set[asyncio.Task[None]] = set()
        self.now = store.now

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def delivers(self) -> bool:
        """Whether new work is told by the broker."""
        return self._switch.is_closed

    def stand(self, standing: Standing | None) -> None:
        """What the store can hand over itself is there sooner than by the broker."""
        self._store.stand(standing)

    async def claim(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        """See `WorkStore.claim`."""
        if not self._switch.is_closed:
            self._later(partial(self._switch.call, partial(self._probe, worker)))
        elif not ahead and worker.priorities not in self._deep:
            try:
                claims = await self._receive(worker, limit, ttl)
            except BrokerUnavailable as error:
                log.debug("claiming from the store: %s", error)
            else:
                self._note_depth(worker, len(claims) >= limit >= MANY)
                now = self._clock.monotonic()
                if claims or now - self._looked_at.get(worker.priorities, self._began_at) < LOOK_S:
                    return claims
                self._looked_at[worker.priorities] = now
        claims = await self._store.claim(worker, limit, ttl, ordering, ahead=ahead)
        if not ahead:
            self._note_depth(worker, len(claims) >= limit)
        return claims

    def _note_depth(self, worker: Worker, deep: bool) -> None:
        (self._deep.add if deep else self._deep.discard)(worker.priorities)

    async def next_due(self, worker: Worker) -> Instant | None:
        """While the broker delivers, whoever dispatches looks at what will be due."""
        return None if self._switch.is_closed else await self._store.next_due(worker)

    async def look(self, worker: Worker, *, idle: bool = False, fresh: bool = True) -> Outlook:
        """What the broker holds is not known before it is asked, so a fresh look never says that there is nothing."""
        if not self._switch.is_closed:
            return await self._store.look(worker, idle=idle, fresh=fresh)
        return Outlook(self.now() if fresh else None)

    async def _receive(self, worker: Worker, limit: int, ttl: Duration) -> list[Claim]:
        claims: list[Claim] = []
        for _ in range(ROUNDS):
            wanted = limit - len(claims)
            try:
                deliveries = await self._switch.call(partial(self._broker.receive, worker, wanted))
            except BrokerUnavailable:
                if claims:
                    break  # What has been claimed must not be forgotten over what could not be.
                raise
            if not deliveries:
                break
            try:
                got = await self._store.claim_these(worker, [(each.run_id, each.token) for each in deliveries], ttl)
            except StoreError:
                self._later(partial(self._switch.call, partial(self._broker.release, deliveries)))
                if claims:
                    break
                raise
            claims += got
            if len(got) < len(deliveries):
                figures_of(self._store).count("duplicates", "delivery", len(deliveries) - len(got))
            self._ack_soon(deliveries)
            if len(claims) >= limit or len(deliveries) < wanted:
                break
        return claims

    async def _probe(self, worker: Worker) -> None:
        """Whether the broker answers again: not while somebody waits for a claim."""
        await self._broker.receive(worker, 0)

    def _ack_soon(self, deliveries: Sequence[Delivery]) -> None:
        """The work need not wait until the broker knows, and what is claimed within a moment is told in one go."""
        if not self._claimed:
            self._later(self._ack)
        self._claimed += deliveries

    async def _ack(self) -> None:
        await self._clock.sleep(ACK_S)
        deliveries, self._claimed = self._claimed, []
        await self._switch.call(partial(self._broker.ack, deliveries))

    def _later(self, word: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(_quietly(word))
        self._acks.add(task)
        task.add_done_callback(self._acks.discard)


async def _quietly(word: Callable[[], Awaitable[None]]) -> None:
    try:
        await word()
    except BrokerUnavailable as error:
        log.debug("the broker was not told, and will deliver again: %s", error)


def delivered(store: Store, broker: Broker, clock: Clock, who: str) -> Store:
    """The store as workers see it that a broker delivers to."""
    return cast(Store, Delivered(store, broker, clock, who))
