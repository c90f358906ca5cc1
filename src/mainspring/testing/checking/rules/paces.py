"""Rate limits: no subject is granted more than the pace allows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from fractions import Fraction

import msgspec

from mainspring.core.instants import SECOND
from mainspring.core.load.rate_limits import Pace
from mainspring.testing.checking.stories.stories import Stories
from mainspring.testing.checking.verdict import Finding, found
from mainspring.testing.history import Record

_read_pace = msgspec.json.Decoder(Pace).decode


def spending_stays_within_its_pace(stories: Stories) -> Iterator[Finding]:
    """(20) In no stretch of time is more granted than a whole burst and what the pace gives in that time.

    Not seen: what was granted at an instant that is not known; budgets whose pace changed; refusals without need.
    """
    budgets: dict[str | None, list[Record]] = defaultdict(list)
    for record in stories.spends:
        if record.outcome != "refused" and record.sent is None:
            budgets[record.name].append(record)
    for name, granted in budgets.items():
        if len({record.data for record in granted}) == 1:
            yield from _too_fast(name, sorted(granted, key=lambda record: (record.store, record.seq)))


def _too_fast(name: str | None, granted: list[Record]) -> Iterator[Finding]:
    pace = _read_pace(granted[0].data or "")
    paid_at, stretch = Fraction(0), list[Record]()
    for record in granted:
        if paid_at <= record.store:
            paid_at, stretch = Fraction(record.store), []
        stretch.append(record)
        paid_at += Fraction((record.count or 0) * pace.period, pace.amount)
        if paid_at > record.store + pace.period:
            total = sum(each.count or 0 for each in stretch)
            took = (record.store - stretch[0].store) / SECOND
            allowed = f"{pace.amount} in {pace.period / SECOND:g} s"
            yield found(f"{name} was granted {total} within {took:g} s, though its pace is {allowed}", *stretch)
            paid_at, stretch = Fraction(0), []
