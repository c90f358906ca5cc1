"""A store with a past: three weeks of firings that the real planner makes in virtual time, with failures of three
kinds, a night without any node, paused jobs and a queue that no worker serves.

    python tests/browser/seeding.py FILE [JOBS]      JOBS more jobs besides the few with a past
    python tests/browser/seeding.py FILE JOBS bare   nothing but jobs, and as many as there may be
    python tests/browser/seeding.py FILE JOBS night  jobs of the namespace `night` that all start at once
"""

from __future__ import annotations

import asyncio
import sqlite3
import sys
from contextlib import closing
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from random import Random
from unittest.mock import patch

from mainspring import Mainspring, Retry, after, cron, every, manual
from mainspring.clock import Clock
from mainspring.core.instants import MINUTE
from mainspring.stores.sqlite.store import SqliteStore
from mainspring.testing import ManualScheduler

DAYS = 21
NEVER = Retry(0)
MOVABLE = 60


def busy_hour() -> int:
    """Midnight; at night noon: the page of the load shows 24 hours from the last full one, and the tests' hour is to be
    whole in them."""
    return 12 if datetime.now(UTC).hour in (23, 0) else 0


def make_app(random: Random, more: int) -> Mainspring:
    """A few jobs of a company that one can imagine, and many that one cannot."""
    app, nights = Mainspring(name="company"), count()

    @app.job(cron("30 1 * * *", tz="Europe/Berlin"), name="etl-nightly", overlap="forbid", retry=NEVER, tags=["etl"])
    async def load_warehouse() -> str:
        if next(nights) % 4 == 2:  # Not by chance: at some hours of the day no night would fail.
            raise ConnectionError(f"db:{random.randrange(5000, 5999)} refused")
        return "loaded 1,204,118 rows"

    @app.job(every("1h"), name="sync-inventory", retry=NEVER)
    async def sync_inventory() -> int:
        if random.random() < 0.06:
            raise ValueError(f"invalid literal '{random.randrange(100)}x'")
        return random.randrange(10_000)

    @app.job(cron("0 6 * * 1", tz="America/New_York"), name="payroll", misfire="all", retry=NEVER)
    async def payroll() -> str:
        return "paid 512 people"

    @app.job(cron("0 2 * * *", tz="Europe/Berlin"), name="invoices", misfire="skip", retry=NEVER)
    async def invoices() -> str:
        return "sent"

    @app.job(cron("15 * * * *"), name="cleanup", retry=NEVER)
    async def cleanup() -> None:
        if random.random() < 0.01:
            raise TimeoutError(f"no answer from node {random.randrange(9)} in 30 s")

    @app.job(after("etl-nightly"), name="publish", retry=NEVER)
    async def publish() -> None: ...

    @app.job(manual(), name="train-model", queue="gpu", retry=NEVER)
    async def train_model() -> None: ...

    @app.task(name="encode", queue="gpu", retry=NEVER)
    async def encode(video: str) -> None: ...

    for number in range(more):
        minute, hour = number % 60, number // 60 % 24
        trigger = cron("0 0 * * *") if number % 7 == 0 else cron(f"{minute} {hour} * * *", tz="Europe/Berlin")
        app.job(trigger, name=f"report-{number:05}", retry=NEVER, tags=["report"])(invoices)
    return app


async def seed(file: Path, more: int = 40) -> None:
    """Write the store into a file that does not exist yet. Its last instant is now."""
    random, now = Random(7), datetime.now(UTC)
    app = make_app(random, more)
    with patch("mainspring.testing.scheduler.open_memory", partial(open_file, file)):
        async with ManualScheduler(app, start=now - timedelta(days=DAYS)) as scheduler:
            await scheduler.advance(f"{DAYS - 5}d")
            night = (now - timedelta(days=4)).replace(hour=22, minute=0, second=0, microsecond=0)
            await scheduler.advance(night - scheduler.now)
            with patch.object(random, "random", return_value=1.0):  # At any hour, what is caught up then succeeds.
                await scheduler.set_time(scheduler.now + timedelta(hours=8))  # No node was running: a misfire.
                await scheduler.advance("1m")
            await scheduler.advance(now - scheduler.now)
            await scheduler._store.pause_jobs("default", ["cleanup"], paused=True, reason="maintenance of the disks")
            for number in range(12):
                await app.tasks["encode"].submit(video=f"v{number}")
    with closing(sqlite3.connect(file)) as connection, connection:
        # Its worker has been silent for so long that it counts as dead as soon as a server looks.
        connection.execute("UPDATE workers SET heartbeat_at = heartbeat_at - ?", (MINUTE,))


async def declare(file: Path, count: int) -> None:
    """Many jobs without a past."""
    app = Mainspring(f"sqlite:///{file}", name="many")

    @app.task(name="nothing")
    async def nothing() -> None: ...

    for number in range(count):
        app.job(cron(f"{number % 60} {number // 60 % 24} * * *"), name=f"many-{number:05}")(nothing)
    await app.sync_jobs()
    await app.close()


async def declare_night(file: Path, count: int) -> None:
    """Many jobs that start in the same minute. Sixty of them may move."""
    app = Mainspring(f"sqlite:///{file}", name="night", namespace="night")

    @app.task(name="nothing")
    async def nothing() -> None: ...

    for number in range(count):
        tags = [] if number < MOVABLE else ["pinned"]
        app.job(cron(f"0 {busy_hour()} * * *"), name=f"midnight-{number:04}", tags=tags)(nothing)
    await app.sync_jobs()
    await app.close()


def open_file(file: Path, clock: Clock) -> SqliteStore:
    """The store of the scheduler, in a file instead of memory."""
    return SqliteStore(str(file), clock, durable=False, inline=True)


if __name__ == "__main__":
    jobs = int(sys.argv[2]) if len(sys.argv) > 2 else 40
    ways = {"bare": declare, "night": declare_night}
    asyncio.run(ways.get(sys.argv[-1], seed)(Path(sys.argv[1]), jobs))
