"""Uploads at a steady rate: `python -m examples.netflix.load --rate 120 --seconds 30` (jobs, four for each upload)."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx

from examples.measuring import NETFLIX, Load, Measured, measured, offer, read_load, report_load
from examples.netflix.app import PRIORITIES
from examples.netflix.scenario import kafka_url, upload
from examples.running import connected, new_stage, until
from mainspring.testing.servers.process import free_port

HERE = Path(__file__).parent
WORKERS = 2


async def measure(load: Load) -> Measured:
    """From each upload to the acceptance of each encoding, by the clock of the database. The encoder does little."""
    settings = {"MAINSPRING_BROKER": kafka_url(), "ENCODER_WORK": "1"}
    uploads = Load(load.rate / len(PRIORITIES), load.seconds)
    async with new_stage(HERE / "app.py", settings, recorded=False) as stage, connected(stage.store) as ledger:
        port = free_port()
        stage.start_module("upload", "examples.netflix.upload", str(port))
        stage.start("scheduler", "server", "--port", "0", "--quiet")
        for number in range(WORKERS):
            stage.worker(f"worker-{number}", "--concurrency", "20")
        await stage.workers_ready(WORKERS)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60) as client:
            await upload(client, "warm-up")

            async def post(first: int, count: int) -> None:
                await asyncio.gather(*(upload(client, f"v{n}") for n in range(first, first + count)))

            async with measured(stage) as costs:
                took_s = await offer(uploads, post)
                await until(lambda: _complete(ledger), "output of all resolutions", stage.logs)
        rows = await ledger.fetch(
            "SELECT extract(epoch FROM o.at - v.at)::float8 AS late FROM netflix.outputs o"
            " JOIN netflix.videos v ON v.id = o.video WHERE v.id <> 'warm-up' ORDER BY v.at"
        )
        await stage.stop()
    return report_load(NETFLIX, load, took_s, [row["late"] for row in rows], "upload to accepted encoding", costs)


async def _complete(ledger: Any) -> bool:
    return bool(
        await ledger.fetchval(
            "SELECT (SELECT count(*) FROM netflix.outputs) = $1 * (SELECT count(*) FROM netflix.videos)",
            len(PRIORITIES),
        )
    )


if __name__ == "__main__":
    print(asyncio.run(measure(read_load(__doc__ or "", rate=120))))
