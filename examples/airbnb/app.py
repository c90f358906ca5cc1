"""A marketplace of homes: chains of jobs, calendars and misfires on a cluster of equal nodes, without a leader.

Every node schedules and works; the database decides. Settings: `MAINSPRING_STORE`, `DATABASE_URL`.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from typing import Any

import asyncpg

from mainspring import Mainspring, after, cron, current_run, every
from mainspring.calendars import Calendar, holidays, weekends

SYNC = os.environ.get("CALENDAR_SYNC", "15m")
REMIND = os.environ.get("REMINDERS", "0 * * * * *")
GRACE = os.environ.get("MISFIRE_GRACE", "10s")
NIGHTS = 30

app = Mainspring(name="airbnb", coordination="cluster", check_in="5s")
business_days = app.calendar(
    Calendar("business-days", (weekends(), holidays("01-01", "12-25")), tz="America/Los_Angeles")
)


@app.lifespan
async def database() -> AsyncIterator[Any]:
    """The connection pool of each node."""
    async with asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=4) as pool:
        yield pool


@app.job(every(SYNC), misfire="once", grace=GRACE, overlap="forbid")
async def sync_calendars() -> int:
    """Import the stays that hosts entered elsewhere. After an outage one import is enough."""
    answer = await app.state.execute(
        "INSERT INTO airbnb.stays SELECT id, current_date + (random() * $1)::int FROM airbnb.listings"
        " ORDER BY random() LIMIT 20 ON CONFLICT DO NOTHING",
        NIGHTS,
    )
    await _note()
    return int(answer.split()[-1])


@app.job(after("sync_calendars"))
async def smart_pricing() -> int:
    """The price of each free night grows with the share of homes that are taken in it."""
    answer = await app.state.execute(
        "INSERT INTO airbnb.prices"
        " SELECT l.id, n.night, l.base_price * (100 + 100 * coalesce(t.taken, 0) / greatest(count(*) OVER w, 1)) / 100"
        " FROM airbnb.listings l CROSS JOIN (SELECT current_date + i AS night FROM generate_series(0, $1) i) n"
        " LEFT JOIN (SELECT night, count(*) AS taken FROM airbnb.stays GROUP BY night) t USING (night)"
        " WINDOW w AS (PARTITION BY n.night)"
        " ON CONFLICT (listing, night) DO UPDATE SET price = excluded.price",
        NIGHTS,
    )
    await _note()
    return int(answer.split()[-1])


@app.job(after("smart_pricing"))
async def publish_search_index() -> dict[str, int]:
    """The cheapest free home of each night, for the search page."""
    rows = await app.state.fetch(
        "SELECT p.night, min(p.price) AS price FROM airbnb.prices p LEFT JOIN airbnb.stays s USING (listing, night)"
        " WHERE s.night IS NULL GROUP BY p.night ORDER BY p.night"
    )
    await _note()
    return {str(row["night"]): row["price"] for row in rows}


@app.job(cron(REMIND), misfire="all", grace=GRACE)
async def remind_guests() -> int:
    """Remind the guests whose stay begins the day after the instant. No instant may be left out, however late it is."""
    answer = await app.state.execute(
        "INSERT INTO airbnb.reminders SELECT listing, night FROM airbnb.stays"
        " WHERE night = ($1::timestamptz AT TIME ZONE 'UTC')::date + 1 ON CONFLICT DO NOTHING",
        current_run().fire_at,
    )
    await _note()
    return int(answer.split()[-1])


@app.job(cron(REMIND), misfire="skip", grace=GRACE)
async def refresh_trending() -> None:
    """Rank the homes with the most stays. A list of an earlier instant is worth nothing: a misfire is skipped."""
    await app.state.execute(
        "INSERT INTO airbnb.trending SELECT row_number() OVER (ORDER BY count(*) DESC, listing), listing"
        " FROM airbnb.stays GROUP BY listing ORDER BY 1 LIMIT 10"
        " ON CONFLICT (place) DO UPDATE SET listing = excluded.listing"
    )
    await _note()


@app.job(
    cron("0 0 2 * * ?", tz="America/Los_Angeles", dialect="quartz"),
    calendars=[business_days],
    on_excluded="next_day",
    misfire="once",
)
async def host_report() -> dict[str, int]:
    """The stays of each home to come, for its host, at two in the morning of each business day."""
    rows = await app.state.fetch(
        "SELECT listing, count(*) AS stays FROM airbnb.stays WHERE night >= current_date GROUP BY listing"
    )
    await _note()
    return {str(row["listing"]): row["stays"] for row in rows}


@app.task
async def refresh_listing(listing: int) -> int:
    """Count the free nights of one home. Each home has a job of its own."""
    taken = await app.state.fetchval("SELECT count(*) FROM airbnb.stays WHERE listing = $1", listing)
    await _note()
    return NIGHTS - int(taken)


async def _note() -> None:
    run = current_run()
    await app.state.execute(
        "INSERT INTO airbnb.done (job, fire_at, run, process) VALUES ($1, $2, $3, $4)",
        run.job, run.fire_at, run.id, os.getpid(),
    )  # fmt: skip
