"""Rides at a steady rate beside many future jobs: `python -m examples.uber.load --rate 1160 --seconds 30`.

Each ride is settled at an instant two seconds after it is submitted: what is measured is how late. `--future 1000000`
lets a million runs wait beside them.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from examples.measuring import UBER, Load, Measured, measured, offer, read_load, report_load
from examples.running import connected, new_stage, until
from examples.uber.scenario import future_promotions, rabbitmq_url

HERE = Path(__file__).parent
WORKERS = 2
FUTURE = 100_000
AHEAD_S = 2


async def measure(load: Load) -> Measured:
    """From the instant at which each ride is due to its settlement, beside jobs that are due in a week."""
    async with new_stage(HERE / "app.py", {"MAINSPRING_BROKER": rabbitmq_url()}, recorded=False) as stage:
        await future_promotions(stage.client, load.future)

        @stage.client.task(name="settle_ride", priority=1)
        async def settle_ride(rides: list[tuple[int, float]]) -> None: ...

        async def submit(first: int, count: int) -> None:
            due_at = time.time() + AHEAD_S
            rides = [{"rides": [(ride, due_at)]} for ride in range(first, first + count)]
            await settle_ride.options(delay=AHEAD_S).submit_many(rides)

        stage.start("scheduler", "server", "--port", "0", "--quiet")
        for number in range(WORKERS):
            stage.worker(f"worker-{number}", MAINSPRING_POOLS="1=400,2=50,3=20")
        await stage.workers_ready(WORKERS)
        async with connected(stage.store) as ledger:
            async with measured(stage) as costs:
                took_s = await offer(load, submit)
                await until(lambda: _settled(ledger, round(load.rate * load.seconds)), "settlement of all", stage.logs)
            rows = await ledger.fetch(
                "SELECT extract(epoch FROM at)::float8 - due_at AS late FROM uber.settled ORDER BY due_at"
            )
        await stage.stop()
    what = f"lateness beside {load.future:,} runs of the future"
    return report_load(UBER, load, took_s, [row["late"] for row in rows], what, costs)


async def _settled(ledger: Any, count: int) -> bool:
    return bool(await ledger.fetchval("SELECT count(*) >= $1 FROM uber.settled", count))


if __name__ == "__main__":
    print(asyncio.run(measure(read_load(__doc__ or "", rate=UBER.per_s, future=FUTURE))))
