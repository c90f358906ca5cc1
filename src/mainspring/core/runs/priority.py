"""Priorities from 1 (highest) to 10, and the two orders in which due runs are served.

Both are one formula on integers, the smallest rank first: `priority * step + due_at`.

- `strict`: a step outweighs any instant, so that a run is served before all of lower priority. Low ones may starve.
- `ageing`: a step is worth 1000 seconds of waiting. No run starves: a run of priority p is overtaken only by runs that
  come due at most (p - 1) * 1000 s after it. So it waits no longer than the runs due until then take to serve,
  whatever is submitted afterwards.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Final, Literal

from mainspring.core.instants import SECOND, Duration, Instant
from mainspring.errors import InvalidInput

Ordering = Literal["strict", "ageing"]

HIGHEST: Final = 1
LOWEST: Final = 10
PRIORITIES: Final = tuple(range(HIGHEST, LOWEST + 1))

STEPS: Final = MappingProxyType[Ordering, Duration](
    {
        # The epoch plus this many microseconds is in the year 2286; ten such steps fill a hundredth of 64 bits.
        "strict": 10_000_000_000_000_000,
        "ageing": 1_000 * SECOND,
    }
)


def rank(priority: int, due_at: Instant, ordering: Ordering) -> int:
    """Where a due run stands in line: lower is served first. It fits a signed 64-bit integer."""
    return priority * STEPS[ordering] + due_at


def check_priority(value: object, field: str = "priority") -> int:
    """The priority, if it is one."""
    if not isinstance(value, int) or isinstance(value, bool) or not HIGHEST <= value <= LOWEST:
        remedy = f"choose a whole number from {HIGHEST} (highest) to {LOWEST} (lowest)"
        raise InvalidInput(field, value, "is not a priority", remedy)
    return value
