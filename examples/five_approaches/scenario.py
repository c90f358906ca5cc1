"""One app under five approaches. Under each, a node dies, and every report is sent once for each instant.

`python -m examples.five_approaches.scenario` plays all of them, and prints the table of measured figures.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

from examples.five_approaches.approaches import Approach, approaches
from examples.measuring import machine, used_cpu
from examples.running import Process, Stage, connected, new_stage, report, until
from mainspring.testing.checking import Verdict

HERE = Path(__file__).parent


class Outcome(NamedTuple):
    """What came of one approach."""

    approach: Approach
    verdict: Verdict
    runs: Counter[tuple[str, datetime]]
    """How many runs sent each report for each instant."""
    instants: set[tuple[str, datetime]]
    """The instants of each report, as the ledger of firings has them."""
    late_s: list[float]
    """From each instant to the moment at which its report was sent, before a node died."""
    gap_s: float
    """The longest time without a report, from the death of a node on."""
    used_s: float
    """The CPU time of all processes and of PostgreSQL, while nothing failed."""


async def play(approach: Approach, folder: Path, reports: int, seconds: float) -> Outcome:
    """Run the app under one approach for some seconds, kill the node that planned, and judge."""
    settings = {**approach.settings, "REPORT_SCHEDULE": approach.schedule, "REPORTS": str(reports)}
    async with AsyncExitStack() as stack:
        stage = await stack.enter_async_context(new_stage(HERE / "app.py", settings, folder=folder))
        ledger = await stack.enter_async_context(connected(stage.store))
        nodes = [_start(stage, command, number) for number, command in enumerate(approach.nodes)]
        await _more(stage, ledger, reports)
        steady, before = await ledger.fetchval("SELECT clock_timestamp()"), await used_cpu(stage)
        deadline = time.monotonic() + seconds
        await _more(stage, ledger, reports * 2)
        await asyncio.sleep(max(deadline - time.monotonic(), 0))
        killed, used = await ledger.fetchval("SELECT clock_timestamp()"), await used_cpu(stage, before)
        stage.kill(await _planner(stage, nodes))
        await _more(stage, ledger, reports * 2, fired_after=killed)
        await stage.drained()
        used_s = sum(value for part, value in used.items() if part != "client")
        return await _outcome(approach, stage, ledger, (steady, killed), used_s)


def _start(stage: Stage, command: str, number: int) -> Process:
    options = {"up": ("--no-api",), "server": ("--port", "0"), "worker": ()}[command]
    return stage.start(f"{command}-{number}", command, "--quiet", *options)


async def _more(stage: Stage, ledger: Any, count: int, fired_after: datetime | None = None) -> None:
    """Wait for more reports."""
    since = fired_after or await ledger.fetchval("SELECT clock_timestamp()")
    counted = "SELECT count(*) >= $1 FROM reports.sent WHERE fire_at > $2"
    await until(lambda: ledger.fetchval(counted, count, since), f"{count} more reports", stage.logs)


async def _planner(stage: Stage, nodes: list[Process]) -> Process:
    """The leader, or any node where none leads."""
    store = await stage.client.open()
    for term in await store.terms("scheduler", 1):
        for node in nodes:
            if node.pid == int(term.owner.split(":")[1]):
                return node
    return nodes[0]


async def _outcome(
    approach: Approach, stage: Stage, ledger: Any, steady: tuple[datetime, datetime], used_s: float
) -> Outcome:
    """`steady` is the time in which nothing failed; at its end a node was killed."""
    began, killed = steady
    verdict = await stage.judge()
    sent = await ledger.fetch("SELECT report, fire_at, run, at FROM reports.sent ORDER BY at")
    runs = Counter((row["report"], row["fire_at"]) for row in {row["run"]: row for row in sent}.values())
    jobs = sorted({row["report"] for row in sent})
    instants = {(job, each.fire_at) for job in jobs for each in await stage.firings(job)}
    late_s = [(row["at"] - row["fire_at"]).total_seconds() for row in sent if began < row["fire_at"] < killed]
    times = [killed, *(row["at"] for row in sent if row["at"] > killed)]
    gap_s = max((later - earlier).total_seconds() for earlier, later in pairwise(times))
    return Outcome(approach, verdict, runs, instants, late_s, gap_s, used_s)


def table(outcomes: list[Outcome]) -> str:
    """The matrix of the source, and beside each of its lines what was measured or is set here."""
    chosen = [outcome.approach for outcome in outcomes]
    sources = [approach.source for approach in chosen]
    settings = [", ".join(name.removeprefix("MAINSPRING_").lower() for name in each.settings) for each in chosen]
    lines: dict[str, list[str]] = {
        "": [approach.name for approach in chosen],
        "in the source": [source.name for source in sources],
        "set-up": [source.set_up for source in sources],
        "here: settings": [f"`{names}`" for names in settings],
        "coordination overhead": [source.overhead for source in sources],
        "here: CPU time for each report": [_milliseconds(each.used_s / len(each.late_s)) for each in outcomes],
        "here: instant to sent, median / longest": [
            f"{_milliseconds(median(each.late_s))} / {_milliseconds(max(each.late_s))}" for each in outcomes
        ],
        "scalability": [source.scalability for source in sources],
        "dependencies": [source.dependencies for source in sources],
        "here: beside PostgreSQL": [approach.needs for approach in chosen],
        "recovery": [source.recovery for source in sources],
        "here: longest gap after a kill": [f"{each.gap_s:.1f} s" for each in outcomes],
    }
    rows = [f"| {' | '.join((name, *cells))} |" for name, cells in lines.items()]
    return "\n".join((rows[0], f"|{'---|' * (len(chosen) + 1)}", *rows[1:]))


def _milliseconds(seconds: float) -> str:
    return f"{seconds * 1000:,.0f} ms"


def _folder(place: Path, approach: Approach) -> Path:
    folder = place / approach.name.replace(" ", "-")
    folder.mkdir()
    return folder


async def play_all(folder: Path, reports: int, seconds: float, *, at_once: int = 1) -> list[Outcome]:
    """All approaches: one after another to measure them, or more at once to check them quickly."""
    turns = asyncio.Semaphore(at_once)

    async def play_one(approach: Approach) -> Outcome:
        async with turns:
            return await play(approach, _folder(folder, approach), reports, seconds)

    return list(await asyncio.gather(*(play_one(each) for each in approaches())))


if __name__ == "__main__":
    import tempfile

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10, help="how long to measure each (default: %(default)s)")
    parser.add_argument("--reports", type=int, default=3, help="jobs that are due each second (default: %(default)s)")
    words = parser.parse_args()
    with report("One app, five approaches"), tempfile.TemporaryDirectory() as place:
        print(table(asyncio.run(play_all(Path(place), words.reports, words.seconds))))
        print(f"\n{words.reports} reports each second, {words.seconds:g} s for each approach; {machine()}")
