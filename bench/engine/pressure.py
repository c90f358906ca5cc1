"""The PostgreSQL store by itself, and under pressure: `python -m bench.engine.pressure postgresql://user@host/empty_database`.

Submissions alone, together and in bulk; a bare loop of claims and reports in two processes; and what a claim costs
beside a million finished and a million future runs, and while a transaction elsewhere keeps all that is deleted.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Sequence
from multiprocessing import Process, Queue
from typing import Any

import asyncpg

from mainspring.clock import SystemClock
from mainspring.core.instants import DAY, SECOND, Duration
from mainspring.core.model import Claim, NewRun, Report, Worker
from mainspring.process.eventloop import new_loop
from mainspring.process.ids import IdSource
from mainspring.stores.postgres.store import PostgresStore

CALLERS = 32
BATCH = 500
BULK = 10_000
SECONDS = 8.0
CROWD = 1_000_000

_ids = IdSource(SystemClock())
_FINISHED = """
INSERT INTO mainspring.history (id, finished_at, namespace, queue, region, task, args, options, state, outcome, reason,
                                priority, due_at, idx, token, attempt, losses, cancel_reason, progress_note, created_at)
SELECT 'finished' || n, $1::bigint + n, 'default', 'default', 'default', 'noop', '{}', '{}', 'succeeded', 'succeeded',
       '', 5, $1, 0, 1, 1, 0, '', '', $1 FROM generate_series(1, $2::integer) AS n
"""


def runs(store: PostgresStore, count: int, delay: Duration = 0) -> list[NewRun]:
    """New runs of a task that does nothing."""
    now = store.now()
    return [NewRun(run_id, "noop", now + delay, now) for run_id in _ids.batch(count)]


def successes(store: PostgresStore, claims: Sequence[Claim]) -> list[Report]:
    """What a worker would say of them."""
    now = store.now()
    return [
        Report(claim.run_id, claim.token, "succeeded", "succeeded", result="null", started_at=now, finished_at=now)
        for claim in claims
    ]


async def submissions(url: str) -> None:
    """One caller, many callers, bulk."""
    store = await PostgresStore.open(url, SystemClock())

    async def caller(until: float) -> int:
        count = 0
        while time.perf_counter() < until:
            await store.submit(runs(store, 1))
            count += 1
        return count

    await caller(time.perf_counter() + 1)
    one = await caller(time.perf_counter() + SECONDS / 2) / (SECONDS / 2)
    until = time.perf_counter() + SECONDS / 2
    many = sum(await asyncio.gather(*(caller(until) for _ in range(CALLERS)))) / (SECONDS / 2)
    began = time.perf_counter()
    for _ in range(10):
        await store.submit(runs(store, BULK))
    bulk = 10 * BULK / (time.perf_counter() - began)
    print(f"submit: one after another {one:,.0f}/s; {CALLERS} callers {many:,.0f}/s ({many / one:.1f} times)")
    print(f"submit: bulk {bulk:,.0f}/s", flush=True)
    await store.close()


async def work(url: str, name: str, rates: Any) -> None:
    """Claim and report for some seconds; the next claim is made while the last ones are reported."""
    store = await PostgresStore.open(url, SystemClock())
    worker = Worker(id=name, tasks=("noop",), concurrency=2 * BATCH)
    began, count = time.perf_counter(), 0
    reporting: asyncio.Task[Any] | None = None
    while time.perf_counter() < began + SECONDS and (claims := await store.claim(worker, BATCH, 10 * SECOND, "strict")):
        if reporting is not None:
            await reporting
        reporting = asyncio.ensure_future(store.report(successes(store, claims)))
        count += len(claims)
    if reporting is not None:
        await reporting
    rates.put(count / (time.perf_counter() - began))
    await store.close()


def _work(url: str, name: str, rates: Any) -> None:
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(work(url, name, rates))


def drain(url: str, what: str) -> None:
    """Two processes work off a backlog."""
    rates: Any = Queue()
    processes = [Process(target=_work, args=(url, f"worker-{n}", rates)) for n in range(2)]
    for process in processes:
        process.start()
    total = sum(rates.get() for _ in processes)
    for process in processes:
        process.join()
    print(f"claim and report, two processes, batches of {BATCH}{what}: {total:,.0f}/s", flush=True)


async def fill(url: str, count: int, delay: Duration = 0) -> None:
    """A backlog."""
    store = await PostgresStore.open(url, SystemClock())
    for _ in range(count // BULK):
        await store.submit(runs(store, BULK, delay))
    await store.close()


async def crowd(url: str) -> None:
    """A million finished runs, and a million that are due tomorrow, of the same queue and priority."""
    connection = await asyncpg.connect(url)
    await connection.execute(_FINISHED, int(time.time() * SECOND), CROWD, timeout=600)
    await connection.close()
    await fill(url, CROWD, DAY)


async def held(url: str) -> None:
    """What claims cost while a transaction elsewhere keeps a million deleted runs in the way."""
    store = await PostgresStore.open(url, SystemClock())
    worker = Worker(id="worker", tasks=("noop",), concurrency=BATCH)

    async def cycle(count: int) -> tuple[float, float]:
        took: list[float] = []
        for _ in range(count // BULK):
            await store.submit(runs(store, BULK))
            for _ in range(BULK // BATCH):
                began = time.perf_counter()
                claims = await store.claim(worker, BATCH, 10 * SECOND, "strict")
                took.append(time.perf_counter() - began)
                await store.report(successes(store, claims))
        return statistics.mean(took) * 1_000, statistics.median(took) * 1_000

    while claims := await store.claim(worker, BATCH, 10 * SECOND, "strict"):
        await store.report(successes(store, claims))
    print("claim of {}: mean {:.1f}, median {:.1f} ms".format(BATCH, *await cycle(100_000)), flush=True)
    holder = await asyncpg.connect(url)
    await holder.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
    await holder.fetchval("SELECT count(*) FROM mainspring.runs WHERE state = 'running'")
    for number in range(1, 11):
        mean, median = await cycle(CROWD // 10)
        print(f"  after {number * CROWD // 10:,} deletes kept: mean {mean:.1f}, median {median:.1f} ms", flush=True)
    await holder.close()
    await store.close()


def main(url: str) -> None:
    """All of it, one after another."""
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(submissions(url))
        runner.run(fill(url, 300_000))
    drain(url, "")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(crowd(url))
        runner.run(fill(url, 300_000))
    drain(url, ", beside a million finished and a million future runs")
    with asyncio.Runner(loop_factory=new_loop) as runner:
        runner.run(held(url))


if __name__ == "__main__":
    main(sys.argv[1])
