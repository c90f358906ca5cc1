"""Where new ids come from: the clock and a random source, both injected."""

from __future__ import annotations

from random import Random, SystemRandom

from mainspring.clock import Clock
from mainspring.core.ids import PAIRS, encode_bits, encode_time
from mainspring.core.instants import MILLISECOND


class IdSource:
    """Ids that sort by time and never repeat: the milliseconds, 40 random bits of this source, and a counter."""

    def __init__(self, clock: Clock, random: Random | None = None) -> None:
        random = random or SystemRandom()
        self._clock = clock
        self._source = encode_bits(random.getrandbits(40), 8)
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
            self._middle = self._source + encode_bits(self._thousand, 6)
        return self._prefix + self._middle + PAIRS[self._count & 1023]

    def batch(self, size: int) -> list[str]:
        """Many ids at once, in order."""
        prefix = encode_time(self._clock.now()) + self._source
        ids: list[str] = []
        while len(ids) < size:
            # All but the last two characters are the same for 1,024 numbers.
            first = self._count + 1
            low = first & 1023
            endings = PAIRS[low : low + size - len(ids)]
            upper = prefix + encode_bits(first >> 10, 6)
            ids += [upper + ending for ending in endings]
            self._count += len(endings)
        return ids
