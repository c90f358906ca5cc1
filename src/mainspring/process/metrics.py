"""Metrics: what a process counts of what passes between it and its backends.

Sums over processes are sums over the fleet. Nothing is counted by job, task or run: the number of series is bounded.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from itertools import accumulate
from threading import Lock
from typing import Final

from mainspring.core.instants import SECOND, Duration

SECONDS: Final = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0)
"""The upper bounds of the buckets of all histograms."""
_BOUNDS = [int(seconds * SECOND) for seconds in SECONDS]


class Durations:
    """How often something took how long."""

    def __init__(self) -> None:
        self._counts = [0] * (len(SECONDS) + 1)
        self.total_s = 0.0

    def add(self, *durations: Duration) -> None:
        """Count these durations."""
        counts = self._counts
        for duration in durations:
            counts[bisect_left(_BOUNDS, duration)] += 1
        self.total_s += sum(durations) / SECOND

    def buckets(self) -> list[tuple[str, int]]:
        """Each upper bound with how many durations are within it, as Prometheus counts."""
        bounds = [*(f"{bound:g}" for bound in SECONDS), "+Inf"]
        return list(zip(bounds, accumulate(self._counts), strict=True))


class Metrics:
    """Counters of one process. They only grow."""

    def __init__(self, targets: Mapping[int, Duration] | None = None) -> None:
        """`targets`: by priority, how long after they are due runs should start at the latest."""
        self.targets = targets or {}
        self.lock = Lock()
        self.counts: Counter[tuple[str, str]] = Counter()
        """Counters by name and label; the label is empty for counters without one."""
        self.region = ""
        """The region of this process's worker: empty without a worker, and `several` where it serves more than one."""
        self.breakers: dict[str, str] = {}
        """The state of each circuit breaker of this process, by name: closed, open or half-open."""
        self.run_seconds = Durations()
        self.run_delay = Durations()
        self.firing_delay = Durations()
        self.lock_wait = Durations()
        self.lock_held = Durations()
        self.broker_publish = Durations()
        self.broker_receive = Durations()
        self.broker_depths: Mapping[tuple[str, str, str, str], int] = {}
        """What waits in the broker, by namespace, queue, region, and the broker's own queue or partition. Empty unless
        this process leads."""

    def count(self, name: str, label: str = "", number: int = 1) -> None:
        """Count `number` more."""
        with self.lock:
            self.counts[name, label] += number
