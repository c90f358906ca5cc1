"""Lists and counts beside millions of finished runs: `python -m bench.api.history --store URL [--runs 10000000]`

Makes a database of its own on the server that `--store` names, fills 30 days of history by SQL, and asks a server
process over HTTP for every list and count that it offers, with filters that match and with filters that match nothing.
Each is asked nine times, by prepared statements that the database may have settled on by then. Ten million runs need
some 10 GB.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median
from typing import NamedTuple

import httpx
import psycopg

from bench.api.ours import app_on
from bench.api.serving import HOST, a_store, served
from mainspring import Mainspring
from mainspring.api.auth.tokens import issue, load_keys
from mainspring.clock import SystemClock
from mainspring.core.ids import encode_time
from mainspring.core.instants import DAY, HOUR, Instant
from mainspring.stores.postgres.history.days import day_of
from mainspring.stores.postgres.history.partitions import partition_name
from mainspring.stores.postgres.store import PostgresStore

DAYS = 30
TIMES = 9
BUDGET_MS = 50.0
JOBS = 1_000

_RUNS = """
INSERT INTO mainspring.history (id, finished_at, namespace, queue, region, task, args, options, state, outcome, reason,
  priority, due_at, idx, token, attempt, losses, worker, started_at, cancel_reason, progress_note, job_id, job, fire_at,
  key, error, created_at)
SELECT '{time}' || lpad(n::text, 8, '0') || left(md5({at}::text || n), 8),
  {at} + n + CASE WHEN n % 200 = 0 THEN 90000000 ELSE 50000 END,
  CASE WHEN n % 100 = 7 THEN 'small' ELSE 'default' END, 'queue-' || n % 3,
  CASE WHEN n % 100 = 3 THEN 'north' ELSE 'default' END, 'task-' || n % 20, '{{"video":"v1"}}',
  CASE WHEN n % 3 = 0 THEN '{{"tags":["popular"]}}' WHEN n = 1 AND {hour} = 0 THEN '{{"tags":["rare"]}}'
    ELSE '{{}}' END,
  CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'succeeded' END, CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'succeeded' END,
  '', 5, {at} + n - CASE WHEN n % 500 = 0 THEN 120000000 ELSE 0 END, 0, 1, 1, 0, 'worker-1', {at} + n, '', '',
  CASE WHEN n % 2 = 0 THEN 'job-' || n % {jobs} END, CASE WHEN n % 2 = 0 THEN 'job-' || n % {jobs} END,
  CASE WHEN n % 2 = 0 THEN {at} + n END, CASE WHEN n % 100 = 11 THEN 'key-' || n % 1000 END,
  CASE WHEN n % 100 = 0 THEN '{{"type":"ValueError","message":"no such video","traceback":""}}' END, {at} + n
FROM generate_series(1, {count}) AS n"""
_FIRINGS = """
INSERT INTO mainspring.firings (job_id, fire_at, kind, outcome, run_id, created_at)
SELECT 'job-' || n % {jobs}, {at} + n, 'scheduled', 'fired', NULL, {at} + n FROM generate_series(2, {count}, 2) AS n"""
_JOBS = """
INSERT INTO mainspring.jobs (id, name, task, "trigger", queue, next_fire_at, last_fire_at, created_at, updated_at)
SELECT 'job-' || n, 'job-' || n, 'task-' || n % 20, '{{"kind":"every","period":3600000000}}', 'queue-' || n % 3,
  {now} + {hour} + n, {now} - n, {now}, {now}
FROM generate_series(0, {jobs} - 1) AS n"""


def fill(url: str, runs: int) -> None:
    """A month of history, an hour at a time."""
    asyncio.run(_settle(url, times=0))
    now = SystemClock().now()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        connection.execute(_JOBS.format(now=now, hour=HOUR, jobs=JOBS).encode())
        for day in range(day_of(now) - DAYS * DAY, day_of(now), DAY):
            _make_partitions(connection, day)
            for hour in range(24):
                at = day + hour * HOUR
                words = {"at": at, "time": encode_time(at), "hour": hour, "count": runs // DAYS // 24, "jobs": JOBS}
                connection.execute(_RUNS.format(**words).encode())
                connection.execute(_FIRINGS.format(**words).encode())
        asyncio.run(_settle(url, times=10))
        connection.execute("VACUUM ANALYZE")
        row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        print(f"{runs:,} runs, {row[0] / 1e9 if row else 0:.1f} GB\n", flush=True)


def _make_partitions(connection: psycopg.Connection[tuple[object, ...]], day: Instant) -> None:
    for table in ("history", "history_tags"):
        name = partition_name(table, day)
        connection.execute(
            f"CREATE TABLE IF NOT EXISTS mainspring.{name} PARTITION OF mainspring.{table} "
            f"FOR VALUES FROM ({day}) TO ({day + DAY})".encode()
        )


async def _settle(url: str, times: int) -> None:
    """Make the schema, and do what the cleaner does: it counts up what triggers noted."""
    store = await PostgresStore.open(url, SystemClock())
    for _ in range(times):
        await store.clean(100 * DAY, 100 * DAY, 100 * DAY, 1_000)
    await store.close()


def questions(run_id: str) -> Iterator[str]:
    """Every list and count, with filters that match and with others that match nothing."""
    now = datetime.now(UTC)
    day, week, future = ((now + timedelta(days=days)).strftime("%Y-%m-%dT%H:%M:%SZ") for days in (-2, -7, 2))
    alone = ("state", ("failed", "cancelled")), ("job", ("job-4", "missing")), ("task", ("task-3", "missing"))
    alone += ("tag", ("popular", "rare", "missing")), ("queue", ("queue-1", "missing")), ("worker", ("missing",))
    alone += ("region", ("north", "missing")), ("key", ("key-11", "missing")), ("late", ("1m", "1d"))
    alone += ("took", ("1m", "1d")), ("since", (week, future)), ("until", (week,))
    together = (
        "job=job-4&state=failed",
        "job=job-4&state=cancelled",
        "task=task-3&state=failed",
        "task=task-0&state=failed",
    )
    together += ("tag=popular&state=failed", "tag=popular&state=cancelled", "tag=missing&state=failed")
    together += ("queue=queue-1&task=task-3", "queue=queue-1&state=cancelled", f"since={week}&until={day}&state=failed")
    together += (
        "region=north&task=missing",
        "task=task-3&tag=popular",
        "queue=queue-1&tag=popular",
        "key=missing&state=failed",
        "late=1m&took=1d",
    )
    filters = [f"{name}={value}" for name, values in alone for value in values] + list(together)
    for path in ("/v1/runs", "/v1/runs:count"):
        yield path
        yield from (f"{path}?{words}" for words in filters)
    yield from (f"/v1/runs?id={run_id[-8:]}", "/v1/runs?id=ZZZZZZZZ")
    yield from (
        "/v1/runs?fields=row&limit=200",
        "/v1/dead-letters",
        "/v1/dead-letters?job=missing",
        "/v1/dead-letters?tag=rare",
    )
    yield from (
        "/v1/jobs?last=true&recent=20",
        "/v1/jobs?sort=last",
        "/v1/jobs?task=missing",
        "/v1/jobs?q=ob-7",
        "/v1/jobs?tag=missing",
    )
    job = "/v1/jobs/job-4"
    yield from (
        job,
        f"{job}/firings",
        f"{job}/runs",
        f"{job}/ledger?since={week}",
        f"{job}/ledger?since={week}&outcome=missed",
    )
    yield from (f"{job}/versions", f"{job}/relations", f"/v1/runs/{run_id}", f"/v1/runs/{run_id}/attempts")
    yield from (f"/v1/runs/{run_id}/logs", f"/v1/runs/{run_id}/relations", f"/v1/runs/{run_id}/events")
    yield from (f"/v1/facets?of={of}" for of in ("app", "job", "queue", "region", "tag", "task", "worker"))
    yield from (
        "/v1/facets?of=task&prefix=missing",
        "/v1/facets?of=tag&prefix=missing",
        f"/v1/timeline?since={week}&until={day}",
    )
    yield from ("/v1/tasks", "/v1/queues", "/v1/gates", "/v1/workers", "/v1/regions", "/v1/overview")
    yield from (f"/v1/tallies?since={week}", f"/v1/service-levels?since={week}", "/v1/errors", "/v1/errors?limit=5")
    yield from (
        f"/v1/ledger?since={day}&bucket=1h",
        "/v1/terms",
        "/v1/cluster",
        "/v1/events:page",
        "/v1/events:page?job=missing",
    )
    yield from (
        "/v1/audit",
        "/v1/audit?subject=missing",
        "/v1/audit?target=missing",
        "/v1/audit?action=missing",
        "/metrics",
    )


class Asked(NamedTuple):
    """What came of a question."""

    question: str
    took_ms: list[float]
    cpu_ms: float
    """Processor time of the database, for each time that it was asked. Unlike the time, it does not depend on what
    else the machine does."""
    status: int
    size: int


class Asker:
    """Asks the server, and watches what answers cost."""

    def __init__(self, client: httpx.Client, url: str) -> None:
        self._client = client
        self._connection = psycopg.connect(url, autocommit=True)

    def ask(self, question: str) -> Asked:
        """Ask often enough that caches are warm, and plans settled."""
        took, before = [], self._cpu_ns()
        for _ in range(TIMES):
            began = time.perf_counter()
            answer = self._client.get(question)
            took.append((time.perf_counter() - began) * 1e3)
        cpu_ms = (self._cpu_ns() - before) / TIMES / 1e6
        return Asked(question, took, cpu_ms, answer.status_code, len(answer.content))

    def _cpu_ns(self) -> int:
        """Of all processes of the database but the one that asks here."""
        query = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
        total = 0
        for (pid,) in self._connection.execute(query).fetchall():
            with suppress(OSError):
                total += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0])
        return total


def token_for(app: Mainspring) -> str:
    """A token that may read everything, in both namespaces."""
    keys = load_keys(app.settings)
    assert keys is not None
    return issue(keys, app.settings, subject="bench", roles={"*": ["admin"]}, lifetime=HOUR * 3, now=app.clock.now())[0]


def report(rows: Sequence[Asked], every: bool) -> None:
    """A line for each question that is not answered in time, or for each."""
    slow = [row for row in rows if median(row.took_ms) > BUDGET_MS]
    print("| question | median | best | CPU of the database | status | bytes |\n|---|---|---|---|---|---|")
    for row in sorted(rows if every else slow, key=lambda row: -row.cpu_ms):
        times = " | ".join(f"{value:.1f} ms" for value in (median(row.took_ms), min(row.took_ms), row.cpu_ms))
        print(f"| `{row.question}` | {times} | {row.status} | {row.size} |")
    costly, load = sum(row.cpu_ms > BUDGET_MS for row in rows), os.getloadavg()[0]
    print(f"\n{len(rows)} questions at load {load:.1f}: {len(slow)} took more than {BUDGET_MS:g} ms (median),")
    print(f"{costly} cost the database more than that")


def interrogate(url: str) -> list[Asked]:
    """Ask a server process everything, also in a namespace without runs."""
    with psycopg.connect(url) as connection:
        oldest = connection.execute("SELECT min(id) FROM mainspring.history WHERE namespace = 'default'").fetchone()
    assert oldest is not None
    with served("bench.api.ours", url) as port:
        headers = {"Authorization": f"Bearer {token_for(app_on(url, port))}"}
        with httpx.Client(base_url=f"http://{HOST}:{port}", headers=headers, timeout=60) as client:
            asker = Asker(client, url)
            rows = [asker.ask(question) for question in questions(oldest[0])]
            client.headers["Mainspring-Namespace"] = "nobody"
            empty = ("/v1/runs", "/v1/runs:count", "/v1/runs?state=failed", "/v1/runs?task=task-3", "/v1/runs?tag=rare")
            return rows + [asker.ask(question) for question in empty]


def main() -> None:
    """Fill, ask, print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", required=True)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--every", action="store_true", help="print each question, not only the slow ones")
    chosen = parser.parse_args()
    with a_store(chosen.store) as url:
        fill(url, chosen.runs)
        report(interrogate(url), chosen.every)


if __name__ == "__main__":
    main()
