"""Probes of all regions at a steady rate: `python -m examples.google.load --rate 11600 --seconds 30`."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

from examples.google.scenario import REGIONS, settings, start_controller, start_worker
from examples.measuring import GOOGLE, Load, Measured, measured, offer, read_load, report_load
from examples.running import PATIENCE_S, Stage, connected, new_stage, until

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
            await submit(-len(REGIONS), len(REGIONS))
            await until(lambda: _warm(stage, ledger), "leader and probe of each region", stage.logs)
            async with measured(stage) as costs:
                took_s, began = await offer(load, submit), time.monotonic()
                count, patience_s = round(load.rate * load.seconds), max(load.seconds, PATIENCE_S)
                await until(lambda: _noted(ledger, count), "note of all probes", stage.logs, patience_s)
                took_s += time.monotonic() - began
            rows = await ledger.fetch(
                "SELECT extract(epoch FROM at)::float8 - sent_at AS late FROM google.probes WHERE id >= 0"
                " ORDER BY sent_at"
            )
        await stage.stop()
    return report_load(GOOGLE, load, took_s, [row["late"] for row in rows], "submission to note", costs)


async def _warm(stage: Stage, ledger: Any) -> bool:
    """Whether a controller leads and each region has noted a probe: the costs of starting are not those of a probe."""
    store = await stage.client.open()
    noted = await ledger.fetchval("SELECT count(*) FROM google.probes WHERE id < 0")
    return noted == len(REGIONS) and bool(await store.terms("scheduler", 1))


async def _noted(ledger: Any, count: int) -> bool:
    """Whether all probes are noted. All are counted only once the last ones are there: counting a million of them again
    and again costs more than noting them."""
    last = count - count // 100
    if await ledger.fetchval("SELECT count(*) FROM google.probes WHERE id >= $1", last) < count - last:
        return False
    return bool(await ledger.fetchval("SELECT count(*) >= $1 FROM google.probes WHERE id >= 0", count))


if __name__ == "__main__":
    print(asyncio.run(measure(read_load(__doc__ or "", rate=GOOGLE.per_s))))
