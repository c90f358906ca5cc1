"""What is given up under pressure, in this order, and when it is taken up again.

Pressure is a number: the worst ratio of a measure to its limit. At 1 the limit is reached. A
level is entered when the pressure has stayed above its mark for a moment, and left when it has stayed well below it for
longer: so a load that swings around a mark does not make the levels swing.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from mainspring.core.instants import SECOND, Duration, Instant
from mainspring.core.runs.outcome import Next
from mainspring.core.states import SKIPPED

SHED_FROM: Final = 8
"""Priorities from here on are shed first."""

NORMAL, SHEDDING, SLOW_HISTORY, NO_WAITING, REFUSING = range(5)
NAMES: Final = ("normal", "shedding", "slow-history", "no-waiting", "refusing")
GIVEN_UP: Final = (
    "",
    f"runs of priorities {SHED_FROM} to 10 are skipped",
    "lists of the past answer slowly",
    'runs with under_pressure="run" do not wait for what they follow',
    "new work is refused",
)
"""What each level gives up in addition to those before it."""
MARKS: Final = (0.0, 1.0, 1.5, 2.0, 3.0)
"""The pressure at which each level is entered."""
LEAVE: Final = 0.7
"""A level is left below this part of its mark."""
ENTER_AFTER: Duration = 3 * SECOND
LEAVE_AFTER: Duration = 15 * SECOND


class Limits(NamedTuple):
    """The limit of each measure."""

    pool_wait: Duration
    """How long a request waits for a connection, on average."""
    depth: int
    """How many due runs of priorities that are not shed wait for a worker."""
    lateness: Duration
    """How long the oldest of them has waited."""


class Load(NamedTuple):
    """What was measured."""

    pool_wait: Duration = 0
    depth: int = 0
    lateness: Duration = 0


class Level(NamedTuple):
    """The current level, and since when the pressure has asked for another one."""

    number: int = NORMAL
    above_since: Instant | None = None
    below_since: Instant | None = None

    @property
    def name(self) -> str:
        """The name of the level for people."""
        return NAMES[self.number]

    @property
    def given_up(self) -> str:
        """All that is given up at the level, for people: what was given up last, and hurts most, first."""
        return ", ".join(reversed(GIVEN_UP[1 : self.number + 1]))


def pressure(load: Load, limits: Limits) -> float:
    """The worst of what was measured, beside its limit."""
    return max(part / max(limit, 1) for part, limit in zip(load, limits, strict=True))


def judge(level: Level, measured: float, now: Instant) -> Level:
    """The level from now on: at most one step up or down at a time."""
    number = level.number
    above = number < REFUSING and measured >= MARKS[number + 1]
    below = number > NORMAL and measured < MARKS[number] * LEAVE
    above_since = (now if level.above_since is None else level.above_since) if above else None
    below_since = (now if level.below_since is None else level.below_since) if below else None
    if above_since is not None and now - above_since >= ENTER_AFTER:
        return Level(number + 1, now, None)
    if below_since is not None and now - below_since >= LEAVE_AFTER:
        return Level(number - 1, None, now)
    return Level(number, above_since, below_since)


def shed_end(reason: str) -> Next:
    """How a run ends that is shed."""
    return Next(SKIPPED, f"shed: {reason}")


def hurried_why(reason: str) -> str:
    """Why a run or a job does not wait for what it follows."""
    return f"does not wait for what it follows: {reason}"


def describe(load: Load, limits: Limits) -> str:
    """Why, for the reason of what is shed and for the log."""
    parts = []
    if load.lateness >= limits.lateness:
        parts.append(f"runs wait {_spoken(load.lateness)}")
    if load.depth >= limits.depth:
        parts.append(f"{load.depth} runs wait")
    if load.pool_wait >= limits.pool_wait:
        parts.append(f"requests wait {load.pool_wait / SECOND:.1f} s for the database")
    return ", ".join(parts) or "the pressure has not yet gone"


_SECONDS: Final = {"h": 3_600, "m": 60, "s": 1}


def _spoken(duration: Duration) -> str:
    """A time as people say it, in its two largest units: `1 h 26 m`."""
    seconds = duration // SECOND
    for size, large, small in ((86_400, "d", "h"), (3_600, "h", "m"), (60, "m", "s")):
        if seconds >= size:
            rest = seconds % size // _SECONDS[small]
            return f"{seconds // size} {large} {rest} {small}" if rest else f"{seconds // size} {large}"
    return f"{seconds} s"
