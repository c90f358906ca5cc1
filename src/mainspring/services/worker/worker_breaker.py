"""The circuit breaker of a worker: while half of its attempts cannot be executed at all, the worker claims nothing.

Runs then wait in the store for other workers, or for later, instead of using up their retries here.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

from mainspring.core.load.breaker import Breaker, Policy, admit, note, retry_in
from mainspring.process.metrics import Metrics
from mainspring.services.loop import log

NAME = "worker"
UNBOUNDED = 1_000_000
PROBING_S = 0.1
"""How often to look whether the probing runs have ended."""


class WorkerBreaker:
    """Counts attempts that the executor could not carry out. An attempt that fails by itself is no fault of the
    worker."""

    def __init__(self, policy: Policy, monotonic: Callable[[], float], metrics: Metrics) -> None:
        self._monotonic = monotonic
        self._metrics = metrics
        self._lock = Lock()
        self._breaker = Breaker(policy, began_at=monotonic())
        self._good = 0
        """Successes not yet counted: most attempts are executed."""
        metrics.breakers[NAME] = "closed"
        self.on_open: Callable[[], None] = lambda: None

    def executed(self, well: bool) -> bool:
        """Note how an attempt went; returns whether its run should wait instead of using up an attempt. On the task
        loop."""
        if well and self._breaker.state == "closed":
            self._good += 1
            return False
        good, self._good = self._good, 0
        with self._lock:
            before = self._breaker.state
            self._breaker = note(self._breaker, self._monotonic(), well=well, before=good)
            after = self._breaker.state
        if after != before:
            self._changed(after)
        return not well and after == "open"

    def wait_s(self, held: int) -> float:
        """How long to claim nothing; 0 to claim now. `held` is the number of runs in hand."""
        if self._breaker.state == "closed":
            return 0.0
        with self._lock:
            now = self._monotonic()
            wait_s = retry_in(self._breaker, now)
            if wait_s == 0 and self._breaker.state == "open":
                self._breaker, _ = admit(self._breaker, now)
                self._changed("half-open")
        return wait_s or (PROBING_S if held else 0.0)

    @property
    def most(self) -> int:
        """How many runs to claim at once: after a pause only a few, as a probe."""
        return UNBOUNDED if self._breaker.state == "closed" else self._breaker.policy.probes

    def _changed(self, state: str) -> None:
        self._metrics.breakers[NAME] = state
        if state == "open":
            log.error("breaker open: this worker cannot execute runs and claims none for %.1f s", self._breaker.pause_s)
            self.on_open()
        else:
            log.warning("breaker of this worker is %s", state)
