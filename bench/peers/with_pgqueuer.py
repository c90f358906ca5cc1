"""PgQueuer on PostgreSQL: `python -m bench.peers with_pgqueuer MEASURE PARAMS`.

Its settings: asyncpg, uvloop, batches of 1,000 (its default of 10 costs three times as much; see bench/README.md), a
connection for each worker, the durable tables that it makes by default. Submissions one after another by one
connection, which is faster, and for comparison by a pool of ten, as its documentation has it for web servers; together
by that pool; in bulk by lists.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
import uvloop
from pgqueuer import AsyncpgDriver, AsyncpgPoolDriver, Job, PgQueuer, Queries, run

from bench.harness.intake import Intake, async_measures
from bench.harness.script import Answer, Measure, Params
from bench.harness.slate import Slate

BATCH = 1_000
POOL = 10


def _url() -> str:
    return os.environ["BENCH_POSTGRES"]


@asynccontextmanager
async def create() -> AsyncIterator[PgQueuer]:
    """What a worker process runs."""
    slate, connection = Slate.given(), await asyncpg.connect(_url())
    queuer = PgQueuer(AsyncpgDriver(connection))

    @queuer.entrypoint("noop")
    async def noop(job: Job) -> None:
        slate.mark(int(job.payload or b""))

    yield queuer
    await connection.close()


def _intake(queries: Queries) -> Intake:
    async def one(number: int) -> None:
        await queries.enqueue("noop", b"%d" % number)

    async def many(numbers: Sequence[int]) -> None:
        count = len(numbers)
        await queries.enqueue(["noop"] * count, [b"%d" % number for number in numbers], [0] * count)

    return Intake(one, many)


@asynccontextmanager
async def _open() -> AsyncIterator[Intake]:
    async with asyncpg.create_pool(_url(), min_size=1, max_size=POOL) as pool:
        yield _intake(Queries(AsyncpgPoolDriver(pool)))


@asynccontextmanager
async def _open_one() -> AsyncIterator[Intake]:
    connection = await asyncpg.connect(_url())
    yield _intake(Queries(AsyncpgDriver(connection)))
    await connection.close()


def prepare(_: Params) -> Answer:
    """Its tables."""

    async def install() -> None:
        connection = await asyncpg.connect(_url())
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()

    uvloop.run(install())
    return {}


def work(_: Params) -> Answer:
    """One worker process: what its command does."""
    uvloop.run(run(create, batch_size=BATCH))
    return {}


_BY_POOL = async_measures(_open, uvloop.run)
MEASURES: dict[str, Measure] = {
    "prepare": prepare,
    "work": work,
    **_BY_POOL,
    "submit": async_measures(_open_one, uvloop.run)["submit"],
    "submit_by_pool": _BY_POOL["submit"],
}
