"""Payouts at a steady rate: `python -m examples.stripe.load --rate 20 --seconds 30`."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

from examples.measuring import STRIPE, Load, Measured, measured, offer, read_load, report_load
from examples.running import connected, new_stage, until
from mainspring.testing.servers.redis import RedisServer

HERE = Path(__file__).parent
ACCOUNTS = 500
MACHINES = 2


async def measure(load: Load) -> Measured:
    """From the request of each payout to its booking, by the clock of the ledger."""
    async with new_stage(HERE / "app.py", recorded=False) as stage:
        redis = RedisServer(stage.folder).start()
        try:
            stage.environment |= {"MAINSPRING_LEASE": redis.url, "PAYOUT_SWEEP": "1s"}
            async with connected(stage.store) as ledger:
                await ledger.executemany(
                    "INSERT INTO stripe.accounts VALUES ($1, 1000000000)", [(f"account-{n}",) for n in range(ACCOUNTS)]
                )
                for number in range(MACHINES):
                    stage.node(f"machine-{number}")
                await stage.workers_ready(MACHINES)
                async with measured(stage) as costs:
                    took_s = await offer(load, lambda first, count: _request(ledger, first, count))
                    await until(lambda: _all_booked(ledger), "booking of all payouts", stage.logs)
                rows = await ledger.fetch(
                    "SELECT extract(epoch FROM e.at - r.due_at)::float8 AS late FROM stripe.entries e"
                    " JOIN stripe.requests r USING (payout) ORDER BY r.due_at"
                )
            await stage.stop()
        finally:
            redis.kill()
        return report_load(STRIPE, load, took_s, [row["late"] for row in rows], "request to booking", costs)


async def _request(ledger: Any, first: int, count: int) -> None:
    rows = [(f"payout-{n}", f"account-{n % ACCOUNTS}", 250) for n in range(first, first + count)]
    await ledger.executemany("INSERT INTO stripe.requests VALUES ($1, $2, $3)", rows)


async def _all_booked(ledger: Any) -> bool:
    return bool(
        await ledger.fetchval("SELECT (SELECT count(*) FROM stripe.entries) = (SELECT count(*) FROM stripe.requests)")
    )


if __name__ == "__main__":
    print(asyncio.run(measure(read_load(__doc__ or "", rate=20))))
