"""Rides at a steady rate beside many future jobs: `python -m examples.uber.load --rate 1160 --seconds 30`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from examples.measuring import UBER, Load, offer, read_load, report_load
from examples.running import connected, new_stage, until
from examples.uber.scenario import future_promotions, rabbitmq_url

HERE = Path(__file__).parent
WORKERS = 2
FUTURE = 100_000


async def measure(load: Load, future: int = FUTURE) -> str:
    """From the submission of each ride to its settlement, beside jobs that are due in a week."""
    async with new_stage(HERE / "app.py", {"MAINSPRING_BROKER": rabbitmq_url()}, recorded=False) as stage:
        await future_promotions(stage.client, future)

        @stage.client.task(name="settle_ride", priority=1)
        async def settle_ride(rides: list[tuple[int, float]]) -> None: ...

        async def submit(first: int, count: int) -> None:
            now = time.time()
            await settle_ride.submit_many([{"rides": [(ride, now)]} for ride in range(first, first + count)])

        stage.start("scheduler", "server", "--port", "0", "--quiet")
        for number in range(WORKERS):
            stage.worker(f"worker-{number}", MAINSPRING_POOLS="1=400,2=50,3=20")
        await stage.workers_ready(WORKERS)
        took_s = await offer(load, submit)
        async with connected(stage.store) as ledger:
            await until(lambda: _settled(ledger, round(load.rate * load.seconds)), "settlement of all", stage.logs)
            rows = await ledger.fetch("SELECT extract(epoch FROM at) - due_at AS late FROM uber.settled")
        await stage.stop()
    figures = report_load(UBER, load, took_s, [float(row["late"]) for row in rows], "submission to settlement")
    return f"{figures}\nbeside {future:,} runs of the future"


async def _settled(ledger: Any, count: int) -> bool:
    return bool(await ledger.fetchval("SELECT count(*) >= $1 FROM uber.settled", count))


if __name__ == "__main__":
    print(asyncio.run(measure(read_load(__doc__ or "", rate=UBER.per_s))))
