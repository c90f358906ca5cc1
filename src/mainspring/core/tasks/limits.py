"""The limit and the rate of a task, which hold for the whole task, or for each value of one of its arguments."""

from __future__ import annotations

from hashlib import sha256
from typing import Final

import msgspec

from mainspring.core.instants import MINUTE, Duration
from mainspring.core.load.rate_limits import Pace
from mainspring.core.model import Gate

LONGEST_VALUE: Final = 100
"""A longer value stands in names by its digest."""
FARTHEST: Final[Duration] = 5 * MINUTE
"""The longest that a run waits for its turn before the rate is asked again: runs that were to start before it may have
been cancelled."""

_names = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


def task_gate(task: str, limit: int, per: str, args: str) -> Gate:
    """The gate of a task's limit, for a run with these arguments."""
    return Gate(f"task:{task}{share_of(per, args)}", limit)


def share_of(per: str, args: str) -> str:
    """What sets the share of one value apart from that of another; empty for a task that counts all runs together. Runs
    that leave the argument out share what its default stands for."""
    if not per:
        return ""
    value = bytes(_names(args).get(per, b"")).decode()
    return f":{per}={value if len(value) <= LONGEST_VALUE else sha256(value.encode()).hexdigest()}"


class Turns:
    """The turns of runs that wait for the rate of one share: one after another, as far apart as the rate says.

    Without them all runs that wait would be claimed again at the first instant at which one of them may start.
    """

    def __init__(self) -> None:
        self._next: dict[str, Duration] = {}

    def take(self, name: str, wait: Duration, rate: Pace, now: Duration) -> Duration:
        """How long the next run has to wait, if the first turn is in `wait` from now on."""
        self._next = {each: at for each, at in self._next.items() if at > now}
        turn = max(now + wait, self._next.get(name, 0))
        self._next[name] = min(turn, now + FARTHEST) + rate.period // rate.amount
        return min(turn - now, max(FARTHEST, wait))
