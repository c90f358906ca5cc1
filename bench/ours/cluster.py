"""`python -m bench.ours.cluster MEASURE PARAMS`: Mainspring on PostgreSQL, by the public SDK and its own command.

Its settings: those that users get, but for the number of runs that a worker executes at once.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import asyncpg

from bench.harness.intake import Intake, async_measures
from bench.harness.script import Answer, Params, pace, rate_of_async, serve
from mainspring import every
from mainspring.process.eventloop import new_loop

CONCURRENCY = 200
ROW = 200
"""Characters of a bare row: about what a run takes."""


def _run(work: Coroutine[Any, Any, Answer]) -> Answer:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        return runner.run(work)


@asynccontextmanager
async def _open() -> AsyncIterator[Intake]:
    from bench.ours.cluster_app import app, noop

    # A run that expires is not handed to an idle worker by the store: it goes by the broker, if there is one.
    task = noop.options(expires="1h") if os.environ.get("BENCH_DELIVERED") else noop

    async def one(number: int) -> None:
        await task.submit(number=number)

    async def many(numbers: Sequence[int]) -> None:
        await noop.submit_many([{"number": number} for number in numbers])

    async with app:
        yield Intake(one, many)


def prepare(_: Params) -> Answer:
    """The schema: the first process that opens the store makes it."""

    async def migrate() -> Answer:
        from bench.ours.cluster_app import app

        async with app:
            await app.open()
        return {}

    return _run(migrate())


def work(params: Params) -> Answer:
    """One worker process."""
    concurrency = str(params.get("concurrency", CONCURRENCY))
    command = ["-m", "mainspring", "worker", "bench.ours.cluster_app:app", "--concurrency", concurrency]
    os.execv(sys.executable, [sys.executable, *command, *(["--quiet"] if params.get("quiet", True) else [])])


def server(params: Params) -> Answer:
    """One process that schedules, relays events and serves the API, as users start it."""
    command = [
        "-m",
        "mainspring",
        "server",
        "bench.ours.cluster_app:app",
        "--quiet",
        "--port",
        str(params.get("port", 0)),
    ]
    os.execv(sys.executable, [sys.executable, *command])


def node(params: Params) -> Answer:
    """One process that schedules and works, as users start it."""
    concurrency = str(params.get("concurrency", CONCURRENCY))
    command = [
        "-m",
        "mainspring",
        "up",
        "bench.ours.cluster_app:app",
        "--quiet",
        "--no-api",
        "--undeclared",
        "report",  # The jobs are stored by another program of this app: see `store_jobs`.
        "--concurrency",
        concurrency,
    ]
    os.execv(sys.executable, [sys.executable, *command])


def store_jobs(params: Params) -> Answer:
    """Jobs that are all due on one instant, which is given; each marks its place."""
    anchor = datetime.fromtimestamp(params["due_at"] - 3600, UTC)

    async def store() -> Answer:
        from bench.ours.cluster_app import app, noop

        for number in range(params["jobs"]):
            app.job(every("1h", anchor=anchor), name=f"tick-{number}", args={"number": number})(noop)
        async with app:
            await app.sync_jobs()
        return {}

    return _run(store())


async def _bare(params: Params) -> Answer:
    """The least that a durable submission can cost: one row of the same size, inserted and committed."""
    connection = await asyncpg.connect(os.environ["BENCH_POSTGRES"])
    await connection.execute("CREATE TABLE bare (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, body text)")
    insert, body = await connection.prepare("INSERT INTO bare (body) VALUES ($1)"), "x" * ROW
    rate = await rate_of_async(lambda: insert.fetch(body), params["seconds"])
    await connection.close()
    return {"rates": [rate]}


async def _flow(params: Params) -> Answer:
    """Submit at this rate, in small bulks, for this long; the rate that was reached, second by second."""
    from bench.ours.cluster_app import app, noop

    per_second, share = params["per_second"], params["bulks"]
    size, sent = per_second // share, 0
    marks = [time.monotonic()]
    async with app:
        for pause in pace(share, params["seconds"]):
            await asyncio.sleep(pause)
            await noop.submit_many([{"number": number} for number in range(sent, sent + size)])
            sent += size
            marks.append(time.monotonic())
    return {"sent": sent, "took_s": marks[-1] - marks[0], "longest_s": max(b - a for a, b in pairwise(marks))}


if __name__ == "__main__":
    serve(
        {
            "prepare": prepare,
            "work": work,
            "node": node,
            "server": server,
            "store_jobs": store_jobs,
            "bare": lambda params: _run(_bare(params)),
            "flow": lambda params: _run(_flow(params)),
            **async_measures(_open, _run),
        }
    )
