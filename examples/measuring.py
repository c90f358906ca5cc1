"""Load scripts: offer work at a steady rate, and report what was done, and how late, beside the source's figures."""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import NamedTuple

from examples.running import Stage, connected

DAY_S = 86_400
TICK_S = 0.1
"""How often a batch is offered: often enough for a steady load, seldom enough for batches."""


HELD = 0.97
"""Below this share of what was offered, a rate was not held, and its row says so."""


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


class Costs:
    """What the processes of a stage cost while work was offered: filled in at the end of `measured`."""

    def __init__(self) -> None:
        self.used: Mapping[str, float] = {}
        """CPU seconds by part: see `used_cpu`."""
        self.memory_mb: list[float] = []
        """Of all processes of the stage together, each second. PostgreSQL and brokers are not included."""

    def growth(self) -> str:
        """The memory in the second quarter of the time and in the last: equal if nothing grows."""
        quarter = len(self.memory_mb) // 4
        if not quarter:
            return "memory: too short to say"
        early, late = (median(part) for part in (self.memory_mb[quarter : 2 * quarter], self.memory_mb[-quarter:]))
        return f"memory of the processes: {early:,.0f} MB in the second quarter, {late:,.0f} MB in the last"


@asynccontextmanager
async def measured(stage: Stage) -> AsyncIterator[Costs]:
    """Measure the processes of a stage while the body runs."""
    costs, before = Costs(), await used_cpu(stage)

    async def watch() -> None:
        while True:
            costs.memory_mb.append(sum(_memory_mb(process.pid) for process in stage.processes))
            await asyncio.sleep(1)

    watching = asyncio.create_task(watch())
    try:
        yield costs
    finally:
        watching.cancel()
    costs.used = await used_cpu(stage, before)


def _memory_mb(pid: int) -> float:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:  # It has ended, or this is not Linux.
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def _cpu_s(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # It has ended, or this is not Linux.
        return 0.0
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")  # Its own, and that of children that have ended.


class Measured(NamedTuple):
    """The figures of one load, as text, and as rows of the two tables of docs/reference-systems.md."""

    figures: str
    row: str
    cpu_row: str
    failed: bool = False
    """Whether not all work was done."""

    def __str__(self) -> str:
        return f"{self.figures}\n{self.row}\n{self.cpu_row}"


ROLES = {"client": ("client", "upload"), "scheduler": ("scheduler", "controller"), "PostgreSQL": ("PostgreSQL",)}
"""Which parts of `used_cpu` a column of the table sums up. All other processes work, and may schedule as well."""


def report_load(
    source: Source, load: Load, took_s: float, latencies_s: Sequence[float], what: str, costs: Costs
) -> Measured:
    """The figures. `latencies_s` are in the order in which the jobs were offered; `what` says what they span."""
    if not latencies_s:
        row = f"| {source.system} | nothing was done | | | | |"
        return Measured(f"{source.system}: nothing was done", row, "", failed=True)
    ordered, done = sorted(latencies_s), len(latencies_s)
    p50, p99, worst = (_part(ordered, part) for part in (0.5, 0.99, 1.0))
    first, second = (_part(sorted(half), 0.5) for half in (latencies_s[: done // 2 or 1], latencies_s[done // 2 :]))
    rate = done / took_s
    scale = rate * DAY_S
    each_us = {name: value / done * 1e6 for name, value in costs.used.items()}
    parts = ", ".join(f"{name} {value:,.0f}" for name, value in each_us.items())
    most = (os.cpu_count() or 1) / sum(each_us.values()) * 1e6
    figures = (
        f"{source.system}: {done} of {round(load.rate * load.seconds)} jobs in {took_s:.0f} s",
        f"  source  {source.per_day:,} a day ({source.per_s:,.1f}/s), under {source.within_s:g} s",
        f"  here    {scale:,.0f} a day ({rate:,.0f}/s): {scale / source.per_day:,.2f} times the source",
        f"  {what}: p50 {_span(p50)}, p99 {_span(p99)}, longest {_span(worst)}",
        f"  p50 of the first half {_span(first)}, of the second {_span(second)}: equal if the backlog is flat",
        f"  CPU time of a job: {parts}: {sum(each_us.values()):,.0f} µs, {most:,.0f}/s on {os.cpu_count()} cores",
        f"  {costs.growth()}",
        f"  {machine()}",
    )
    offered = f" of {load.rate:,.0f}/s offered" if rate < HELD * load.rate else ""
    row = (
        f"| {source.system} | {source.approach} | {source.per_day:,} | {source.within_s:g} s | {rate:,.0f}/s{offered}"
        f" for {took_s:.0f} s = {scale / 1e6:,.1f} M | {_span(p50)} / {_span(p99)} / {_span(worst)} |"
    )
    by_role = {role: sum(each_us.get(part, 0.0) for part in parts) for role, parts in ROLES.items()}
    working = sum(each_us.values()) - sum(by_role.values())
    columns = (by_role["client"], by_role["scheduler"], working, by_role["PostgreSQL"], sum(each_us.values()))
    cpu_row = f"| {source.system} | {' | '.join(f'{each:,.0f} µs' for each in columns)} | {most:,.0f}/s |"
    return Measured("\n".join(figures), row, cpu_row)


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
