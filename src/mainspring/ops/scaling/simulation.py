"""A day of load without a single process: what a policy would do, to choose its figures.

Runs arrive along a curve with a quiet night, a busy evening and one sudden burst. Workers of equal size take them in
order. The policy sees what the autoscaler would see, and its workers start after a delay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from math import cos, pi
from typing import NamedTuple

from mainspring.core.instants import DAY, HOUR, MINUTE, SECOND, Duration, Instant
from mainspring.core.load.scaling import Load, ScalingPolicy, ScalingState, check_policy, decide

STEP: Duration = 5 * SECOND
WARM_UP: Duration = 6 * HOUR
BUSIEST_HOUR = 20
BURST_FROM, BURST_UNTIL = 9 * HOUR, 9 * HOUR + 20 * MINUTE
BURST_SHARE = 0.9
"""The burst reaches this share of the peak."""


class Day(NamedTuple):
    """The load of a day, and the workers that carry it."""

    peak_per_s: float = 300.0
    """Runs that arrive each second in the busiest hour."""
    quiet_share: float = 0.05
    """The share of the peak that arrives in the quietest hour."""
    run_time: Duration = 2 * SECOND
    concurrency: int = 10
    start_time: Duration = 10 * SECOND
    """Time from the decision to start a worker until it takes runs."""


class Sample(NamedTuple):
    """One step of the day."""

    at: Instant
    arrivals_per_s: float
    depth: int
    busy: int
    workers: int
    oldest_due: Duration
    reason: str


def arrivals_per_s(day: Day, at: Instant) -> float:
    """How many runs arrive each second at a time of the day."""
    wave = (1 + cos((at / HOUR - BUSIEST_HOUR) * 2 * pi / 24)) / 2
    share = day.quiet_share + (1 - day.quiet_share) * wave**2
    if BURST_FROM <= at % DAY < BURST_UNTIL:
        share = max(share, BURST_SHARE)
    return day.peak_per_s * share


def simulate_day(policy: ScalingPolicy, day: Day) -> Iterator[Sample]:
    """The steps of one day. It begins with the workers that the evening before left."""
    check_policy(policy)
    state, workers, waiting = ScalingState(), policy.minimum, 0.0
    starting: deque[Instant] = deque()
    for at in range(-WARM_UP, DAY, STEP):
        while starting and starting[0] <= at:
            starting.popleft()
        rate = arrivals_per_s(day, at)
        slots = max(workers - len(starting), 0) * day.concurrency
        throughput = slots * STEP / day.run_time
        due = waiting + rate * STEP / SECOND
        done = min(due, throughput)
        waiting = due - done
        busy = min(round(done * day.run_time / STEP), slots)
        oldest = round(waiting * STEP / throughput) if throughput else 0
        decided, reason, state = decide(policy, state, Load(at, workers, int(waiting), busy, slots, oldest))
        if at >= 0:
            yield Sample(at, rate, int(waiting), busy, workers, oldest, reason)
        starting.extend([at + day.start_time] * max(decided - workers, 0))
        for _ in range(min(max(workers - decided, 0), len(starting))):
            starting.pop()
        workers = decided
