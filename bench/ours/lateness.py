"""How late functions start when a thousand jobs are due on one second."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime

from bench.harness.script import Answer, Params, check_all_ran, first_boundary, wait_async
from bench.ours.opening import measure, new_app, running
from mainspring import current_run, every

NOTICE_S = 1.5


@measure
async def lateness(params: Params) -> Answer:
    """From the fire instant to the first line of the function."""
    app, samples = new_app(params), list[float]()
    period, boundaries, jobs = params["period_s"], params["boundaries"], params["jobs"]
    began = first_boundary(period, NOTICE_S)
    ends = began + period * boundaries

    @app.task
    async def tick() -> None:
        now, fire_at = time.time(), current_run().fire_at
        if fire_at is not None and fire_at.timestamp() < ends:
            samples.append((now - fire_at.timestamp()) * 1000)

    trigger = every(period, anchor=datetime.fromtimestamp(began - period, UTC))
    for number in range(jobs):
        app.job(trigger, name=f"tick-{number}")(tick)
    async with app:
        await app.sync_jobs()
        async with running(app):
            await asyncio.sleep(ends - period - time.time())
            await wait_async(lambda: len(samples) >= jobs * boundaries, period)
    check_all_ran(len(samples), jobs * boundaries)
    return {"samples_ms": samples, "expected": jobs * boundaries}
