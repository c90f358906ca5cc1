"""Load scripts: offer work at a steady rate, and report what was done, and how late, beside the source's figures."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

DAY_S = 86_400
TICK_S = 0.1
"""How often a batch is offered: often enough for a steady load, seldom enough for batches."""


class Source(NamedTuple):
    """One line of the comparison table of the source."""

    system: str
    approach: str
    per_day: int
    within_s: float

    @property
    def per_s(self) -> float:
        """The rate of an even day."""
        return self.per_day / DAY_S


STRIPE = Source("Stripe", "Redis lock", 10_000, 30)
AIRBNB = Source("Airbnb", "Quartz cluster", 100_000, 60)
NETFLIX = Source("Netflix", "Kafka queue", 10_000_000, 60)
UBER = Source("Uber", "Time-wheel + priority", 100_000_000, 300)
GOOGLE = Source("Google", "Leader-follower", 1_000_000_000, 10)


class Load(NamedTuple):
    """What to offer."""

    rate: float
    seconds: float


def read_load(description: str, rate: float) -> Load:
    """The load from the command line: `--rate` runs per second for `--seconds`."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rate", type=float, default=rate, help="jobs per second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30, help="how long to offer them (default: %(default)s)")
    words = parser.parse_args()
    return Load(words.rate, words.seconds)


async def offer(load: Load, act: Callable[[int, int], Awaitable[object]]) -> float:
    """Call `act(first, count)` for consecutive numbers at the rate of the load; the seconds that it took.

    A call that takes long is not made up for by waiting: the next call offers what is due by then.
    """
    began, offered = time.monotonic(), 0
    total = round(load.rate * load.seconds)
    while offered < total:
        due = min(total, round((time.monotonic() - began + TICK_S) * load.rate))
        if due > offered:
            await act(offered, due - offered)
            offered = due
        await asyncio.sleep(TICK_S - (time.monotonic() - began) % TICK_S)
    return time.monotonic() - began


def report_load(source: Source, load: Load, took_s: float, latencies_s: Sequence[float], what: str) -> str:
    """The figures, and one line for the table in docs/reference-systems.md. `what` says what the latency spans."""
    ordered = sorted(latencies_s)
    if not ordered:
        return f"{source.system}: nothing was done"
    p50, p99, worst = (ordered[min(int(len(ordered) * part), len(ordered) - 1)] for part in (0.5, 0.99, 1.0))
    rate = len(ordered) / took_s
    scale = rate * DAY_S
    return "\n".join(
        (
            f"{source.system}: {len(ordered)} of {round(load.rate * load.seconds)} jobs in {took_s:.0f} s",
            f"  source  {source.per_day:,} a day ({source.per_s:,.1f}/s), under {source.within_s:g} s",
            f"  here    {scale:,.0f} a day ({rate:,.0f}/s): {scale / source.per_day:,.2f} times the source",
            f"  {what}: p50 {_span(p50)}, p99 {_span(p99)}, longest {_span(worst)}",
            f"  {_machine()}",
            f"| {source.system} | {source.approach} | {source.per_day:,} | {source.within_s:g} s | {rate:,.0f}/s for"
            f" {load.seconds:g} s = {scale / 1e6:,.1f} M | {_span(p50)} / {_span(p99)} / {_span(worst)} |",
        )
    )


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def _machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {model}, {os.cpu_count()} cores, {platform.system()}, load {load}"
