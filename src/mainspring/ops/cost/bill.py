"""What a fleet costs: components priced by their units, savings, shares by tag. Money is exact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from decimal import ROUND_HALF_UP, Decimal
from typing import Literal, get_args

import msgspec

Unit = Literal[
    "million_runs",
    "worker_hour",
    "busy_hour",
    "cpu_hour",
    "scheduler_month",
    "million_rows",
    "gigabyte_month",
    "month",
]
"""What a price is for: a million runs, an hour of a worker process, an hour of executing runs, an hour of CPU time, a
scheduler for a month, a million runs that the store keeps, a gigabyte of the store for a month, or a month of the
component whatever it does."""
UNITS: tuple[Unit, ...] = get_args(Unit)
GIGABYTE = 1_000_000_000

HOURS_PER_MONTH = 720
"""A month has 30 days everywhere on this page."""
CENT = Decimal("0.01")
UNTAGGED = "(none)"


class Price(msgspec.Struct, frozen=True):
    """One component and its price in dollars."""

    component: str
    unit: Unit
    price: Decimal


class Saving(msgspec.Struct, frozen=True):
    """A way to spend less: this share of one component."""

    name: str
    component: str
    share: Decimal
    trade_off: str = ""


class Usage(msgspec.Struct, frozen=True):
    """What a fleet does in a month."""

    runs: Decimal
    busy_hours: Decimal = Decimal(0)
    worker_hours: Decimal = Decimal(0)
    cpu_hours: Decimal = Decimal(0)
    schedulers: int = 1
    rows: int = 0
    """Runs that the store keeps."""
    bytes: int = 0
    """The size of the store."""

    def of(self, unit: Unit) -> Decimal:
        """How many of these units the month has."""
        amounts: dict[Unit, Decimal] = {
            "million_runs": self.runs / 1_000_000,
            "worker_hour": self.worker_hours,
            "busy_hour": self.busy_hours,
            "cpu_hour": self.cpu_hours,
            "scheduler_month": Decimal(self.schedulers),
            "million_rows": Decimal(self.rows) / 1_000_000,
            "gigabyte_month": Decimal(self.bytes) / GIGABYTE,
            "month": Decimal(1),
        }
        return amounts[unit]


class Item(msgspec.Struct, frozen=True):
    """A line of a bill."""

    component: str
    amount: Decimal
    share: Decimal


class Bill(msgspec.Struct, frozen=True):
    """A month's cost, the largest component first."""

    items: list[Item]
    total: Decimal
    per_run: Decimal | None
    """None where nothing ran."""
    per_million: Decimal | None

    def of(self, component: str) -> Decimal:
        """What a component costs; 0 if it is not on the bill."""
        return sum((item.amount for item in self.items if item.component == component), Decimal(0))


class Saved(msgspec.Struct, frozen=True):
    """What a saving brings: by itself, and after the ones that rank above it."""

    name: str
    component: str
    share: Decimal
    alone: Decimal
    in_turn: Decimal
    trade_off: str


class Savings(msgspec.Struct, frozen=True):
    """All savings, the largest first. Those of one component overlap: the second saves a share of what is left."""

    items: list[Saved]
    sum_alone: Decimal
    total: Decimal
    """What they save together, one after the other."""
    left: Decimal


class Share(msgspec.Struct, frozen=True):
    """What one tag, queue, task or job used of a month, and what it is charged."""

    name: str
    runs: Decimal
    busy_hours: Decimal
    amount: Decimal


class Measured(msgspec.Struct, frozen=True):
    """One run that was measured: what it is charged to, and how long it was executed."""

    names: tuple[str, ...]
    busy_s: float


def cents(amount: Decimal) -> Decimal:
    """An amount in whole cents."""
    return amount.quantize(CENT, ROUND_HALF_UP)


def price(prices: Sequence[Price], usage: Usage) -> Bill:
    """The bill of a month."""
    amounts = [(each.component, cents(each.price * usage.of(each.unit))) for each in prices]
    return bill_of(amounts, usage.runs)


def bill_of(amounts: Iterable[tuple[str, Decimal]], runs: Decimal) -> Bill:
    """A bill of known amounts."""
    ranked = sorted(amounts, key=lambda pair: -pair[1])
    total = sum((amount for _, amount in ranked), Decimal(0))
    items = [Item(name, amount, amount / total if total else Decimal(0)) for name, amount in ranked]
    per_run = total / runs if runs else None
    return Bill(items, total, per_run, None if per_run is None else cents(per_run * 1_000_000))


def save(bill: Bill, savings: Iterable[Saving]) -> Savings:
    """Rank savings by what each brings alone, and apply them in that order."""
    alone = {each: cents(bill.of(each.component) * each.share) for each in savings}
    left = {item.component: item.amount for item in bill.items}
    items = []
    for each, amount in sorted(alone.items(), key=lambda pair: -pair[1]):
        brings = cents(left.get(each.component, Decimal(0)) * each.share)
        left[each.component] = left.get(each.component, Decimal(0)) - brings
        items.append(Saved(each.name, each.component, each.share, amount, brings, each.trade_off))
    total = sum((item.in_turn for item in items), Decimal(0))
    return Savings(items, sum(alone.values(), Decimal(0)), total, bill.total - total)


def charge(bill: Bill, prices: Sequence[Price], runs: Sequence[Measured], scale: Decimal) -> list[Share]:
    """Divide a bill: components priced by hours by the time of execution, all others by runs. A run with several names
    is divided between them, so the shares add up to the bill. `scale` makes a month of what was measured."""
    counts: defaultdict[str, Decimal] = defaultdict(Decimal)
    hours: defaultdict[str, Decimal] = defaultdict(Decimal)
    for run in runs:
        names = run.names or (UNTAGGED,)
        for name in names:
            counts[name] += Decimal(1) / len(names)
            hours[name] += Decimal(str(run.busy_s)) / 3600 / len(names)
    by_time = {each.component for each in prices if each.unit in ("worker_hour", "busy_hour", "cpu_hour")}
    timed = sum((item.amount for item in bill.items if item.component in by_time), Decimal(0))
    time_share, run_share = _shares(hours), _shares(counts)
    if not any(time_share.values()):
        time_share = run_share  # Runs too short to measure still share the hours of idle workers.
    exact = {name: timed * time_share[name] + (bill.total - timed) * run_share[name] for name in counts}
    ranked = sorted(exact, key=lambda name: (-exact[name], name))
    amounts = _to_cents([exact[name] for name in ranked], bill.total)
    return [
        Share(name, counts[name] * scale, hours[name] * scale, amount)
        for name, amount in zip(ranked, amounts, strict=True)
    ]


def _shares(amounts: Mapping[str, Decimal]) -> dict[str, Decimal]:
    total = sum(amounts.values(), Decimal(0))
    return {name: amount / total if total else Decimal(0) for name, amount in amounts.items()}


def _to_cents(amounts: Sequence[Decimal], total: Decimal) -> list[Decimal]:
    """Round so that the sum is kept: what rounding leaves goes to the largest."""
    rounded = [cents(amount) for amount in amounts]
    if rounded:
        rounded[0] += total - sum(rounded, Decimal(0))
    return rounded
