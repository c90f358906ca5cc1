"""When to hand over: a single submission looks for a worker's offer, unless that is likely to fail."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

LATELY_S: Final = 0.05
"""How long after a hand-over the next one is likely to succeed."""
PAUSE_S: Final = 0.004
"""How long after a failed hand-over no other is tried, unless it is likely to succeed."""


class Handover:
    """The recent results of hand-overs in one process."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._done_at = self._missed_at = -inf

    def done(self) -> None:
        """A worker accepted a run."""
        self._done_at = self._monotonic()

    def missed(self) -> None:
        """No worker offered, or others took the offers at the same time."""
        self._missed_at = self._monotonic()

    def is_likely(self) -> bool:
        return self._monotonic() < self._done_at + LATELY_S

    def is_worth_it(self) -> bool:
        return self.is_likely() or self._monotonic() > self._missed_at + PAUSE_S
