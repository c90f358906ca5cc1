"""How much a worker takes at once."""

from __future__ import annotations

AHEAD_S = 0.1
MOST_AHEAD = 1_000
RISE_S = 0.05
FALL_S = 1.0


def room(concurrency: int, held: int, finished_per_s: float) -> int:
    """How many more runs a worker may claim: never more than it can start soon, so that no run waits here while
    another worker is free.

    Fast tasks need work at hand while the next claim is on its way; slow ones must not be hoarded. So what is claimed
    ahead is what this worker lately finished in a tenth of a second.
    """
    ahead = min(int(finished_per_s * AHEAD_S), MOST_AHEAD)
    return max(concurrency + ahead - held, 0)


def smoothed(previous: float, count: int, seconds: float) -> float:
    """A rate that rises within a twentieth of a second, so that a burst of fast runs is met, and falls within one."""
    if seconds <= 0:
        return previous
    current = count / seconds
    weight = min(seconds / (RISE_S if current > previous else FALL_S), 1.0)
    return previous * (1 - weight) + current * weight
