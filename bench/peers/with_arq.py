"""arq on Redis: `python -m bench.peers with_arq MEASURE PARAMS`.

Its settings: two processes, a hundred jobs at once (default: 10), the queue looked at every 5 ms (default: 500), no
results kept, uvloop, hiredis.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvloop
from arq import create_pool, func
from arq.connections import RedisSettings
from arq.worker import Worker

from bench.harness.intake import Intake, async_measures
from bench.harness.script import Answer, Measure, Params
from bench.harness.slate import Slate

AT_ONCE = 100
POLL_S = 0.005

settings = RedisSettings.from_dsn(os.environ["BENCH_REDIS"])
slate = Slate.given()


async def noop(_: dict[str, Any], number: int) -> None:
    """Nothing."""
    slate.mark(number)


@asynccontextmanager
async def _open() -> AsyncIterator[Intake]:
    pool = await create_pool(settings)
    yield Intake(lambda number: pool.enqueue_job("noop", number))
    await pool.aclose()


def work(_: Params) -> Answer:
    """One worker process: what its command does."""
    asyncio.set_event_loop(uvloop.new_event_loop())
    functions = [func(noop, name="noop", keep_result=0)]
    Worker(functions, redis_settings=settings, max_jobs=AT_ONCE, poll_delay=POLL_S, keep_result=0).run()
    return {}


MEASURES: dict[str, Measure] = {"prepare": lambda _: {}, "work": work, **async_measures(_open, uvloop.run)}
