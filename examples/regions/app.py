"""A catalogue that every region refreshes: one run per region and firing, and another region if one is lost."""

from __future__ import annotations

import os

import asyncpg

from mainspring import Mainspring, current_run, every

REGIONS = ("us-east", "us-west", "eu", "asia")

app = Mainspring(os.environ.get("MAINSPRING_STORE"), name="catalogue")


FAILOVER = os.environ.get("REGION_FAILOVER", "5m")


@app.job(every("1s"), regions=REGIONS, region_failover=FAILOVER, misfire="all", grace="1m")
async def refresh_catalogue() -> None:
    """Refresh the catalogue of one region."""
    run = current_run()
    connection = await asyncpg.connect(os.environ["DATABASE_URL"])
    try:
        await connection.execute(
            "INSERT INTO regions.refreshed (fire_at, run_id, here) VALUES ($1, $2, $3)",
            run.fire_at,
            run.id,
            os.environ.get("HERE", ""),
        )
    finally:
        await connection.close()
