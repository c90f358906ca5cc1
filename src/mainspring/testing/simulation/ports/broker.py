"""A broker of the simulated world: it carries word of due runs to workers, and forgets, stands still, loses, doubles
and mixes up what it carries. Nothing may rest on it but how soon work begins."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from typing import Final, NamedTuple

from mainspring.broker import Capabilities, Delivery, Depth, Notice, Place, Subscription
from mainspring.core.model import Worker
from mainspring.core.runs.priority import PRIORITIES, Ordering, rank
from mainspring.errors import BrokerUnavailable
from mainspring.testing.simulation.faults import Weather
from mainspring.testing.simulation.ports.wire import Wire
from mainspring.testing.simulation.world.clock import StoreClock
from mainspring.testing.simulation.world.hosts import Host

TAKEN_S: Final = 5.0
"""A message without acknowledgement returns to its place this long after it was taken."""
SLIP: Final = 0.08
"""How often a loose broker loses, doubles or mixes up."""


class _Word(NamedTuple):
    """A message that waits: a smaller rank goes first."""

    rank: int
    notice: Notice


class _Listener(NamedTuple):
    """A subscription to places."""

    places: frozenset[Place]
    host: Host
    notify: Callable[[], None]


class Post:
    """The broker itself: its places, and what is under way to workers. See `transports` for other kinds of brokers."""

    capabilities = Capabilities()

    def __init__(self, clock: StoreClock, weather: Weather, ordering: Ordering, random: Random) -> None:
        self._clock = clock
        self._ordering: Ordering = ordering
        self._random = random
        self.weather = weather
        self._listeners: list[_Listener] = []
        self.forget()

    def forget(self) -> None:
        """Restart the broker without what it kept."""
        self._waiting: dict[Place, dict[tuple[str, int], _Word]] = defaultdict(dict)
        self._taken: dict[tuple[str, int], tuple[float, _Word]] = {}

    def join(self, consumer: Consumer, worker: Worker) -> None:
        """A worker's consumer begins."""

    def part(self, consumer: Consumer) -> None:
        """A consumer ends."""

    def put(self, notices: Sequence[Notice], *, again: bool = False) -> None:
        """`again`: also what is under way to a worker, as if it were another message."""
        arrived: dict[Place, None] = {}
        for notice in notices:
            name, place = (notice.run_id, notice.token), notice.place
            if name not in self._waiting[place] and (again or name not in self._taken):
                self._waiting[place][name] = _Word(rank(notice.priority, notice.due_at, self._ordering), notice)
                arrived[place] = None
        self._notify(arrived)

    def has_words(self, worker: Worker) -> bool:
        """Whether anything waits in the worker's places."""
        return any(self._waiting[place] for place in places_of(worker))

    def depth(self) -> list[Depth]:
        """How much waits where."""
        return [Depth(place, len(words)) for place, words in self._waiting.items() if words]

    def take(
        self, consumer: Consumer, worker: Worker, limit: int, priorities: Sequence[int], *, mixed: bool
    ) -> list[Delivery]:
        """The best of the worker's places; or any, `mixed` up."""
        now = self._clock.monotonic()
        for name, (until, word) in list(self._taken.items()):
            if until < now:
                del self._taken[name]
                self._waiting[word.notice.place].setdefault(name, word)
        words = [word for place in places_of(worker) for word in self._waiting[place].values()]
        words = sorted(word for word in words if word.notice.priority in priorities)
        if mixed:
            self._random.shuffle(words)
        for word in words[:limit]:
            name = (word.notice.run_id, word.notice.token)
            del self._waiting[word.notice.place][name]
            self._taken[name] = now + TAKEN_S, word
        return [Delivery(word.notice.run_id, word.notice.token, None) for word in words[:limit]]

    def settle(self, deliveries: Sequence[Delivery], *, back: bool) -> None:
        """Remove messages that were claimed or refused; or put them `back` in their places."""
        for delivery in deliveries:
            name = (delivery.run_id, delivery.token)
            _, word = self._taken.pop(name, (0.0, None))
            if back and word is not None:
                self._waiting[word.notice.place].setdefault(name, word)

    def extend(self, deliveries: Sequence[Delivery]) -> None:
        """Prolong messages that are still held."""

    def listen(self, worker: Worker, host: Host, notify: Callable[[], None]) -> Callable[[], None]:
        """Notify of arrivals in the worker's places, until the answer is called or the process has ended."""
        listener = _Listener(frozenset(places_of(worker)), host, notify)
        self._listeners.append(listener)

        def stop() -> None:
            self._listeners = [other for other in self._listeners if other is not listener]

        return stop

    def _notify(self, arrived: dict[Place, None]) -> None:
        self._listeners = [listener for listener in self._listeners if not listener.host.dead]
        loop = asyncio.get_running_loop()
        for listener in self._listeners:
            if listener.places.isdisjoint(arrived):
                continue
            if self.weather.has("lost_hints") and self._random.random() < 0.3:
                self.weather.note("lost_hints")
            else:
                loop.call_later(self._random.uniform(0.0005, 0.05), listener.notify, context=listener.host.context)


class Courier:
    """One process's connection to the broker. Fulfils `broker.Broker`."""

    def __init__(self, post: Post, wire: Wire, host: Host, clock: StoreClock, random: Random) -> None:
        self.post = post
        self.capabilities = post.capabilities
        self.host = host
        self._wire = wire
        self._nap = clock.sleep
        self._random = random

    async def publish(self, notices: Sequence[Notice]) -> None:
        """Some of it gets lost, if the broker is loose; some is doubled."""
        await self.arrive()
        self.post.put([notice for notice in notices if not self.slips("lost_message")])
        self.post.put([notice for notice in notices if self.slips("doubled_message")], again=True)

    async def subscribe(self, worker: Worker, on_arrival: Callable[[], None]) -> Subscription:
        """See `broker.Broker`."""
        await self.arrive()
        return Consumer(self, worker, on_arrival)

    async def depth(self) -> Sequence[Depth]:
        """See `broker.Broker`."""
        await self.arrive()
        return self.post.depth()

    async def ping(self) -> None:
        """See `broker.Broker`."""
        await self.arrive()

    async def close(self) -> None:
        """See `broker.Broker`: there are no connections to close."""

    async def arrive(self) -> None:
        """A message goes to the broker. BrokerUnavailable if it does not arrive."""
        await self._nap(self._random.uniform(0.0001, 0.004))
        if self._wire.cut or self.post.weather.mute:
            await self._nap(self._random.uniform(0.0, 0.25))
            raise BrokerUnavailable("the broker does not answer")

    def slips(self, how: str) -> bool:
        """Whether a loose broker does something wrong now."""
        slips = self.post.weather.has("loose_broker") and self._random.random() < SLIP
        if slips:
            self.post.weather.note("loose_broker")
            self.post.weather.note(how)
        return slips


class Consumer:
    """One worker's subscription. Fulfils `broker.Subscription`."""

    def __init__(self, courier: Courier, worker: Worker, on_arrival: Callable[[], None]) -> None:
        self._courier = courier
        self._post = courier.post
        self._worker = worker
        self.host = courier.host
        self._stop = self._post.listen(worker, courier.host, on_arrival)
        self._open = True
        self._post.join(self, worker)

    async def receive(self, limit: int, priorities: Sequence[int] = PRIORITIES) -> list[Delivery]:
        """A loose broker mixes up the order, or its answer gets lost."""
        await self._courier.arrive()
        mixed = self._post.has_words(self._worker) and self._courier.slips("mixed_messages")
        taken = self._post.take(self, self._worker, limit, priorities, mixed=mixed)
        if taken and self._courier.slips("lost_message"):
            raise BrokerUnavailable("the answer was lost")
        return taken

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """See `broker.Subscription`."""
        await self._courier.arrive()
        self._post.settle(deliveries, back=False)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """See `broker.Subscription`."""
        await self._courier.arrive()
        self._post.settle(deliveries, back=True)

    async def extend(self, deliveries: Sequence[Delivery]) -> None:
        """See `broker.Subscription`."""
        await self._courier.arrive()
        self._post.extend(deliveries)

    async def close(self) -> None:
        """See `broker.Subscription`."""
        if self._open:
            self._open = False
            self._stop()
            self._post.part(self)


def places_of(worker: Worker) -> list[Place]:
    """Where the runs wait that a worker serves."""
    return [Place(worker.namespace, queue, region) for queue, region in product(worker.queues, worker.regions)]
