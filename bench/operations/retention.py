"""Retention on PostgreSQL beside a steady load: `python -m bench.operations.retention --store postgresql://user@host`

Runs are submitted at a rate (`--rate 2000`), claimed and reported through the store, in a database of its own. History
has a partition for each day, and retention drops those that are past. So the store lives in a clock that makes a day of
ten seconds, and runs are kept for a day. Prints what the database holds as time goes on: it must not grow once the
first runs are past their retention.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time

import psycopg

from bench.api.serving import a_store
from mainspring.clock import Clock, SystemClock
from mainspring.core.instants import DAY, SECOND
from mainspring.core.model import NewRun, Report, Worker
from mainspring.process.ids import IdSource
from mainspring.store import Store
from mainspring.stores.postgres.store import PostgresStore

DAY_S = 10.0
TICK_S = 0.1


class FastClock(SystemClock):
    """Makes a day of ten seconds."""

    def __init__(self) -> None:
        self._began = super().now()

    def now(self) -> int:
        return self._began + int((super().now() - self._began) * (DAY / SECOND) / DAY_S)


class Load:
    """Runs that are submitted, claimed and reported, at a rate if the machine carries it."""

    def __init__(self, store: Store, clock: Clock, rate: int) -> None:
        self._store = store
        self._rate = rate
        self._ids = IdSource(clock)
        self.done = 0

    async def submit(self) -> None:
        """As many as are due at each tick."""
        began, sent = time.monotonic(), 0
        while True:
            due = int((time.monotonic() - began) * self._rate) - sent
            now = self._store.now()
            sent += due
            if due > 0:
                await self._store.submit([NewRun(id=each, task="t", due_at=now, created_at=now)
                                          for each in self._ids.batch(due)])  # fmt: skip
            await asyncio.sleep(TICK_S)

    async def work(self, name: str) -> None:
        """Claim and report."""
        worker = Worker(id=name, tasks=("t",), concurrency=1_000)
        while True:
            claims = await self._store.claim(worker, 500, 10 * DAY, "strict")
            if not claims:
                await asyncio.sleep(TICK_S / 2)
                continue
            await self._store.report([Report(each.run_id, each.token, "succeeded", "succeeded") for each in claims])
            self.done += len(claims)

    async def clean(self) -> None:
        """As the relay and the cleaner of the program do, the latter more often, since the days are short."""
        while True:
            await self._store.number_events(10_000)
            await self._store.clean(DAY, DAY, DAY, 1_000)
            await asyncio.sleep(TICK_S)


_SIZES = """
SELECT pg_size_pretty(sum(size)) || ': ' || string_agg(name || ' ' || pg_size_pretty(size), ', ' ORDER BY size DESC)
FROM (SELECT split_part(relname, '_2', 1) AS name, sum(pg_total_relation_size(oid)) AS size FROM pg_class
      WHERE relkind = 'r' AND relnamespace = 'mainspring'::regnamespace GROUP BY 1) AS t
WHERE size > 1e6"""


async def size_of(url: str) -> str:
    """How many bytes the tables take, and the largest."""
    async with await psycopg.AsyncConnection.connect(url) as connection:
        row = await (await connection.execute(_SIZES)).fetchone()
    return str(row[0]) if row else ""


async def play(url: str, rate: int, seconds: float) -> None:
    """All of it together, and a line for each day."""
    clock = FastClock()
    store = await PostgresStore.open(url, clock, given_time=True)
    await store.clean(DAY, DAY, DAY, 1_000)  # Makes the first partitions, as that of each day is made ahead.
    load = Load(store, clock, rate)
    tasks = [asyncio.create_task(each) for each in (load.submit(), load.work("a"), load.work("b"), load.clean())]
    print("| second | runs a second | finished runs kept | size |\n|---|---|---|---|")
    began, before = time.monotonic(), 0
    while time.monotonic() < began + seconds:
        await asyncio.wait(tasks, timeout=DAY_S, return_when=asyncio.FIRST_EXCEPTION)
        for task in tasks:
            if task.done():
                task.result()
        runs, size = sum((await store.count_runs("default")).values()), await size_of(url)
        done, before = load.done - before, load.done
        print(f"| {time.monotonic() - began:.0f} | {done / DAY_S:,.0f} | {runs:,} | {size} |", flush=True)
    print(f"\nload {os.getloadavg()[0]:.1f}")
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await store.close()


def main() -> None:
    """In a database of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--rate", type=int, default=2_000)
    parser.add_argument("--seconds", type=float, default=60.0)
    chosen = parser.parse_args()
    with a_store(chosen.store) as url:
        asyncio.run(play(url, chosen.rate, chosen.seconds))


if __name__ == "__main__":
    main()
