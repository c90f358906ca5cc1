"""Claims of what a broker delivers; and of what is due in the store, while the broker does not answer.

A delivery only says which runs to claim. While the broker delivers nothing, the store is asked once a second all the
same, for runs whose messages may have been lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Final

from mainspring.broker import Broker, Delivery, Subscription
from mainspring.clock import Clock
from mainspring.core.instants import Duration, Instant
from mainspring.core.model import Claim, Worker
from mainspring.core.runs.priority import Ordering
from mainspring.errors import BrokerUnavailable, StoreError
from mainspring.services.breaker import CircuitBreaker
from mainspring.services.loop import log
from mainspring.store import Outlook, Store

ROUNDS: Final = 10
"""How often in a row deliveries that the store refuses are replaced by others."""
LOOK_S: Final = 1.0
"""How often the store is asked while the broker delivers nothing."""
RECEIVE_S: Final = 0.25
"""How often the broker is asked while there is a backlog: as often as the dispatcher publishes then."""
ACK_S: Final = 0.001
"""Delay before acknowledging, so that the run that just started does not compete for the CPU."""
EXTEND_S: Final = 5.0
"""How often deliveries are extended that are held, where the broker wants that."""
SUBSCRIBE_AGAIN_S: Final = 0.5
MANY: Final = 20
"""A worker that gets as many as it asked for, and at least this many, claims the next from the store: there is a
backlog."""


class BrokerSource:
    """See `services.worker.claimer.ClaimSource`."""

    def __init__(self, store: Store, broker: Broker, clock: Clock, process: str) -> None:
        self._store = store
        self._broker = broker
        self._clock = clock
        self._breaker = CircuitBreaker(store, clock, process)
        self._subscription: Subscription | None = None
        self._subscribing: asyncio.Task[None] | None = None
        self._extending: asyncio.Task[None] | None = None
        self._began_at = clock.monotonic()
        self._looked_at: dict[tuple[int, ...], float] = {}
        self._received_at: dict[tuple[int, ...], float] = {}
        self._deep: set[tuple[int, ...]] = set()
        """Priorities with a backlog, which is claimed from the store: in bulk, that is quicker."""
        self._claimed: list[Delivery] = []
        """Claimed, and not acknowledged yet."""
        self._working: dict[str, Delivery] = {}
        """By run, what is acknowledged once its work has ended, where the broker wants that."""
        self._acks: set[asyncio.Task[None]] = set()

    def start(self, worker: Worker, on_arrival: Callable[[], None]) -> None:
        """Subscribe, however long that takes. Until then, runs are claimed from the store."""
        self._subscribing = asyncio.get_running_loop().create_task(self._subscribe(worker, on_arrival))
        if self._broker.capabilities.extends and self._broker.capabilities.acks_after_work:
            self._extending = asyncio.get_running_loop().create_task(self._extend_working())

    async def _subscribe(self, worker: Worker, on_arrival: Callable[[], None]) -> None:
        while self._subscription is None:
            try:
                self._subscription = await self._broker.subscribe(worker, on_arrival)
            except BrokerUnavailable as error:
                log.debug("subscribing again in a moment: %s", error)
                await self._clock.sleep(SUBSCRIBE_AGAIN_S)
        on_arrival()

    async def close(self) -> None:
        """Acknowledge what was claimed, and leave the broker. The store stays open."""
        if self._subscribing is not None:
            self._subscribing.cancel()
            await asyncio.wait([self._subscribing])
        if self._extending is not None:
            self._extending.cancel()
        if self._acks:
            await asyncio.wait(self._acks)
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close()

    def delivers(self) -> bool:
        """Whether the broker announces new work."""
        return self._breaker.is_closed and self._subscription is not None

    async def claim(
        self, worker: Worker, limit: int, ttl: Duration, ordering: Ordering, *, ahead: Duration = 0
    ) -> list[Claim]:
        """See `WorkStore.claim`."""
        if not self._breaker.is_closed:
            self._later(partial(self._breaker.call, self._broker.ping))
        elif self._subscription is not None and not ahead and self._should_receive(worker):
            try:
                claims, more = await self._receive(worker, limit, ttl)
            except BrokerUnavailable as error:
                log.debug("claiming from the store: %s", error)
            else:
                if more:
                    return await self._fill_up(claims, worker, limit, ttl, ordering)
                was_deep = worker.priorities in self._deep
                self._note_depth(worker, was_deep or len(claims) >= limit >= MANY)
                now = self._clock.monotonic()
                since_look_s = now - self._looked_at.get(worker.priorities, self._began_at)
                if claims or (since_look_s < LOOK_S and not was_deep):
                    return claims
                self._looked_at[worker.priorities] = now
        claims = await self._store.claim(worker, limit, ttl, ordering, ahead=ahead)
        if not ahead:
            self._note_depth(worker, len(claims) >= limit)
        return claims

    async def _fill_up(
        self, claims: list[Claim], worker: Worker, limit: int, ttl: Duration, ordering: Ordering
    ) -> list[Claim]:
        """More is due than was delivered: claim as much of it as there is room for."""
        if len(claims) < limit:
            try:
                claims += await self._store.claim(worker, limit - len(claims), ttl, ordering)
            except StoreError:
                if not claims:
                    raise
        self._note_depth(worker, len(claims) >= limit)
        return claims

    def _should_receive(self, worker: Worker) -> bool:
        """A backlog is claimed from the store. All the same the broker is asked now and then: what it holds of the
        backlog must go, and what cannot be read must be found, however long the backlog lasts."""
        now = self._clock.monotonic()
        since_s = now - self._received_at.get(worker.priorities, self._began_at)
        if worker.priorities in self._deep and since_s < RECEIVE_S:
            return False
        self._received_at[worker.priorities] = now
        return True

    def _note_depth(self, worker: Worker, deep: bool) -> None:
        (self._deep.add if deep else self._deep.discard)(worker.priorities)

    async def next_due(self, worker: Worker) -> Instant | None:
        """While the broker delivers, the dispatcher looks for what will be due."""
        return None if self.delivers() else await self._store.next_due(worker)

    async def look(self, worker: Worker, *, idle: bool = False, fresh: bool = True) -> Outlook:
        """What the broker holds is not known before it is asked, so a fresh look never says that there is nothing."""
        if not self.delivers():
            return await self._store.look(worker, idle=idle, fresh=fresh)
        return Outlook(self._store.now() if fresh else None)

    async def _receive(self, worker: Worker, limit: int, ttl: Duration) -> tuple[list[Claim], bool]:
        """What was delivered and could be claimed, and whether more is due."""
        claims: list[Claim] = []
        more = False
        subscription = self._subscription
        if subscription is None:
            raise BrokerUnavailable("this worker has not subscribed yet")
        for _ in range(ROUNDS):
            wanted = limit - len(claims)
            try:
                deliveries = await self._breaker.call(partial(subscription.receive, wanted, worker.priorities))
            except BrokerUnavailable:
                if claims:
                    break  # What has been claimed must be returned, although more could not be.
                raise
            if not deliveries:
                break
            try:
                async with self._extended(subscription, deliveries):
                    got = await self._store.claim_these(worker, [each.claim for each in deliveries], ttl)
            except StoreError:
                self._later(partial(self._breaker.call, partial(subscription.release, deliveries)))
                if claims:
                    break
                raise
            claims += got
            more = more or any(each.more for each in deliveries)
            self._count(deliveries, len(got))
            self._settle(deliveries, got)
            if more or len(claims) >= limit or len(deliveries) < wanted:
                break
        return claims, more

    def _settle(self, deliveries: Sequence[Delivery], got: Sequence[Claim]) -> None:
        """Acknowledge deliveries whose runs were claimed or refused; or keep the claimed ones until their work ends."""
        if self._broker.capabilities.acks_after_work:
            claimed, others = {claim.run_id for claim in got}, list[Delivery]()
            for each in deliveries:  # A message that came twice is kept once.
                if each.run_id in claimed and each.run_id not in self._working:
                    self._working[each.run_id] = each
                else:
                    others.append(each)
            deliveries = others
        if deliveries:
            self._ack_soon(deliveries)

    def ended(self, claims: Sequence[tuple[str, int]]) -> None:
        """These claims (run id, token) have ended: their work is over, or another worker's. Must be called on the
        worker's loop."""
        if self._working:
            over = [self._working.pop(run_id) for run_id, _ in claims if run_id in self._working]
            if over:
                self._ack_soon(over)

    async def _extend_working(self) -> None:
        """Keep deliveries from others for as long as their runs are worked on."""
        while True:
            await self._clock.sleep(EXTEND_S)
            if self._working and self._subscription is not None:
                with suppress(BrokerUnavailable):
                    await self._subscription.extend(list(self._working.values()))

    def _count(self, deliveries: Sequence[Delivery], claimed: int) -> None:
        metrics, refused = self._store.metrics, len(deliveries) - claimed
        for result, number in (("claimed", claimed), ("refused", refused)):
            if number:
                metrics.count("deliveries", result, number)
        if refused:
            metrics.count("duplicates", "delivery", refused)
        if redelivered := sum(delivery.redelivered for delivery in deliveries):
            metrics.count("broker_redeliveries", "", redelivered)
        now = self._clock.now()
        metrics.broker_receive.add(*(max(0, now - each.sent_at) for each in deliveries if each.sent_at is not None))

    @asynccontextmanager
    async def _extended(self, subscription: Subscription, deliveries: Sequence[Delivery]) -> AsyncIterator[None]:
        """Keep deliveries from others while the body runs, where the broker wants to be asked for that."""
        if not self._broker.capabilities.extends:
            yield
            return

        async def extend() -> None:
            while True:
                await self._clock.sleep(EXTEND_S)
                with suppress(BrokerUnavailable):
                    await subscription.extend(deliveries)

        extending = asyncio.get_running_loop().create_task(extend())
        try:
            yield
        finally:
            extending.cancel()

    def _ack_soon(self, deliveries: Sequence[Delivery]) -> None:
        """The work need not wait for the acknowledgement, and claims of one moment are acknowledged together."""
        if not self._claimed:
            self._later(self._ack)
        self._claimed += deliveries

    async def _ack(self) -> None:
        await self._clock.sleep(ACK_S)
        deliveries, self._claimed = self._claimed, []
        if self._subscription is not None:
            await self._breaker.call(partial(self._subscription.ack, deliveries))

    def _later(self, call: Callable[[], Awaitable[None]]) -> None:
        task = asyncio.get_running_loop().create_task(_quietly(call))
        self._acks.add(task)
        task.add_done_callback(self._acks.discard)


async def _quietly(call: Callable[[], Awaitable[None]]) -> None:
    try:
        await call()
    except BrokerUnavailable as error:
        log.debug("the broker did not answer, and will deliver again: %s", error)
