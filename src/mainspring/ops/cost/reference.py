"""The worked example: a fleet of 3 billion runs a month, its published tables as data, and which sums do not hold."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import ROUND_HALF_UP, Decimal

import msgspec

from mainspring.ops.cost.bill import Bill, Price, Saving, Savings, Usage, price, save

RUNS = Decimal(3_000_000_000)
SCHEDULERS = 15

PRICES: Sequence[Price] = (
    Price("workers", "million_runs", Decimal(800)),
    Price("schedulers", "scheduler_month", Decimal(300)),
    Price("database", "month", Decimal(12_000)),
    Price("redis", "month", Decimal(3_600)),
    Price("storage", "million_runs", Decimal("1.694")),
    Price("network", "million_runs", Decimal(50_000) / 3_000),
)
"""The unit prices that the published components of a month come to."""
SAVINGS: Sequence[Saving] = (
    Saving("spot instances", "workers", Decimal("0.60"), "a worker may be interrupted; its runs are executed again"),
    Saving("batching of small jobs", "workers", Decimal("0.20"), "a run waits a little for others"),
    Saving("reserved instances", "schedulers", Decimal("0.40"), "one year's commitment"),
    Saving("connection pools and queries", "database", Decimal("0.25"), "more to tune"),
)

STATED_TOTAL = Decimal(2_970_000)
STATED_DRIVERS = {"workers": Decimal(2_400_000), "database": Decimal(400_000), "kafka": Decimal(100_000)}
"""The largest components by the text on optimisation."""
STATED_SCHEDULERS = Decimal(600_000)
"""What that text takes 40 % of for reserved instances."""
STATED_SAVINGS = {
    "spot instances": Decimal(1_440_000),
    "reserved instances": Decimal(240_000),
    "batching of small jobs": Decimal(480_000),
    "connection pools and queries": Decimal(100_000),
}
STATED_OPTIMISED = Decimal(710_000)
STATED_PER_RUN = {"execution": Decimal("0.00099"), "scheduling": Decimal("0.00001")}
STATED_OPTIMISED_RUN = {"execution": Decimal("0.00024"), "scheduling": Decimal("0.000002")}
STATED_PHASES = (Decimal(1_680_000), Decimal(580_000))
STATED_TARGET = Decimal(2_079_000)


class Finding(msgspec.Struct, frozen=True):
    """A published figure beside the computed one."""

    what: str
    stated: Decimal
    computed: Decimal
    holds: bool
    note: str = ""


def reference_bill() -> Bill:
    """The table of components, priced from its inputs."""
    return price(PRICES, Usage(RUNS, schedulers=SCHEDULERS))


def reference_savings() -> Savings:
    """The savings on the published components."""
    return save(reference_bill(), SAVINGS)


def findings() -> list[Finding]:
    """Every sum of the published tables, computed again."""
    bill, stated_savings = reference_bill(), sum(STATED_SAVINGS.values(), Decimal(0))
    drivers = sum(STATED_DRIVERS.values(), Decimal(0))
    spot, batch = SAVINGS[0].share, SAVINGS[1].share
    batch_in_turn = STATED_DRIVERS["workers"] * (1 - spot) * batch
    return [
        _compare("monthly total of the table of components", STATED_TOTAL, bill.total,
                 f"the components are {STATED_TOTAL - bill.total:,.2f} short of the total"),
        _compare("database, in the table and in the text", STATED_DRIVERS["database"], bill.of("database"),
                 "the text prices the database 33 times as high as the table"),
        _compare("schedulers, in the table and in the text", STATED_SCHEDULERS, bill.of("schedulers"),
                 "the text saves 40 % of an amount that the table does not have"),
        _compare("kafka, in the table and in the text", STATED_DRIVERS["kafka"], bill.of("kafka"),
                 "the table has no message queue"),
        _compare("the three largest of the text, beside the total", STATED_TOTAL, drivers,
                 f"{STATED_TOTAL - drivers:,.2f} remain for everything else; schedulers alone are said to be 600,000"),
        _compare("spot instances: 60 % of the workers", STATED_SAVINGS["spot instances"],
                 STATED_DRIVERS["workers"] * spot),
        _compare("reserved instances: 40 % of the schedulers in the table", STATED_SAVINGS["reserved instances"],
                 bill.of("schedulers") * SAVINGS[2].share, "on the table's schedulers it saves 1,800"),
        _compare("batching: 20 % of what spot instances leave", STATED_SAVINGS["batching of small jobs"], batch_in_turn,
                 "both take their share of the same 2,400,000: the second saves 20 % of the 960,000 that are left"),
        _compare("database optimisation: 25 % of the database in the table",
                 STATED_SAVINGS["connection pools and queries"], bill.of("database") * SAVINGS[3].share,
                 "on the table's database it saves 3,000"),
        _compare("sum of the savings", Decimal(2_260_000), stated_savings),
        _compare("savings of phase 1", STATED_PHASES[0],
                 STATED_SAVINGS["spot instances"] + STATED_SAVINGS["reserved instances"]),
        _compare("savings of phase 2", STATED_PHASES[1],
                 STATED_SAVINGS["batching of small jobs"] + STATED_SAVINGS["connection pools and queries"]),
        _compare("optimised monthly cost", STATED_OPTIMISED, STATED_TOTAL - stated_savings),
        _compare("target: 30 % less", STATED_TARGET, STATED_TOTAL * Decimal("0.7")),
        _compare("cost of one run", STATED_PER_RUN["execution"], STATED_TOTAL / RUNS),
        _compare("cost of a million runs", Decimal(990), STATED_TOTAL / RUNS * 1_000_000),
        _compare("scheduling of one run", STATED_PER_RUN["scheduling"], bill.of("schedulers") / RUNS,
                 "0.00001 for each of 3 billion runs is 30,000; the table's schedulers cost 4,500"),
        *_shares(bill, stated_savings),
    ]  # fmt: skip


def _shares(bill: Bill, savings: Decimal) -> list[Finding]:
    """The percentages, and what is left of the cost of a run. They are published rounded."""
    run, scheduling = STATED_PER_RUN["execution"], STATED_PER_RUN["scheduling"]
    return [
        _round("workers, as a share of the total", Decimal("0.81"), STATED_DRIVERS["workers"] / STATED_TOTAL),
        _round("database of the text, as a share of the total", Decimal("0.13"),
               STATED_DRIVERS["database"] / STATED_TOTAL),
        _round("kafka of the text, as a share of the total", Decimal("0.03"), STATED_DRIVERS["kafka"] / STATED_TOTAL),
        _round("network, as a share of the total", Decimal("0.02"), bill.of("network") / STATED_TOTAL),
        _round("all components, as a share of the total", Decimal("1.00"), bill.total / STATED_TOTAL,
               "the rows of the table come to 83 % of its total"),
        _round("the savings, as a share of the total", Decimal("0.76"), savings / STATED_TOTAL),
        _round("optimised cost of one run", STATED_OPTIMISED_RUN["execution"], STATED_OPTIMISED / RUNS),
        _round("how much less one run costs", Decimal("0.76"), 1 - STATED_OPTIMISED_RUN["execution"] / run),
        _round("optimised scheduling of one run", STATED_OPTIMISED_RUN["scheduling"],
               scheduling * (1 - SAVINGS[2].share), "reserved instances save 40 % of it; nothing saves 80 %"),
        _round("how much less the scheduling of one run costs", Decimal("0.80"),
               1 - STATED_OPTIMISED_RUN["scheduling"] / scheduling),
    ]  # fmt: skip


def _round(what: str, stated: Decimal, computed: Decimal, note: str = "") -> Finding:
    """As `_compare`, of a published figure that is rounded."""
    return _compare(what, stated, computed.quantize(stated, ROUND_HALF_UP), note)


def _compare(what: str, stated: Decimal, computed: Decimal, note: str = "") -> Finding:
    holds = stated == computed
    return Finding(what, stated, computed, holds, "" if holds else note)
