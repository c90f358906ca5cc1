"""Time-sensitive jobs of a ride service: weekly payouts, surge prices, promotions, analytics; each with a deadline.

Settings: `MAINSPRING_STORE`, `MAINSPRING_BROKER` (`amqp://…?names=jobs.priority.{band}&bands=each`), `DATABASE_URL`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import asyncpg

from mainspring import Mainspring, Retry, cron, current_run, every

PAYOUT, PROMOTION, ANALYTICS = 1, 2, 3
SURGE = os.environ.get("SURGE", "30s")
STUCK_DRIVER = int(os.environ.get("STUCK_DRIVER", "0"))
"""The bank does not answer for this driver, the first time: what deadlines are for. 0: it answers for all."""
CALL_S = 0.02
AREAS = ("downtown", "airport", "stadium")

app = Mainspring(
    name="uber",
    pools={PAYOUT: 100, PROMOTION: 50, ANALYTICS: 20},
    deadlines={PAYOUT: "1m", PROMOTION: "5m", ANALYTICS: "30m"},
)


@app.lifespan
async def database() -> AsyncIterator[Any]:
    """The connection pool of each worker."""
    async with asyncpg.create_pool(os.environ["DATABASE_URL"], min_size=1, max_size=20) as pool:
        yield pool


@app.job(cron("0 9 * * MON", tz="America/Los_Angeles"), priority=PAYOUT, overlap="forbid", misfire="once")
async def driver_payouts() -> int:
    """Submit a payout for each driver. The key holds driver and week, so a repeated job adds none."""
    week = _week()
    drivers = await app.state.fetch("SELECT id, earned FROM uber.drivers WHERE earned > 0")
    submissions = (
        pay_driver.options(idempotency_key=f"payout/{driver['id']}/{week}").submit(driver["id"], week, driver["earned"])
        for driver in drivers
    )
    await asyncio.gather(*submissions)  # At once: submissions of the same moment share a commit.
    return len(drivers)


@app.task(priority=PAYOUT, retry=Retry(3, delay="200ms"))
async def pay_driver(driver: int, week: str, amount: int) -> str:
    """Pay one driver for one week. A bank that hangs costs one deadline, not the payout."""
    async with _noted():
        if driver == STUCK_DRIVER and current_run().attempt == 1:
            await asyncio.Event().wait()
        await asyncio.sleep(CALL_S)
        answer = await app.state.execute(
            "INSERT INTO uber.payouts VALUES ($1, $2::text::date, $3, $4) ON CONFLICT DO NOTHING",
            driver, week, amount, current_run().id,
        )  # fmt: skip
    return "paid" if answer.endswith("1") else "paid before"


@app.job(every(SURGE), priority=PAYOUT, overlap="forbid", misfire="skip", grace="5s")
async def surge_pricing() -> None:
    """Recalculate the surge factor of each area. A late factor is worth nothing: a misfire is skipped."""
    async with _noted():
        run = current_run()
        await app.state.execute(
            "INSERT INTO uber.surges SELECT area, $1, $2, 1 + count(r.rider) / 100.0"
            " FROM unnest($3::text[]) AS a (area)"
            " LEFT JOIN (SELECT * FROM uber.requests WHERE at > now() - interval '5 minutes') r USING (area)"
            " GROUP BY area",
            run.fire_at, run.id, AREAS,
        )  # fmt: skip


@app.job(cron("0 12 * * FRI", tz="America/Los_Angeles"), priority=PROMOTION, misfire="once")
async def weekly_promotions() -> int:
    """Submit the promotional mails of the week: all or none, in one transaction."""
    week = _week()
    riders = await app.state.fetch("SELECT id FROM uber.riders")
    await send_promotion.submit_many([{"rider": rider["id"], "week": week} for rider in riders])
    return len(riders)


@app.task(priority=PROMOTION, retry=Retry(3))
async def send_promotion(rider: int, week: str) -> None:
    """Send a mail to one rider: one a week, however often the run or its job is repeated."""
    async with _noted():
        await app.state.execute(
            "INSERT INTO uber.promotions VALUES ($1, $2::text::date) ON CONFLICT DO NOTHING", rider, week
        )


@app.task(priority=ANALYTICS, retry=Retry(3))
async def analyse(area: str, seconds: float = 0.2) -> str:
    """A slow report that is not urgent."""
    async with _noted():
        await asyncio.sleep(seconds)
    return area


@app.task(priority=PAYOUT, batch=200, batch_wait="20ms")
async def settle_ride(rides: list[tuple[int, float]]) -> list[bool]:
    """Settle finished rides: many small jobs each second, with one statement for a batch of them."""
    await app.state.execute(
        "INSERT INTO uber.settled (ride, due_at) SELECT * FROM unnest($1::bigint[], $2::double precision[])"
        " ON CONFLICT DO NOTHING",
        [ride for ride, _ in rides],
        [due_at for _, due_at in rides],
    )
    return [True] * len(rides)


def _week() -> str:
    """The Monday of the week for which a job runs."""
    due = current_run().fire_at or datetime.now(UTC)
    return (due - timedelta(days=due.weekday())).date().isoformat()


@asynccontextmanager
async def _noted() -> AsyncIterator[None]:
    run = current_run()
    started = await app.state.fetchval(
        "INSERT INTO uber.attempts (task, run, attempt, process) VALUES ($1, $2, $3, $4) RETURNING id",
        run.task, run.id, run.attempt, os.getpid(),
    )  # fmt: skip
    yield
    await app.state.execute("UPDATE uber.attempts SET ended_at = clock_timestamp() WHERE id = $1", started)
