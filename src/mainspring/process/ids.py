"""The source of new ids: a clock and a random source, both injected."""

from __future__ import annotations

from random import Random, SystemRandom

from mainspring.clock import Clock
from mainspring.core.ids import PAIRS, encode_bits, encode_time
from mainspring.core.instants import MILLISECOND

_STEP = 0x9E3779B97F
"""The step from one id's tail to the next: odd, so that all differ, and large, so that already their beginnings
differ."""
_TAILS = 2**40


class IdSource:
    """Ids that sort by time and never repeat: the milliseconds, a counter, and a tail that identifies a run to people:
    40 random bits of this source, moved on with each id. Two ids of one millisecond and count have different tails,
    since their sources differ."""

    def __init__(self, clock: Clock, random: Random | None = None) -> None:
        random = random or SystemRandom()
        self._clock = clock
        self._source = random.getrandbits(40)
        self._count = random.getrandbits(38)
        self._millisecond = -1
        self._thousand = -1
        self._prefix = self._middle = ""

    def new(self) -> str:
        """One more id, greater than every earlier one of this source unless the clock went back."""
        now = self._clock.now()
        if now // MILLISECOND != self._millisecond:
            self._millisecond = now // MILLISECOND
            self._prefix = encode_time(now)
        self._count += 1
        if self._count >> 10 != self._thousand:
            self._thousand = self._count >> 10
            self._middle = encode_bits(self._thousand, 6)
        return self._prefix + self._middle + PAIRS[self._count & 1023] + self._tail(self._count)

    def batch(self, size: int) -> list[str]:
        """Many ids at once, in order."""
        if size == 1:
            return [self.new()]
        prefix = encode_time(self._clock.now())
        ids: list[str] = []
        while len(ids) < size:
            # All before the last two characters of the counter is the same for 1,024 numbers.
            first = self._count + 1
            low = first & 1023
            endings = PAIRS[low : low + size - len(ids)]
            upper = prefix + encode_bits(first >> 10, 6)
            ids += [upper + ending + self._tail(number) for number, ending in enumerate(endings, first)]
            self._count += len(endings)
        return ids

    def _tail(self, count: int) -> str:
        number = (self._source + count * _STEP) % _TAILS
        pairs = PAIRS
        return pairs[number >> 30] + pairs[number >> 20 & 1023] + pairs[number >> 10 & 1023] + pairs[number & 1023]
