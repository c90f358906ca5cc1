"""Payouts, surge prices and a flood of analytics on RabbitMQ queues by priority. One bank call hangs, one worker dies.

`python -m examples.uber.scenario` plays it.
"""

from __future__ import annotations

import asyncio
import secrets
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from examples.running import Stage, connected, find_service, new_stage, report, until
from mainspring import Mainspring
from mainspring.testing.checking import Verdict
from mainspring.testing.servers.process import free_port

HERE = Path(__file__).parent
DRIVERS = 40
RIDERS = 100
STUCK = 7
FLOOD = 60
FUTURE = 500
DEADLINE_S = 2
SETTINGS = {
    "SURGE": "1s",
    "STUCK_DRIVER": str(STUCK),
    "MAINSPRING_POOLS": "1=4,2=2,3=2",
    "MAINSPRING_DEADLINES": f"1={DEADLINE_S}s,2=5m,3=30m",
}


class Outcome(NamedTuple):
    """What came of it."""

    verdict: Verdict
    payouts: int
    promotions: int
    """Mails that were sent, at most one to each rider and week."""
    stuck_attempts: int
    """The attempts at the payout whose bank call hung."""
    refused: int
    """The status of a request for an instant in the past."""
    scheduled_late_s: float
    """How long after its instant a run that was scheduled over HTTP began."""
    payouts_overtake: bool
    """Whether payouts began before the flood of analytics that was submitted earlier was worked off."""
    analytics_go_on: bool
    """Whether analytics went on while payouts were made."""
    surges: Counter[datetime]
    """How many runs calculated each instant of the surge prices."""
    factors: dict[str, float]
    """The last surge factor of each area."""
    waiting: int
    """Runs of the far future that still wait."""
    payout_days: list[datetime]
    """When the next payouts are due."""


def rabbitmq_url() -> str:
    """The queues `jobs.priority.N` of the source, under a prefix of its own."""
    return f"{find_service('rabbitmq')}?names=jobs.priority.{{band}}&bands=each&prefix=example-{secrets.token_hex(4)}."


async def play(folder: Path | None = None) -> Outcome:
    """The whole scenario."""
    settings = {**SETTINGS, "MAINSPRING_BROKER": rabbitmq_url()}
    with report("Uber: payouts, surge prices and analytics on RabbitMQ") as tell:
        async with new_stage(HERE / "app.py", settings, folder=folder) as stage, connected(stage.store) as ledger:
            return await _play(stage, ledger, tell)


async def _play(stage: Stage, ledger: Any, tell: Callable[[str], None]) -> Outcome:
    await ledger.execute("INSERT INTO uber.drivers SELECT i, 100 + i FROM generate_series(1, $1::int) i", DRIVERS)
    await ledger.execute("INSERT INTO uber.riders SELECT generate_series(1, $1::int)", RIDERS)
    await ledger.execute("INSERT INTO uber.requests SELECT id, 'airport' FROM uber.riders")
    port = free_port()
    stage.start("scheduler", "server", "--port", str(port), "--quiet")
    workers = [stage.worker(f"worker-{number}") for number in range(2)]
    await stage.workers_ready(2)
    tell("scheduler, API and two workers run, with pools by priority")
    client = stage.client
    await future_promotions(client, FUTURE)
    refused, run_id, due_at = await _schedule(port)
    tell(f"an instant in the past was answered {refused}; one in two seconds was accepted")
    for number in range(FLOOD):
        await client.submit("analyse", {"area": f"area-{number}", "seconds": 0.5}, priority=3)
    await client.jobs.trigger("driver_payouts")
    await client.jobs.trigger("weekly_promotions")
    await until(lambda: _payouts(ledger, DRIVERS // 2), "payout of half of the drivers", stage.logs)
    holder = await until(lambda: _holder(stage, ledger), "call that hangs", stage.logs)
    victim = next(worker for worker in workers if worker.pid != holder)  # The deadline is to end the call, not a kill.
    stage.kill(victim)
    stage.worker("worker-2")
    tell(f"{victim.name} was killed in the middle of payouts and analytics")
    await until(lambda: _payouts(ledger, DRIVERS), "payout of all drivers", stage.logs)
    tell(f"all {DRIVERS} drivers are paid, also the one whose bank call hung")
    late_s = await _lateness(ledger, run_id, due_at, stage)
    days = [time.fire_at for time in await client.jobs.next("driver_payouts", 20)]
    return await _outcome(stage, ledger, refused, late_s, days)


async def future_promotions(client: Mainspring, count: int) -> None:
    """Submit mails that are due in a week: the wheel keeps them out of the way of what is due now."""

    @client.task(name="send_promotion", priority=2)
    async def send_promotion(rider: int, week: str) -> None: ...

    for first in range(0, count, 10_000):
        riders = range(first, min(first + 10_000, count))
        calls = [{"rider": rider, "week": "2100-01-04"} for rider in riders]
        await send_promotion.options(delay="7d").submit_many(calls)


async def _schedule(port: int) -> tuple[int, str, datetime]:
    """Ask over HTTP for a run in the past, and for one in two seconds: the answer to the first, id and instant."""
    now = datetime.now(UTC)
    wanted = {"type": "analyse", "priority": 3, "payload": {"area": "airport", "seconds": 0}}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:

        async def ask(at: datetime) -> httpx.Response | None:
            try:
                return await http.post("/api/jobs/schedule", json={**wanted, "executeAt": at.isoformat()})
            except httpx.TransportError:
                return None

        past = await until(lambda: ask(now - timedelta(hours=1)), "answer of the API")
        due_at = datetime.now(UTC) + timedelta(seconds=2)
        future = await until(lambda: ask(due_at), "answer of the API")
    assert past is not None
    assert future is not None
    future.raise_for_status()
    return past.status_code, future.json()["job_id"], due_at


async def _holder(stage: Stage, ledger: Any) -> int | None:
    """The process whose call to the bank hangs."""
    runs = [run async for run in stage.client.runs.list(task="pay_driver", limit=2 * DRIVERS)]
    stuck = [run.run_id for run in runs if run.args["driver"] == STUCK]
    began = "SELECT process FROM uber.attempts WHERE run = ANY($1) ORDER BY id LIMIT 1"
    pid: int | None = await ledger.fetchval(began, stuck)
    return pid


async def _payouts(ledger: Any, count: int) -> bool:
    return bool(await ledger.fetchval("SELECT count(*) >= $1 FROM uber.payouts", count))


async def _lateness(ledger: Any, run_id: str, due_at: datetime, stage: Stage) -> float:
    began = "SELECT began_at FROM uber.attempts WHERE run = $1 ORDER BY id LIMIT 1"
    began_at: datetime = await until(lambda: ledger.fetchval(began, run_id), "start of the scheduled run", stage.logs)
    return (began_at - due_at).total_seconds()


async def _outcome(stage: Stage, ledger: Any, refused: int, late_s: float, days: list[datetime]) -> Outcome:
    await stage.drained(left=FUTURE)
    times = "SELECT min(began_at), max(began_at), min(ended_at), max(ended_at) FROM uber.attempts WHERE task = $1"
    first_payout, _, _, last_payout = await ledger.fetchrow(times, "pay_driver")
    _, last_analysis, first_report, _ = await ledger.fetchrow(times, "analyse")
    surges = await ledger.fetch("SELECT fire_at, count(DISTINCT run) AS runs FROM uber.surges GROUP BY fire_at")
    factors = await ledger.fetch("SELECT DISTINCT ON (area) area, factor FROM uber.surges ORDER BY area, fire_at DESC")
    stuck = "SELECT attempt FROM uber.attempts a JOIN uber.payouts p USING (run) WHERE p.driver = $1 ORDER BY a.id DESC"
    store = await stage.client.open()
    return Outcome(
        verdict=await stage.judge(),
        payouts=await ledger.fetchval("SELECT count(*) FROM uber.payouts"),
        promotions=await ledger.fetchval("SELECT count(*) FROM uber.promotions"),
        stuck_attempts=await ledger.fetchval(stuck, STUCK),
        refused=refused,
        scheduled_late_s=late_s,
        payouts_overtake=first_payout < last_analysis,
        analytics_go_on=first_report < last_payout,
        surges=Counter({row["fire_at"]: row["runs"] for row in surges}),
        factors={row["area"]: row["factor"] for row in factors},
        waiting=(await store.count_runs("default")).get("pending", 0),
        payout_days=days,
    )


if __name__ == "__main__":
    outcome = asyncio.run(play())
    print(
        f"{outcome.verdict}\n{outcome.payouts} payouts, {outcome.promotions} mails, {len(outcome.surges)} surge prices;"
        f" {outcome.waiting} runs of the future wait; the scheduled run began {outcome.scheduled_late_s * 1000:.0f} ms"
        f" after its instant"
    )
