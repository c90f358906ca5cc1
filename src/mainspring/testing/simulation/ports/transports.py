"""Brokers of the simulated world that work as Kafka and SQS do.

`LogPost` has partitions: a partition belongs to one consumer at a time and keeps its order. Consumers commit late. When
consumers come, leave or die, the partitions are assigned anew, and what was not committed is delivered again.

`HidingPost` hides what it delivered for a while. What is not acknowledged by then is delivered again, and the older
delivery can no longer acknowledge it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Final, NamedTuple
from zlib import crc32

from mainspring.broker import Capabilities, Delivery, Depth, Notice, Place
from mainspring.core.model import Worker
from mainspring.core.runs.priority import Ordering
from mainspring.testing.simulation.faults import Weather
from mainspring.testing.simulation.ports.broker import Consumer, Post, places_of
from mainspring.testing.simulation.world.clock import StoreClock

PARTITIONS: Final = 3
"""Partitions of each place and priority."""
LONGEST_COMMIT_S: Final = 4.0
"""A commit takes effect at most this long after the acknowledgement."""
REBALANCES: Final = 0.01
"""How often a look for messages finds that the partitions are being assigned anew."""
HIDDEN_S: Final = 4.0
FORGOTTEN: Final = 0.1
"""How often a message is delivered again although it was acknowledged: queues promise at least one delivery."""


class Partition(NamedTuple):
    """A part of the log of one place and priority."""

    place: Place
    priority: int
    number: int


class _Offset(NamedTuple):
    """The receipt of a record: valid for as long as its consumer has the partition."""

    generation: int
    partition: Partition
    offset: int


class LogPost(Post):
    """A log with partitions, which a group of consumers shares."""

    capabilities = Capabilities(releases=False, priorities=False, key_order=True, deduplicates=False)

    def __init__(self, clock: StoreClock, weather: Weather, ordering: Ordering, random: Random) -> None:
        self._members: list[tuple[Consumer, Worker]] = []
        self._generation = 0
        super().__init__(clock, weather, ordering, random)

    def forget(self) -> None:
        """The topics were deleted, and made again."""
        self._records: defaultdict[Partition, list[Notice]] = defaultdict(list)
        self._committed: defaultdict[Partition, int] = defaultdict(int)
        self._positions: defaultdict[Partition, int] = defaultdict(int)
        self._delivered: defaultdict[Partition, int] = defaultdict(int)
        self._acked: dict[tuple[Partition, int], float] = {}
        """When the acknowledgement of an offset is committed."""
        self._generation += 1

    def join(self, consumer: Consumer, worker: Worker) -> None:
        self._members.append((consumer, worker))
        self._rebalance()

    def part(self, consumer: Consumer) -> None:
        self._members = [member for member in self._members if member[0] is not consumer]
        self._rebalance()

    def put(self, notices: Sequence[Notice], *, again: bool = False) -> None:
        for notice in notices:
            number = crc32((notice.order_key or notice.run_id).encode()) % PARTITIONS
            self._records[Partition(notice.place, notice.priority, number)].append(notice)
        self._notify({notice.place: None for notice in notices})

    def has_words(self, worker: Worker) -> bool:
        """Never: a log cannot mix up its records."""
        return False

    def depth(self) -> list[Depth]:
        self._commit()
        lags = {each: len(records) - self._committed[each] for each, records in self._records.items()}
        return [Depth(each.place, lag, f"{each.priority}/{each.number}") for each, lag in lags.items() if lag]

    def take(
        self, consumer: Consumer, worker: Worker, limit: int, priorities: Sequence[int], *, mixed: bool
    ) -> list[Delivery]:
        living = [member for member in self._members if not member[0].host.dead]
        if len(living) < len(self._members) or self._random.random() < REBALANCES:
            self._members = living
            self._rebalance()
        taken: list[Delivery] = []
        for partition in sorted(self._records):
            if partition.priority in priorities and self._owner(partition) is consumer:
                taken += self._read(partition, limit - len(taken))
        return taken

    def _read(self, partition: Partition, limit: int) -> list[Delivery]:
        start = self._positions[partition]
        taken = []
        for offset, notice in enumerate(self._records[partition][start : start + limit], start):
            again = offset < self._delivered[partition]
            self.weather.note("record delivered again", again)
            receipt = _Offset(self._generation, partition, offset)
            taken.append(Delivery(notice.run_id, notice.token, receipt, again))
        self._positions[partition] = start + len(taken)
        self._delivered[partition] = max(self._delivered[partition], start + len(taken))
        return taken

    def settle(self, deliveries: Sequence[Delivery], *, back: bool) -> None:
        """A record cannot go back: it is acknowledged. That of a partition that has another consumer by now is not."""
        for delivery in deliveries:
            receipt = delivery.receipt
            assert isinstance(receipt, _Offset)
            if receipt.generation == self._generation:
                at = self._clock.monotonic() + self._random.uniform(0.0, LONGEST_COMMIT_S)
                self._acked[receipt.partition, receipt.offset] = at

    def _owner(self, partition: Partition) -> Consumer | None:
        serving = [consumer for consumer, worker in self._members if partition.place in places_of(worker)]
        return serving[partition.number % len(serving)] if serving else None

    def _commit(self) -> None:
        now = self._clock.monotonic()
        for partition in self._records:
            offset = self._committed[partition]
            while self._acked.get((partition, offset), float("inf")) <= now:
                del self._acked[partition, offset]
                offset += 1
            self._committed[partition] = offset

    def _rebalance(self) -> None:
        """What is acknowledged and not committed by now is delivered again."""
        self._commit()
        self._generation += 1
        self.weather.note("rebalance")
        self.weather.note("late commit", bool(self._acked))
        self._acked.clear()
        self._positions.update(self._committed)


class _Message:
    """A message, and until when it is hidden."""

    def __init__(self, notice: Notice) -> None:
        self.notice = notice
        self.hidden_until = 0.0
        self.receives = 0


class HidingPost(Post):
    """Queues whose messages are hidden while a consumer has them."""

    capabilities = Capabilities(priorities=False, extends=True, deduplicates=False)

    def __init__(self, clock: StoreClock, weather: Weather, ordering: Ordering, random: Random) -> None:
        self._numbers = count()
        super().__init__(clock, weather, ordering, random)

    def forget(self) -> None:
        """Restart the broker without what it kept."""
        self._messages: dict[int, _Message] = {}

    def put(self, notices: Sequence[Notice], *, again: bool = False) -> None:
        self._messages.update({next(self._numbers): _Message(notice) for notice in notices})
        self._notify({notice.place: None for notice in notices})

    def has_words(self, worker: Worker) -> bool:
        """Never: there is no order to mix up."""
        return False

    def depth(self) -> list[Depth]:
        now, waiting = self._clock.monotonic(), defaultdict[Place, int](int)
        for message in self._messages.values():
            waiting[message.notice.place] += message.hidden_until <= now
        return [Depth(place, number) for place, number in waiting.items() if number]

    def take(
        self, consumer: Consumer, worker: Worker, limit: int, priorities: Sequence[int], *, mixed: bool
    ) -> list[Delivery]:
        now, places = self._clock.monotonic(), places_of(worker)
        visible = [
            number
            for number, each in self._messages.items()
            if each.hidden_until <= now and each.notice.place in places and each.notice.priority in priorities
        ]
        self._random.shuffle(visible)
        return [self._hide(number) for number in visible[:limit]]

    def _hide(self, number: int) -> Delivery:
        message = self._messages[number]
        message.receives += 1
        message.hidden_until = self._clock.monotonic() + HIDDEN_S
        again = message.receives > 1
        self.weather.note("message visible again", again)
        return Delivery(message.notice.run_id, message.notice.token, (number, message.receives), again)

    def settle(self, deliveries: Sequence[Delivery], *, back: bool) -> None:
        for number, message in self._held(deliveries):
            if back:
                message.hidden_until = 0.0
            elif not self.weather.has("forgotten_acks") or self._random.random() >= FORGOTTEN:
                del self._messages[number]
            else:
                self.weather.note("forgotten_acks")

    def extend(self, deliveries: Sequence[Delivery]) -> None:
        for _, message in self._held(deliveries):
            message.hidden_until = self._clock.monotonic() + HIDDEN_S

    def _held(self, deliveries: Sequence[Delivery]) -> list[tuple[int, _Message]]:
        """The deliveries that were not delivered again meanwhile."""
        found = []
        for delivery in deliveries:
            assert isinstance(delivery.receipt, tuple)
            number, receives = delivery.receipt
            message = self._messages.get(number)
            if message is not None and message.receives == receives:
                found.append((number, message))
        return found


TRANSPORTS: Final[dict[str, type[Post]]] = {"queue": Post, "log": LogPost, "hiding": HidingPost}
"""By the name that a profile has for them."""
