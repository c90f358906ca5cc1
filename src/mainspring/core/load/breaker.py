"""A circuit breaker: where half of the calls fail, it is better not to call for a while.

Closed, all calls pass, and their outcomes of the last seconds are counted. Open, none passes. After a pause it is half
open: a few calls pass as probes; if they go well it closes, if one fails it opens again, for longer each time. A value,
without a clock: the caller passes the time (monotonic, in seconds).
"""

from __future__ import annotations

from typing import Literal, NamedTuple

State = Literal["closed", "open", "half-open"]


class Policy(NamedTuple):
    """When to open, and for how long."""

    share: float = 0.5
    """Opens when this part of the calls fails."""
    least: int = 10
    """The fewest calls of a window that are judged."""
    window_s: float = 10.0
    pause_s: float = 1.0
    longest_pause_s: float = 30.0
    probes: int = 3
    """The number of successful probes in a row that closes it."""


class Breaker(NamedTuple):
    """One breaker at one time."""

    policy: Policy = Policy()
    state: State = "closed"
    began_at: float = 0.0
    """When the counted window began, or the pause."""
    good: int = 0
    bad: int = 0
    before: tuple[int, int] = (0, 0)
    """What the window before this one counted: so that a window's end forgets half, not all."""
    pause_s: float = 0.0
    under_way: int = 0
    """Probes that have not been answered."""


def admit(breaker: Breaker, now: float) -> tuple[Breaker, bool]:
    """Whether a call may be made. A caller that is admitted must report the result."""
    if breaker.state == "closed":
        return breaker, True
    if breaker.state == "open":
        if now - breaker.began_at < breaker.pause_s:
            return breaker, False
        breaker = breaker._replace(state="half-open", began_at=now, good=0, bad=0, under_way=0)
    if now - breaker.began_at >= breaker.policy.window_s:
        # Probes that never came back must not keep it half open for ever.
        breaker = breaker._replace(began_at=now, under_way=0)
    if breaker.under_way + breaker.good >= breaker.policy.probes:
        return breaker, False
    return breaker._replace(under_way=breaker.under_way + 1), True


def note(breaker: Breaker, now: float, *, well: bool, before: int = 0) -> Breaker:
    """The result of an admitted call; and the number of earlier successes that were not yet reported."""
    if breaker.state == "open":
        return breaker  # It was let through before the breaker opened: that is known by now.
    if breaker.state == "half-open":
        return _probed(breaker, now, well=well)
    breaker = _turned(breaker, now)
    good, bad = breaker.good + well + before, breaker.bad + (not well)
    counted_good, counted_bad = good + breaker.before[0], bad + breaker.before[1]
    total = counted_good + counted_bad
    if not well and total >= breaker.policy.least and counted_bad >= total * breaker.policy.share:
        return _open(breaker, now, breaker.policy.pause_s)
    return breaker._replace(good=good, bad=bad)


def retry_in(breaker: Breaker, now: float) -> float:
    """In how many seconds a call is let through again."""
    return max(breaker.began_at + breaker.pause_s - now, 0.0) if breaker.state == "open" else 0.0


def _turned(breaker: Breaker, now: float) -> Breaker:
    """Begin a new half of the window where the last one has ended."""
    half = breaker.policy.window_s / 2
    passed = now - breaker.began_at
    if passed < half:
        return breaker
    before = (breaker.good, breaker.bad) if passed < 2 * half else (0, 0)
    return breaker._replace(began_at=now, good=0, bad=0, before=before)


def _probed(breaker: Breaker, now: float, *, well: bool) -> Breaker:
    if not well:
        longer = min(breaker.pause_s * 2, breaker.policy.longest_pause_s)
        return _open(breaker, now, longer)
    good = breaker.good + 1
    if good >= breaker.policy.probes:
        return Breaker(breaker.policy, began_at=now)
    return breaker._replace(good=good, under_way=max(breaker.under_way - 1, 0))


def _open(breaker: Breaker, now: float, pause_s: float) -> Breaker:
    return Breaker(breaker.policy, "open", now, pause_s=pause_s)
