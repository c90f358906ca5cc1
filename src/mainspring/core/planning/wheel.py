"""The timing wheel: what is due within the horizon, by exact instant, at a cost that does not grow with what it holds.

Entries lie in slots one tick wide. A slot is only a bag of keys until it becomes the earliest; then it is split, once,
by exact instant. A tick of a millisecond has a thousand instants, however many entries share them, so that ordering
them is a constant cost.

Slots are numbered from the epoch and not around a circle: an entry can never be taken for one of another turn, and a
clock that jumps, forward or back, needs no special case. Only slots in use exist: a jump costs what it fires, not its
length.
"""

from __future__ import annotations

from collections.abc import Hashable
from heapq import heapify, heappop, heappush
from typing import Generic, TypeVar

from mainspring.core.instants import MILLISECOND, Duration, Instant

K = TypeVar("K", bound=Hashable)

_SPARE_NUMBERS = 64


class Wheel(Generic[K]):
    """Keys, each with the one instant at which it is due.

    Inserting, cancelling, or advancing past an entry costs the same however many there are, amortised; only a new slot
    costs the logarithm of the number of slots. Memory is in proportion to the entries held now.
    """

    def __init__(self, start: Instant, horizon: Duration, tick: Duration = MILLISECOND) -> None:
        self._now = start
        self._horizon = horizon
        self._tick = tick
        self._instants: dict[K, Instant] = {}
        self._closed: dict[int, dict[K, Instant]] = {}
        self._open: dict[int, dict[Instant, dict[K, None]]] = {}
        # A heap of the numbers of all slots, and of some that are gone.
        self._numbers: list[int] = []

    def insert(self, key: K, at: Instant) -> bool:
        """Hold `key` until `at`; a key that is held already moves there, behind those of equal instant.

        False if `at` is beyond the horizon. The wheel then does not hold the key at all, so that one that moved away
        cannot fire at its old instant. An `at` in the past is due at the next advance.
        """
        self.cancel(key)
        if at > self._now + self._horizon:
            return False
        self._instants[key] = at
        number = at // self._tick
        if (bag := self._closed.get(number)) is not None:
            bag[key] = at
        elif (groups := self._open.get(number)) is not None:
            groups.setdefault(at, {})[key] = None
        else:
            self._closed[number] = {key: at}
            self._add_number(number)
        return True

    def cancel(self, key: K) -> bool:
        """Forget `key`. False if the wheel does not hold it."""
        at = self._instants.pop(key, None)
        if at is None:
            return False
        number = at // self._tick
        if (bag := self._closed.get(number)) is not None:
            del bag[key]
            if not bag:
                del self._closed[number]
            return True
        groups = self._open[number]
        del groups[at][key]
        if not groups[at]:
            del groups[at]
        if not groups:
            del self._open[number]
        return True

    def advance(self, now: Instant) -> list[tuple[Instant, K]]:
        """Remove and return all that is due at `now`: by instant, and in order of insertion where instants are equal.

        Nothing is returned before its instant, also when `now` is earlier than at the last advance.
        """
        self._now = now
        due: list[tuple[Instant, K]] = []
        while groups := self._earliest():
            ripe = sorted(at for at in groups if at <= now)
            if not ripe:
                break
            for at in ripe:
                due.extend((at, key) for key in groups.pop(at))
        for _, key in due:
            del self._instants[key]
        return due

    def next_at(self) -> Instant | None:
        """The instant of the earliest entry; None if there is none."""
        return min(self._earliest(), default=None)

    def soonest(self) -> list[K]:
        """All that is due at the earliest instant, in order of insertion."""
        groups = self._earliest()
        return list(groups[min(groups)]) if groups else []

    def __len__(self) -> int:
        return len(self._instants)

    def __contains__(self, key: K) -> bool:
        return key in self._instants

    def _earliest(self) -> dict[Instant, dict[K, None]]:
        """The first slot that holds anything, split by instant; empty if there is none."""
        while self._numbers:
            number = self._numbers[0]
            if (bag := self._closed.pop(number, None)) is not None:
                self._open[number] = _split(bag)
            if groups := self._open.get(number):
                return groups
            self._open.pop(number, None)
            heappop(self._numbers)
        return {}

    def _add_number(self, number: int) -> None:
        heappush(self._numbers, number)
        # Slots emptied by cancelling leave their numbers behind; keys that move for ever must not pile them up.
        if len(self._numbers) > 2 * (len(self._closed) + len(self._open)) + _SPARE_NUMBERS:
            self._numbers = [*self._closed, *self._open]
            heapify(self._numbers)


def _split(bag: dict[K, Instant]) -> dict[Instant, dict[K, None]]:
    groups: dict[Instant, dict[K, None]] = {}
    for key, at in bag.items():
        groups.setdefault(at, {})[key] = None
    return groups
