"""Five equal nodes on one database. One of them dies, then all of them, for seconds; then two come back.

`python -m examples.airbnb.scenario` plays it.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from examples.running import Stage, connected, new_stage, report, until
from mainspring.testing.checking import Verdict

HERE = Path(__file__).parent
NODES = 5
BACK = 2
"""The nodes that start again after the outage: fewer can do the work of all."""
LISTINGS = 50
OUTAGE_S = 4.0
SETTINGS = {"CALENDAR_SYNC": "1s", "REMINDERS": "* * * * * *", "MISFIRE_GRACE": "1s"}


class Outcome(NamedTuple):
    """What came of it."""

    verdict: Verdict
    outcomes: dict[str, Counter[str]]
    """How many instants of each job fired, or were skipped or missed."""
    reminders: Counter[datetime]
    """How often the reminders of each instant were sent."""
    instants: list[datetime]
    """Every instant of the reminders, from the first to the last."""
    chain: list[str]
    """The jobs of the chain in the order in which they ran."""
    workers: set[int]
    """The processes that executed jobs before the outage: at little load one may do all, until it dies."""
    reports: list[datetime]
    """When the next host reports are due."""
    report: dict[str, int]
    """What such a report says: the stays of each home."""


async def play(folder: Path | None = None) -> Outcome:
    """The whole scenario."""
    with report("Airbnb: five nodes on one database") as tell:
        async with new_stage(HERE / "app.py", SETTINGS, folder=folder) as stage, connected(stage.store) as ledger:
            return await _play(stage, ledger, tell)


async def _play(stage: Stage, ledger: Any, tell: Callable[[str], None]) -> Outcome:
    await ledger.execute("INSERT INTO airbnb.listings SELECT i, 100 + i FROM generate_series(1, $1::int) i", LISTINGS)
    nodes = [stage.node(f"node-{number}") for number in range(NODES)]
    await stage.workers_ready(NODES)
    store = await stage.client.open()

    async def all_checked_in() -> bool:
        return len(await store.nodes()) == NODES

    await until(all_checked_in, "check-in of all nodes", stage.logs)
    await _more(ledger, stage, "publish_search_index", 2)
    tell(f"{NODES} nodes have checked in, and the chain runs")
    worked = await _workers(ledger)
    stage.kill(next(node for node in nodes if node.pid in worked))
    await _more(ledger, stage, "publish_search_index", 2)
    workers = await _workers(ledger)
    tell(f"a node that had worked was killed, and the others go on: {len(workers)} have worked")
    for node in nodes:
        if node.alive:
            stage.kill(node)
    stage.note("outage of all nodes")
    await asyncio.sleep(OUTAGE_S)
    for number in range(BACK):
        stage.node(f"again-{number}")
    await _more(ledger, stage, "publish_search_index", 2)
    await _more(ledger, stage, "remind_guests", 3)
    await _more(ledger, stage, "refresh_trending", 1)
    tell("all nodes were away for seconds, and two are back")
    due = [time.fire_at for time in await stage.client.jobs.next("host_report", 20)]
    firing = await stage.client.jobs.trigger("host_report")
    stays = await stage.client.runs.result(firing.run_id or "")
    await stage.drained()
    return await _outcome(stage, ledger, workers, due, stays)


async def _workers(ledger: Any) -> set[int]:
    """The processes that have executed jobs."""
    return {row["process"] for row in await ledger.fetch("SELECT DISTINCT process FROM airbnb.done")}


async def _more(ledger: Any, stage: Stage, job: str, count: int) -> None:
    """Wait until a job was executed this many times more."""
    counted = "SELECT count(*) FROM airbnb.done WHERE job = $1"
    before = await ledger.fetchval(counted, job)

    async def enough() -> bool:
        return bool(await ledger.fetchval(counted, job) >= before + count)

    await until(enough, f"{count} more of {job}", stage.logs)


async def _outcome(
    stage: Stage, ledger: Any, workers: set[int], reports: list[datetime], stays: dict[str, int]
) -> Outcome:
    verdict = await stage.judge()
    outcomes: dict[str, Counter[str]] = {}
    instants: list[datetime] = []
    for job in ("sync_calendars", "remind_guests", "refresh_trending"):
        firings = await stage.firings(job)
        outcomes[job] = Counter(firing.outcome for firing in firings)
        if job == "remind_guests":
            instants = sorted(firing.fire_at for firing in firings)
    sent = await ledger.fetch(
        "SELECT fire_at, count(DISTINCT run) AS runs FROM airbnb.done WHERE job = 'remind_guests' GROUP BY fire_at"
    )
    chain = await ledger.fetch(
        "SELECT job FROM airbnb.done"
        " WHERE job IN ('sync_calendars', 'smart_pricing', 'publish_search_index')"
        " GROUP BY job, run ORDER BY min(at)"  # A run whose node died is executed again.
    )
    reminders = Counter({row["fire_at"]: row["runs"] for row in sent})
    return Outcome(verdict, outcomes, reminders, instants, [row["job"] for row in chain], workers, reports, stays)


if __name__ == "__main__":
    outcome = asyncio.run(play())
    print(outcome.verdict)
    for job, counts in outcome.outcomes.items():
        print(f"{job}: {', '.join(f'{count} {name}' for name, count in sorted(counts.items()))}")
