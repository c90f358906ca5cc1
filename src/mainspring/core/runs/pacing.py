"""How much a worker takes at once."""

from __future__ import annotations

from mainspring.core.instants import MILLISECOND, Duration

AHEAD_S = 0.1
MOST_AHEAD = 1_000
CLAIM_AHEAD: Duration = 500 * MILLISECOND
"""A worker with nothing else to do claims what is due so soon, and starts it at its instant: many at once then start
together, however long it takes to claim them."""
MOST_EARLY = 5_000
_MEMORY = 20
"""The number of runs over which a worker averages their duration."""


def room(concurrency: int, held: int, run_s: float | None, most_ahead: int = MOST_AHEAD) -> int:
    """How many more runs a worker may claim: never more than it can start soon, so that no run waits here while another
    worker is free.

    Short runs need work at hand while the next claim is on its way; long ones must not be hoarded. So what is claimed
    ahead is what ends within a tenth of a second, if runs are as long as lately.
    """
    ahead = 0 if run_s is None else min(int(AHEAD_S * concurrency / max(run_s, 1e-6)), most_ahead)
    return max(concurrency + ahead - held, 0)


def typical(previous: float | None, total_s: float, count: int) -> float | None:
    """How long runs are lately, after `count` more that took `total_s` together."""
    if count == 0:
        return previous
    mean = max(total_s, 0.0) / count
    if previous is None:
        return mean
    weight = min(count / _MEMORY, 1.0)
    return previous * (1 - weight) + mean * weight
