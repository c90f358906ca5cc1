"""Load scripts: offer work at a steady rate, and report what was done, and how late, beside the source's figures."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from examples.running import Stage, connected

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
    future: int = 0
    """Runs that are due in a week, and wait beside it."""


def read_load(description: str, rate: float, future: int | None = None) -> Load:
    """The load from the command line: `--rate` runs per second for `--seconds`; `--future`, if there is a default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--rate", type=float, default=rate, help="jobs per second (default: %(default)s)")
    parser.add_argument("--seconds", type=float, default=30, help="how long to offer them (default: %(default)s)")
    if future is not None:
        parser.add_argument("--future", type=int, default=future, help="runs of next week (default: %(default)s)")
    words = parser.parse_args()
    return Load(words.rate, words.seconds, getattr(words, "future", 0))


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


async def used_cpu(stage: Stage, since: Mapping[str, float] = MappingProxyType({})) -> dict[str, float]:
    """The CPU seconds that each part has used so far, or since an earlier answer of this function.

    Parts are this process, the processes of the stage by role, and the connections that PostgreSQL serves. Brokers,
    electors and the background processes of PostgreSQL are not included.
    """
    used = {"client": time.process_time()}
    for process in stage.processes:
        role = process.name.partition("-")[0]
        used[role] = used.get(role, 0.0) + _cpu_s(process.pid)
    async with connected(stage.store) as ledger:
        rows = await ledger.fetch("SELECT pid FROM pg_stat_activity WHERE datname = current_database()")
    used["PostgreSQL"] = sum((_cpu_s(row["pid"]) for row in rows), 0.0)
    return {part: max(value - since.get(part, 0.0), 0.0) for part, value in used.items()}


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # It has ended, or this is not Linux.
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # Its own, and that of children that have ended.


def report_load(
    source: Source, load: Load, took_s: float, latencies_s: Sequence[float], what: str, used: Mapping[str, float]
) -> str:
    """The figures, and one line for the table in docs/reference-systems.md.

    `latencies_s` are in the order in which the jobs were offered; `what` says what they span. `used` is the CPU time of
    each part, by `used_cpu`.
    """
    if not latencies_s:
        return f"{source.system}: nothing was done"
    ordered, done = sorted(latencies_s), len(latencies_s)
    p50, p99, worst = (_part(ordered, part) for part in (0.5, 0.99, 1.0))
    first, second = (_part(sorted(half), 0.5) for half in (latencies_s[: done // 2 or 1], latencies_s[done // 2 :]))
    rate = done / took_s
    scale = rate * DAY_S
    each_us = {name: value / done * 1e6 for name, value in used.items()}
    parts = ", ".join(f"{name} {value:,.0f}" for name, value in each_us.items())
    most = (os.cpu_count() or 1) / sum(each_us.values()) * 1e6
    return "\n".join(
        (
            f"{source.system}: {done} of {round(load.rate * load.seconds)} jobs in {took_s:.0f} s",
            f"  source  {source.per_day:,} a day ({source.per_s:,.1f}/s), under {source.within_s:g} s",
            f"  here    {scale:,.0f} a day ({rate:,.0f}/s): {scale / source.per_day:,.2f} times the source",
            f"  {what}: p50 {_span(p50)}, p99 {_span(p99)}, longest {_span(worst)}",
            f"  p50 of the first half {_span(first)}, of the second {_span(second)}: equal if the backlog is flat",
            f"  CPU time of a job: {parts}: {sum(each_us.values()):,.0f} µs, {most:,.0f}/s on {os.cpu_count()} cores",
            f"  {machine()}",
            f"| {source.system} | {source.approach} | {source.per_day:,} | {source.within_s:g} s | {rate:,.0f}/s for"
            f" {load.seconds:g} s = {scale / 1e6:,.1f} M | {_span(p50)} / {_span(p99)} / {_span(worst)} |",
        )
    )


def _part(ordered: Sequence[float], part: float) -> float:
    return ordered[min(int(len(ordered) * part), len(ordered) - 1)]


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def machine() -> str:
    """Where and when this was measured."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown CPU")
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC, {model}, {os.cpu_count()} cores, {platform.system()}, load {load}"
