"""Four regions and three schedulers. One region is lost, and with it the scheduler that leads.

`python -m examples.regions.scenario` plays it.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from examples.regions.app import REGIONS
from examples.running import Process, Stage, connected, new_stage, report, until
from mainspring.operations.records import Region, Run
from mainspring.testing.checking import Verdict

HERE = Path(__file__).parent
JOB = "refresh_catalogue"
FAILOVER = "2s"
SCHEDULERS = ("us-east", "us-west", "eu")


class Outcome(NamedTuple):
    """What came of it."""

    verdict: Verdict
    lost: str
    """The region that was killed: that of the leader."""
    leaderless_s: float
    """From the kill until the next leader's term began."""
    health: dict[str, Region]
    """How the regions stood while one was lost."""
    moved: list[Run]
    """Runs that went to another region."""
    firings: dict[str, Counter[str]]
    """By region: how many rows of the ledger came to what."""
    doubled: int
    """Runs that were executed to their end more than once."""


async def play(folder: Path | None = None) -> Outcome:
    """The whole scenario."""
    with report("Regions: four regions, three schedulers") as tell:
        settings = {"REGION_FAILOVER": FAILOVER}
        async with new_stage(HERE / "app.py", settings, folder=folder) as stage, connected(stage.store) as ledger:
            return await _play(stage, ledger, tell)


async def _play(stage: Stage, ledger: Any, tell: Callable[[str], None]) -> Outcome:
    schedulers = {region: stage.start(f"scheduler-{region}", "server", "--port", "0") for region in SCHEDULERS}
    workers = {region: stage.worker(f"worker-{region}", "--region", region, HERE=region) for region in REGIONS}
    await stage.workers_ready(len(REGIONS))
    await _refreshed(stage, ledger, REGIONS, 1)
    tell("all four regions refresh")
    lost = await _leader(stage, schedulers)
    before = await _term(stage)
    for process in (schedulers[lost], workers[lost]):
        stage.kill(process)
    killed = time.monotonic()

    async def led_again() -> bool:
        return await _term(stage) > before

    await until(led_again, "new leader", stage.logs)
    leaderless_s = time.monotonic() - killed
    tell(f"{lost} is lost with the leader; another leads after {leaderless_s:.1f} s")
    others = [region for region in REGIONS if region != lost]
    await _refreshed(stage, ledger, others, 2)
    health = await asyncio.to_thread(_health, stage)
    moved = await until(lambda: _moved(stage, lost), "run that leaves the lost region", stage.logs)
    tell(f"the other regions go on; {moved[0].moved_because}")
    await stage.drained()
    return await _outcome(stage, ledger, lost, leaderless_s, health)


def _health(stage: Stage) -> dict[str, Region]:
    """What `mainspring regions` says."""
    words = [sys.executable, "-m", "mainspring", "regions", "--json", "--store", stage.store]
    said = subprocess.run(words, check=True, capture_output=True, timeout=60).stdout
    return {each.region: each for each in msgspec.json.decode(said, type=list[Region])}


async def _refreshed(stage: Stage, ledger: Any, regions: Any, count: int) -> None:
    """Wait until each of the regions has refreshed this many times more."""
    counted = "SELECT here, count(*) FROM regions.refreshed GROUP BY here"
    before = dict(await ledger.fetch(counted))

    async def enough() -> bool:
        now = dict(await ledger.fetch(counted))
        return all(now.get(each, 0) >= before.get(each, 0) + count for each in regions)

    await until(enough, f"{count} more refreshes in {', '.join(regions)}", stage.logs)


async def _leader(stage: Stage, schedulers: dict[str, Process]) -> str:
    """The region whose scheduler leads."""
    store = await stage.client.open()

    async def find() -> str | None:
        newest = [term.owner for term in await store.terms("scheduler", 1)]
        pids = {str(process.pid): region for region, process in schedulers.items()}
        return next((pids[each.split(":")[1]] for each in newest if each.split(":")[1] in pids), None)

    return str(await until(find, "leader", stage.logs))


async def _term(stage: Stage) -> int:
    return (await (await stage.client.open()).terms("scheduler", 1))[0].number


async def _moved(stage: Stage, lost: str) -> list[Run]:
    """Runs of the lost region that have ended elsewhere."""
    runs = [run async for run in stage.client.runs.list(job=JOB, states=("succeeded",), limit=200)]
    return [run for run in runs if run.home_region == lost != run.region]


async def _outcome(stage: Stage, ledger: Any, lost: str, leaderless_s: float, health: dict[str, Region]) -> Outcome:
    moved = await _moved(stage, lost)
    firings: dict[str, Counter[str]] = {}
    for region, outcome, count in await ledger.fetch(
        "SELECT region, outcome, count(*) FROM mainspring.firings GROUP BY region, outcome"
    ):
        firings.setdefault(region, Counter())[outcome] = count
    doubled = await ledger.fetchval(
        "SELECT count(*) FROM (SELECT FROM mainspring.attempts WHERE outcome = 'succeeded' GROUP BY run_id "
        "HAVING count(*) > 1) AS twice"
    )
    return Outcome(await stage.judge(), lost, leaderless_s, health, moved, firings, doubled)


if __name__ == "__main__":
    outcome = asyncio.run(play())
    print(outcome.verdict)
    for region, counts in sorted(outcome.firings.items()):
        print(f"{region}: {dict(counts)}")
