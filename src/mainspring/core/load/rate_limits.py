"""How much a caller may ask for in a time: the generic cell rate algorithm, which needs one number per subject.

That number is the instant at which all that was asked for so far will have been paid off at the allowed pace. Each
request moves it forward; it may be ahead of now by the burst at most.
"""

from __future__ import annotations

import msgspec

from mainspring.core.instants import Duration, Instant, format_duration, parse_duration
from mainspring.errors import InvalidInput


class Pace(msgspec.Struct, frozen=True):
    """`amount` in each `period`, all of it at once if nothing was asked for lately."""

    amount: int
    period: Duration


def parse_pace(value: object, field: str) -> Pace:
    """`"10/m"`: ten in each minute. Per second, minute, hour or day, or of a duration: `"100/5m"`."""
    amount, separator, period = value.partition("/") if isinstance(value, str) else ("", "", "")
    if not separator or not amount.strip().isdecimal() or int(amount) == 0:
        raise InvalidInput(field, value, "is not a rate", 'write how many in which time, as in "10/s" or "100/5m"')
    written = period.strip()
    length = parse_duration(written if written[:1].isdecimal() else f"1{written}", field)
    if length == 0:
        raise InvalidInput(field, value, "is a rate in no time at all", 'write a time above zero, as in "10/s"')
    return Pace(int(amount), length)


def format_pace(pace: Pace) -> str:
    """As `parse_pace` reads it."""
    return f"{pace.amount}/{format_duration(pace.period)}"


class Allowance(msgspec.Struct, frozen=True):
    """The answer to a request for admission."""

    granted: bool
    paid_at: Instant
    """What to remember for the next time."""
    left: int
    """How much more may be asked for now."""
    wait: Duration = 0
    """After a refusal, how long to wait before the same spending can succeed."""


def allow(paid_at: Instant, now: Instant, cost: int, pace: Pace) -> Allowance:
    """Whether `cost` may be spent now. More than a whole burst is never granted: its wait is the whole period."""
    # It never runs ahead by more than the burst; where it seems to, the clock was set back.
    start = max(min(paid_at, now + pace.period), now)
    after = start + -(-cost * pace.period // pace.amount)
    horizon = now + pace.period
    if after <= horizon:
        return Allowance(True, after, _left(after, horizon, pace))
    wait = after - horizon if cost <= pace.amount else pace.period
    return Allowance(False, start, _left(start, horizon, pace), wait)


def _left(paid_at: Instant, horizon: Instant, pace: Pace) -> int:
    return max((horizon - paid_at) * pace.amount // pace.period, 0)
