"""A broker of the simulated world: it carries word of due runs to workers, and forgets, stands still, loses, doubles
and mixes up what it carries. Nothing may rest on it but how soon work begins."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Sequence
from itertools import product
from random import Random
from typing import Final, NamedTuple

from mainspring.broker import Delivery, Notice
from mainspring.core.model import Worker
from mainspring.core.runs.priority import Ordering, rank
from mainspring.errors import BrokerUnavailable
from mainspring.testing.simulation.clock import StoreClock
from mainspring.testing.simulation.faults import Weather
from mainspring.testing.simulation.hosts import Host
from mainspring.testing.simulation.wire import Wire

TAKEN_S: Final = 5.0
"""So long after it was taken, what nobody has acknowledged is put back in line."""
SLIP: Final = 0.08
"""How often a loose broker loses, doubles or mixes up."""

Line = tuple[str, str, str]
"""Namespace, queue, region."""


class _Word(NamedTuple):
    """What is in line: a smaller rank goes first."""

    rank: int
    notice: Notice


class _Ear(NamedTuple):
    """Who wants to know of arrivals in which lines."""

    lines: frozenset[Line]
    host: Host
    tell: Callable[[], None]


class Post:
    """The broker itself: its lines, and what is under way to workers."""

    def __init__(self, clock: StoreClock, weather: Weather, ordering: Ordering, random: Random) -> None:
        self._clock = clock
        self._ordering: Ordering = ordering
        self._random = random
        self.weather = weather
        self._lines: dict[Line, dict[tuple[str, int], _Word]] = defaultdict(dict)
        self._taken: dict[tuple[str, int], tuple[float, _Word]] = {}
        self._ears: list[_Ear] = []

    def forget(self) -> None:
        """It was restarted, and had kept nothing."""
        self._lines.clear()
        self._taken.clear()

    def put(self, notices: Sequence[Notice], *, again: bool = False) -> None:
        """`again`: also what is under way to a worker, as if it were another message."""
        arrived: dict[Line, None] = {}
        for notice in notices:
            name, line = (notice.run_id, notice.token), _line_of(notice)
            if name not in self._lines[line] and (again or name not in self._taken):
                self._lines[line][name] = _Word(rank(notice.priority, notice.due_at, self._ordering), notice)
                arrived[line] = None
        self._tell(arrived)

    def has_words(self, worker: Worker) -> bool:
        """Whether anything waits in the worker's lines."""
        return any(self._lines[line] for line in _lines_of(worker))

    def take(self, worker: Worker, limit: int, *, mixed: bool) -> list[Notice]:
        """The best of the worker's lines; or any, `mixed` up."""
        now = self._clock.monotonic()
        for name, (until, word) in list(self._taken.items()):
            if until < now:
                del self._taken[name]
                self._lines[_line_of(word.notice)].setdefault(name, word)
        words = [word for line in _lines_of(worker) for word in self._lines[line].values()]
        words = sorted(word for word in words if word.notice.priority in worker.priorities)
        if mixed:
            self._random.shuffle(words)
        for word in words[:limit]:
            name = (word.notice.run_id, word.notice.token)
            del self._lines[_line_of(word.notice)][name]
            self._taken[name] = now + TAKEN_S, word
        return [word.notice for word in words[:limit]]

    def settle(self, deliveries: Sequence[Delivery], *, back: bool) -> None:
        """They were claimed or refused; or go `back` in line."""
        for delivery in deliveries:
            name = (delivery.run_id, delivery.token)
            _, word = self._taken.pop(name, (0.0, None))
            if back and word is not None:
                self._lines[_line_of(word.notice)].setdefault(name, word)

    def listen(self, worker: Worker, host: Host, tell: Callable[[], None]) -> Callable[[], None]:
        """Tell of arrivals in the worker's lines, until the answer is called or the process has ended."""
        ear = _Ear(frozenset(_lines_of(worker)), host, tell)
        self._ears.append(ear)
        return lambda: self._ears.remove(ear)

    def _tell(self, arrived: dict[Line, None]) -> None:
        self._ears = [ear for ear in self._ears if not ear.host.dead]
        loop = asyncio.get_running_loop()
        for ear in self._ears:
            if ear.lines.isdisjoint(arrived):
                continue
            if self.weather.has("lost_hints") and self._random.random() < 0.3:
                self.weather.note("lost_hints")
            else:
                loop.call_later(self._random.uniform(0.0005, 0.05), ear.tell, context=ear.host.context)


class Courier:
    """One process's way to the broker. Fulfils `broker.Broker`."""

    def __init__(self, post: Post, wire: Wire, host: Host, clock: StoreClock, random: Random) -> None:
        self._post = post
        self._wire = wire
        self._host = host
        self._nap = clock.sleep
        self._random = random

    async def publish(self, notices: Sequence[Notice]) -> None:
        """Some of it gets lost, if the broker is loose; some is doubled."""
        await self._arrive()
        self._post.put([notice for notice in notices if not self._slips("lost_message")])
        self._post.put([notice for notice in notices if self._slips("doubled_message")], again=True)

    async def receive(self, worker: Worker, limit: int) -> list[Delivery]:
        """A loose broker mixes up who is first, or its answer gets lost."""
        await self._arrive()
        mixed = limit > 0 and self._post.has_words(worker) and self._slips("mixed_messages")
        taken = self._post.take(worker, limit, mixed=mixed)
        if taken and self._slips("lost_message"):
            raise BrokerUnavailable("the answer was lost")
        return [Delivery(notice.run_id, notice.token, None) for notice in taken]

    async def ack(self, deliveries: Sequence[Delivery]) -> None:
        """See `broker.Broker`."""
        await self._arrive()
        self._post.settle(deliveries, back=False)

    async def release(self, deliveries: Sequence[Delivery]) -> None:
        """See `broker.Broker`."""
        await self._arrive()
        self._post.settle(deliveries, back=True)

    def on_arrival(self, worker: Worker, listener: Callable[[], None]) -> Callable[[], None]:
        """See `broker.Broker`."""
        return self._post.listen(worker, self._host, listener)

    async def close(self) -> None:
        """See `broker.Broker`: there is nothing to let go of."""

    async def _arrive(self) -> None:
        await self._nap(self._random.uniform(0.0001, 0.004))
        if self._wire.cut or self._post.weather.mute:
            await self._nap(self._random.uniform(0.0, 0.25))
            raise BrokerUnavailable("the broker does not answer")

    def _slips(self, how: str) -> bool:
        slips = self._post.weather.has("loose_broker") and self._random.random() < SLIP
        if slips:
            self._post.weather.note("loose_broker")
            self._post.weather.note(how)
        return slips


def _line_of(notice: Notice) -> Line:
    return notice.namespace, notice.queue, notice.region


def _lines_of(worker: Worker) -> list[Line]:
    return [(worker.namespace, queue, region) for queue, region in product(worker.queues, worker.regions)]
