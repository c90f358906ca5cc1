"""Probes of all regions at a steady rate: `python -m examples.google.load --rate 11600 --seconds 30`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from examples.google.scenario import REGIONS, settings, start_controller, start_worker
from examples.measuring import GOOGLE, Load, Measured, measured, offer, read_load, report_load
from examples.running import PATIENCE_S, connected, new_stage, until

HERE = Path(__file__).parent
CONTROLLERS = 2


async def measure(load: Load) -> Measured:
    """From the submission of each probe to its note in the database, with controllers and workers running."""
    async with new_stage(HERE / "app.py", settings("etcd"), recorded=False) as stage:

        @stage.client.task(name="probe")
        async def probe(probes: list[tuple[int, float]]) -> None: ...

        async def submit(first: int, count: int) -> None:
            now, share = time.time(), -(-count // len(REGIONS))
            starts = range(first, first + count, share)
            batches = [range(start, min(start + share, first + count)) for start in starts]
            await asyncio.gather(
                *(
                    probe.options(region=region).submit_many([{"probes": [(number, now)]} for number in numbers])
                    for region, numbers in zip(REGIONS, batches, strict=False)
                )
            )

        for number in range(CONTROLLERS):
            start_controller(stage, number)
        for region in REGIONS:
            start_worker(stage, region, MAINSPRING_CONCURRENCY="500")
        await stage.workers_ready(len(REGIONS))
        async with connected(stage.store) as ledger:
            async with measured(stage) as costs:
                took_s, began = await offer(load, submit), time.monotonic()
                count, patience_s = round(load.rate * load.seconds), max(load.seconds, PATIENCE_S)
                await until(lambda: _noted(ledger, count), "note of all probes", stage.logs, patience_s)
                took_s += time.monotonic() - began
            rows = await ledger.fetch(
                "SELECT extract(epoch FROM at)::float8 - sent_at AS late FROM google.probes ORDER BY sent_at"
            )
        await stage.stop()
    return report_load(GOOGLE, load, took_s, [row["late"] for row in rows], "submission to note", costs)


async def _noted(ledger: Any, count: int) -> bool:
    return bool(await ledger.fetchval("SELECT count(*) >= $1 FROM google.probes", count))


if __name__ == "__main__":
    print(asyncio.run(measure(read_load(__doc__ or "", rate=GOOGLE.per_s))))
