"""From what contestants answered to lines of the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bench.cluster.arena import OURS
from bench.harness.figures import Row, Series, at, rate, share_of, show
from bench.harness.script import Answer

SHARES = (0.5, 0.99)


def figure_row(name: str, series: Mapping[str, Series], value: Callable[[Answer], float], unit: str) -> Row:
    """The figure of all contestants, and each round of it."""
    cells = {label: own.void or show(own.figure(value), unit) for label, own in series.items()}
    return Row(name, cells, rounds={label: own.rounds(value) for label, own in series.items()})


def rate_row(name: str, series: Mapping[str, Series]) -> Row:
    """Rates a second."""
    return figure_row(name, series, rate, "/s")


def judge(row: Row, value: float | None, other: float | None, times: float, whose: str) -> Row:
    """Whether ours is this many times another's figure of the same run."""
    row.ratio = share_of(value, other, whose)
    row.target = f"≥ {times:g} × {whose}"
    row.met = None if value is None or other is None else value >= times * other
    return row


def percentile_row(name: str, series: Mapping[str, Series], limits_ms: Mapping[float, float]) -> Row:
    """Median and 99th percentile of all contestants, and whether ours stay under their limits."""
    cells = {
        label: own.void or f"{show(own.figure(at(0.5)))} / {show(own.figure(at(0.99)), 'ms')}"
        for label, own in series.items()
    }
    rounds = {f"{label} p{share * 100:.0f}": own.rounds(at(share)) for label, own in series.items() for share in SHARES}
    row = Row(name, cells, rounds=rounds)
    if limits_ms:
        reached = {share: series[OURS].figure(at(share)) for share in limits_ms}
        row.target = ", ".join(f"p{share * 100:.0f} < {limit:g} ms" for share, limit in limits_ms.items())
        row.met = all(value is not None and value < limits_ms[share] for share, value in reached.items())
    return row
