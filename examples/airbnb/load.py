"""A job for each home, fired by a cluster: `python -m examples.airbnb.load --rate 20 --seconds 30`."""

from __future__ import annotations

import asyncio
from pathlib import Path

from examples.measuring import AIRBNB, Load, Measured, measured, read_load, report_load
from examples.running import connected, new_stage
from mainspring import every

HERE = Path(__file__).parent
NODES = 3
PERIOD_S = 10
"""How often each home's job fires; a shorter load fires them more often, so that each fires twice."""


async def measure(load: Load) -> Measured:
    """From the instant of each firing to the end of its work, by the clock of the database."""
    period_s = max(1, min(PERIOD_S, int(load.seconds // 2)))
    jobs = round(load.rate * period_s)
    async with new_stage(HERE / "app.py", recorded=False) as stage, connected(stage.store) as ledger:
        await ledger.execute("INSERT INTO airbnb.listings SELECT i, 100 FROM generate_series(1, $1::int) i", jobs)
        for number in range(NODES):
            stage.node(f"node-{number}")
        await stage.workers_ready(NODES)
        for number in range(1, jobs + 1):
            await stage.client.jobs.add(
                f"listing-{number}", every(f"{period_s}s"), task="refresh_listing", args={"listing": number}
            )
        began = await ledger.fetchval("SELECT clock_timestamp()")
        async with measured(stage) as costs:
            await asyncio.sleep(load.seconds)
            await stage.drained()
        rows = await ledger.fetch(
            "SELECT extract(epoch FROM at - fire_at)::float8 AS late FROM airbnb.done"
            " WHERE job LIKE 'listing-%' AND fire_at BETWEEN $1 AND $1 + $2 * interval '1 second' ORDER BY fire_at",
            began,
            load.seconds,
        )
        await stage.stop()
    return report_load(AIRBNB, load, load.seconds, [row["late"] for row in rows], "due to done", costs)


if __name__ == "__main__":
    print(asyncio.run(measure(read_load(__doc__ or "", rate=20))))
