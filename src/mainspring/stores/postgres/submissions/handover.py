"""When to hand over: a lone submission looks for a worker's offer, unless it is likely in vain."""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Final

LATELY_S: Final = 0.05
"""How long after a hand-over the next one is likely to succeed."""
PAUSE_S: Final = 0.004
"""How long after a failed hand-over no other is tried, unless it is likely to succeed."""


class Handover:
    """The results of this process's attempts to hand over."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._done_at = self._missed_at = -inf

    def done(self) -> None:
        """A worker was given one."""
        self._done_at = self._monotonic()

    def missed(self) -> None:
        """No worker offered, or others took the offers at the same time."""
        self._missed_at = self._monotonic()

    def is_likely(self) -> bool:
        return self._monotonic() < self._done_at + LATELY_S

    def is_worth_it(self) -> bool:
        return self.is_likely() or self._monotonic() > self._missed_at + PAUSE_S
