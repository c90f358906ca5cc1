"""Three controllers and workers in four data centers. The data center of the leader is lost, and comes back.

`python -m examples.google.scenario` elects by etcd, `… zookeeper` by ZooKeeper.
"""

from __future__ import annotations

import asyncio
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, NamedTuple
from urllib.parse import parse_qs, urlsplit

from aiokafka.admin import AIOKafkaAdminClient

from examples.running import Process, Stage, connected, find_service, new_stage, report, until
from mainspring.testing.checking import Verdict

HERE = Path(__file__).parent
REGIONS = ("us-east", "us-west", "eu", "asia")
JOBS = ("cache-clear", "metrics-export", "garbage-collection")
ENTRIES = 100
Elector = Literal["etcd", "zookeeper"]


class Outcome(NamedTuple):
    """What came of it."""

    verdict: Verdict
    terms: int
    failover_s: float
    """From the loss of the leader's zone to the term of the next leader."""
    runs: Counter[tuple[str, str, datetime]]
    """How many runs executed each job in each region for each instant."""
    instants: dict[str, set[datetime]]
    """The instants of each job, as the ledger of firings has them."""
    during: set[str]
    """The regions that worked while the zone was lost."""
    cached: int
    """Entries that are left in all caches."""
    garbage: int
    """Objects without a reference that are left."""
    topics: set[str]
    """Those of Kafka that were used, without their prefix."""


def settings(elector: Elector) -> dict[str, str]:
    """An election and topics of its own: `cron-jobs-REGION` of the source, under a prefix."""
    mark = secrets.token_hex(4)
    return {
        "MAINSPRING_LEASE": f"{find_service(elector)}/example-{mark}",
        "MAINSPRING_BROKER": f"{find_service('kafka')}?names=cron-jobs-{{region}}&bands=1-10&prefix=example-{mark}.",
    }


async def play(elector: Elector = "etcd", folder: Path | None = None) -> Outcome:
    """The whole scenario."""
    chosen = settings(elector) | {"CRON_CONFIG": str(HERE / "jobs-fast.toml")}
    with report(f"Google: controllers elected by {elector}, workers in four regions") as tell:
        async with new_stage(HERE / "app.py", chosen, folder=folder) as stage, connected(stage.store) as ledger:
            return await _play(stage, ledger, tell)


async def _play(stage: Stage, ledger: Any, tell: Callable[[str], None]) -> Outcome:
    await _fill(ledger)
    controllers = [start_controller(stage, number) for number in range(3)]
    workers = {region: start_worker(stage, region) for region in REGIONS}
    await stage.workers_ready(len(REGIONS))
    await _worked(stage, ledger, REGIONS)
    number, leader = await _leader(stage, controllers)
    tell(f"{leader.name} leads term {number}, and all regions work")
    lost_at = time.time()
    stage.kill(leader)
    stage.kill(workers["us-east"])
    term, successor = await _leader(stage, controllers, after=number)
    tell(f"the zone of the leader is lost; {successor.name} leads term {term}")
    store = await stage.client.open()
    newest = (await store.terms("scheduler", 1))[0]
    others = [region for region in REGIONS if region != "us-east"]
    during = await _worked(stage, ledger, others)
    start_worker(stage, "us-east", "worker-back")
    await _worked(stage, ledger, REGIONS)
    tell("us-east is back, and makes up for what it missed")
    await stage.drained()
    return await _outcome(stage, ledger, newest.began_at / 1e6 - lost_at, during)


def start_controller(stage: Stage, number: int) -> Process:
    """A controller: it schedules if it leads."""
    return stage.start(f"controller-{number}", "server", "--port", "0", "--quiet")


def start_worker(stage: Stage, region: str, name: str | None = None, **environment: str) -> Process:
    """A worker of one data center."""
    return stage.worker(name or f"worker-{region}", "--region", region, DATACENTER=region, **environment)


async def _fill(ledger: Any) -> None:
    await ledger.execute(
        "INSERT INTO google.cache SELECT r, i FROM unnest($1::text[]) r, generate_series(1, $2::int) i",
        REGIONS,
        ENTRIES,
    )
    await ledger.execute(
        "INSERT INTO google.objects SELECT r, i, i % 2 = 0 FROM unnest($1::text[]) r, generate_series(1, $2::int) i",
        REGIONS,
        ENTRIES,
    )


async def _worked(stage: Stage, ledger: Any, regions: tuple[str, ...] | list[str]) -> set[str]:
    """Wait until each of these regions executed a job twice more; the regions that executed one."""
    since = await ledger.fetchval("SELECT clock_timestamp()")
    counted = "SELECT region, count(*) AS runs FROM google.done WHERE at > $1 AND fire_at > $1 GROUP BY region"

    async def done() -> set[str]:
        counts = {row["region"]: row["runs"] for row in await ledger.fetch(counted, since)}
        return set(counts) if all(counts.get(region, 0) >= 2 for region in regions) else set()

    return await until(done, f"work in {', '.join(regions)}", stage.logs)


async def _leader(stage: Stage, controllers: list[Process], after: int = 0) -> tuple[int, Process]:
    """The newest term that is later than another, and the controller that leads it."""
    store = await stage.client.open()

    async def find() -> tuple[int, Process] | None:
        for term in await store.terms("scheduler", 1):
            pid = int(term.owner.split(":")[1])
            found = [each for each in controllers if each.pid == pid and each.alive]
            if term.number > after and found:
                return term.number, found[0]
        return None

    led = await until(find, "leader", stage.logs)
    assert led is not None
    return led


async def _outcome(stage: Stage, ledger: Any, failover_s: float, during: set[str]) -> Outcome:
    verdict = await stage.judge()
    store = await stage.client.open()
    rows = await ledger.fetch(
        "SELECT job, region, fire_at, count(DISTINCT run) AS runs FROM google.done GROUP BY job, region, fire_at"
    )
    instants = {job: {each.fire_at for each in await stage.firings(job)} for job in JOBS}
    return Outcome(
        verdict=verdict,
        terms=len(await store.terms("scheduler", 100)),
        failover_s=failover_s,
        runs=Counter({(row["job"], row["region"], row["fire_at"]): row["runs"] for row in rows}),
        instants=instants,
        during=during,
        cached=await ledger.fetchval("SELECT count(*) FROM google.cache"),
        garbage=await ledger.fetchval("SELECT count(*) FROM google.objects WHERE NOT referenced"),
        topics=await _topics(stage.environment["MAINSPRING_BROKER"]),
    )


async def _topics(broker: str) -> set[str]:
    url = urlsplit(broker)
    (prefix,) = parse_qs(url.query)["prefix"]
    admin = AIOKafkaAdminClient(bootstrap_servers=url.netloc)
    await admin.start()
    try:
        return {name.removeprefix(prefix) for name in await admin.list_topics() if name.startswith(prefix)}
    finally:
        await admin.close()


if __name__ == "__main__":
    outcome = asyncio.run(play("zookeeper" if "zookeeper" in sys.argv[1:] else "etcd"))
    print(
        f"{outcome.verdict}\nfailover in {outcome.failover_s:.2f} s, {len(outcome.runs)} runs, terms: {outcome.terms}"
    )
