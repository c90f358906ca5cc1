"""Pools: places of a worker that are kept for the runs of a priority.

A pool serves the priorities from its own down to the next pool's; the first one also those above it, so that every run
has a pool. Idle places help lower priorities, never higher ones. So:

- **No priority starves.** Its places are never given to runs of a higher priority, however many of these wait.
- **Urgent work does not wait for what was helped.** Of each pool a quarter of its places (`KEPT`) are left free when
  places are lent to lower priorities, for as long as its own runs have not taken them.

Places are alike, so no place is assigned to a run: runs of the first pools together never hold more than those
pools have together, and that is all that has to hold.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from mainspring.core.runs.priority import HIGHEST, LOWEST, check_priority
from mainspring.errors import InvalidInput

KEPT: Final = 4
"""One in this many places of a pool is kept free for its own runs: at least one."""
MOST_PLACES: Final = 10_000


class PriorityPool(NamedTuple):
    """The number of places for runs of these priorities."""

    places: int
    priorities: tuple[int, ...]

    @property
    def kept(self) -> int:
        """How many places it does not lend."""
        return -(-self.places // KEPT)


def make_pools(sizes: Mapping[int, int]) -> tuple[PriorityPool, ...]:
    """Pools by how many places each priority has, the highest priority first."""
    starts = sorted(sizes)
    firsts = [HIGHEST, *starts[1:]]
    return tuple(
        PriorityPool(sizes[priority], tuple(range(first, following)))
        for priority, first, following in zip(starts, firsts, [*starts[1:], LOWEST + 1], strict=True)
    )


def room_of(pools: Sequence[PriorityPool], held: Sequence[int], index: int) -> int:
    """How many more runs of a pool may begin, given the held ones: in its own places, and in those that higher
    pools can spare."""
    free, left = sum(pool.places for pool in pools), 0
    for number, pool in enumerate(pools):
        left += pool.places - held[number]
        if number >= index:
            free = min(free, left)
    kept = sum(
        min(pool.kept, max(pool.places - held[number], 0)) for number, pool in enumerate(pools) if number < index
    )
    return max(free - kept, 0)


def read_pools(field: str, written: Sequence[str]) -> tuple[tuple[int, int], ...]:
    """What was written as `priority=places`, in order of priority. InvalidInput says what is wrong with it."""
    sizes: dict[int, int] = {}
    for each in written:
        left, equals, right = (part.strip() for part in each.partition("="))
        if not equals or not left or not right:
            raise InvalidInput(field, each, "is not a pool", "write priority=places: 1=100")
        priority = check_priority(int(left) if left.isascii() and left.isdecimal() else left, field)
        if priority in sizes:
            raise InvalidInput(field, each, f"names priority {priority} again", "give each priority one pool")
        places = int(right) if right.isascii() and right.isdecimal() and len(right) <= 6 else 0
        if not 1 <= places <= MOST_PLACES:
            remedy = f"give a whole number of places from 1 to {MOST_PLACES}"
            raise InvalidInput(field, each, "does not say how many places", remedy)
        sizes[priority] = places
    return tuple(sorted(sizes.items()))
