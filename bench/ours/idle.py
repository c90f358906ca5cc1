"""What it costs to have many jobs that are not due."""

from __future__ import annotations

import asyncio
import sys
from datetime import UTC, datetime, timedelta

from bench.harness.script import Answer, Params, stay_until_told
from bench.ours.opening import measure, new_app, running
from mainspring import Mainspring, cron
from mainspring.core.instants import Instant
from mainspring.core.model import Job
from mainspring.core.schedules.triggers import CronTrigger

BATCH = 100_000
MINUTES = 1_440
NOTICE = 30
"""No job is due within this many minutes of now, before or after: idle means idle."""


def _triggers(now: datetime) -> list[CronTrigger]:
    """Daily, spread over every minute of the day but those around now."""
    minutes = [now + timedelta(minutes=minute) for minute in range(NOTICE, MINUTES - NOTICE)]
    return [cron(f"{at.minute} {at.hour} * * *") for at in minutes]


def _jobs(app: Mainspring, first: int, count: int, triggers: list[CronTrigger], now: Instant) -> list[Job]:
    ids = app.new_ids(count)
    return [
        Job(
            id=ids[index],
            name=f"idle-{first + index}",
            task="noop",
            trigger=triggers[(first + index) % len(triggers)],
            created_at=now,
            updated_at=now,
        )
        for index in range(count)
    ]


@measure
async def store(params: Params) -> Answer:
    """Write the jobs, each batch as an app of its own: a sync reads all jobs of its app."""
    app, triggers = new_app(params), _triggers(datetime.now(UTC))
    async with app:
        database = await app.open()
        for first in range(0, params["jobs"], BATCH):
            jobs = _jobs(app, first, min(BATCH, params["jobs"] - first), triggers, database.now())
            await database.sync_jobs(f"idle-{first // BATCH}", app.settings.namespace, jobs)
    return {"stored": params["jobs"]}


@measure
async def stay(params: Params) -> Answer:
    """Schedule and work, with nothing to do, until stdin is closed."""
    app = new_app(params)

    @app.task
    async def noop() -> None:
        sys.exit("void: an idle job fired")

    async with app, running(app):
        await asyncio.to_thread(stay_until_told)
    return {}
