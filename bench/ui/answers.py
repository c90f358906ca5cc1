"""The API beside a million runs: `python -m bench.ui.answers [--store URL] [--runs N] [--jobs N] [--times N]`

Fills a store (a SQLite file, or a database on the PostgreSQL server of `--store`) by SQL with a month of finished runs,
their tallies, and jobs, starts `mainspring up` on it, and prints how long the answers that pages wait for take.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta

import httpx
import msgspec

from bench.api.serving import HOST, a_store, free_port
from bench.harness.figures import percentile
from bench.ui.__main__ import TESTS, await_answer, cpu_s, running
from mainspring import Mainspring, cron
from mainspring.core.ids import encode_time
from mainspring.core.instants import DAY, HOUR, Instant
from mainspring.core.runs.tallies import PERIODS, Tally
from mainspring.core.states import SUCCEEDED
from mainspring.stores.postgres.history.days import day_of
from mainspring.stores.postgres.history.partitions import partition_name
from mainspring.stores.sqlite.ends.recovery import SUMMED_UP_AT_ONCE

DAYS = 30
TASKS = 20
KEPT = "400d"
"""Nothing that was filled in is cleaned away."""
_NAMES = (
    "id, finished_at, namespace, queue, region, task, args, options, state, reason, priority, due_at, started_at, idx, "
    "key, token, attempt, losses, cancel_reason, progress_note, job_id, job, created_at"
)
_VALUES = """{id}, {at}, 'default', CASE WHEN n % 10 = 0 THEN 'gpu' ELSE 'default' END,
  CASE WHEN n % 50 = 0 THEN 'eu' ELSE 'default' END, 'task-' || (n % 20), '{{"video":"v1"}}',
  CASE n % 4 WHEN 0 THEN '{{"tags":["nightly"]}}' WHEN 1 THEN '{{"submitted_by":"service"}}' ELSE '{{}}' END,
  CASE WHEN n % 100 = 0 THEN 'failed' ELSE 'succeeded' END, '', 5, {at} - 120000000,
  CASE WHEN n % 1000 = 0 THEN {at} ELSE {at} - 119000000 END, 0, CASE WHEN n % 200 = 0 THEN 'key-' || (n % 7) END, 1, 1,
  0, '', '', CASE WHEN n % 2 = 0 THEN 'job-' || (n % 100) END, CASE WHEN n % 2 = 0 THEN 'job-' || (n % 100) END, {at}"""
_SQLITE = "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers WHERE n < {count}) "
LISTS = {
    "all": {},
    "state": {"state": "failed"},
    "state that no run has": {"state": "skipped"},
    "job": {"job": "job-4"},
    "task": {"task": "task-3"},
    "queue": {"queue": "gpu"},
    "tag": {"tag": "nightly"},
    "region": {"region": "eu"},
    "key": {"key": "key-3"},
    "submitter": {"submitted_by": "service"},
    "late": {"late": "1m"},
    "took": {"took": "1m"},
    "job that is unknown": {"job": "missing"},
    "submitter that is unknown": {"submitted_by": "missing"},
}


def parts(runs: int, now: Instant) -> Iterator[tuple[Instant, int]]:
    """The hours of a month that has just ended, and how many runs ended in each."""
    hours = DAYS * 24
    for number in range(hours):
        yield now - (hours - number) * HOUR, runs // hours + (number < runs % hours)


def tallied(now: Instant) -> Iterator[tuple[str, str, Instant, str, str]]:
    """What the loop that keeps tallies would have written."""
    counts = msgspec.json.encode(Tally({SUCCEEDED: 120}, {3: 100, 9: 20}, {14: 120})).decode()
    for number in range(DAYS * DAY // PERIODS["all"]):
        yield "default", "all", now - number * PERIODS["all"], "", counts
    for number in range(DAYS * DAY // PERIODS["task"]):
        for task in range(TASKS):
            yield "default", "task", now - number * PERIODS["task"], f"task-{task}", counts


def fill_sqlite(url: str, runs: int, now: Instant) -> None:
    """A month of finished runs in a file."""
    with closing(sqlite3.connect(url.removeprefix("sqlite:///"))) as connection, connection:
        for at, count in parts(runs, now):
            name = f"'{encode_time(at)}' || printf('%016d', n)"
            values = _VALUES.format(id=name, at=at)
            connection.execute(
                f"{_SQLITE.format(count=count)} INSERT INTO history ({_NAMES}) SELECT {values} FROM numbers"
            )
        connection.executemany("INSERT OR REPLACE INTO period_tallies VALUES (?, ?, ?, ?, ?)", tallied(now))


def fill_postgres(url: str, runs: int, now: Instant) -> None:
    """The same in a database."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("SET synchronous_commit = off")
        for day in range(day_of(now) - DAYS * DAY, day_of(now), DAY):
            for table in ("history", "history_tags"):
                name, bounds = partition_name(table, day), f"FROM ({day}) TO ({day + DAY})"
                statement = f"CREATE TABLE mainspring.{name} PARTITION OF mainspring.{table} FOR VALUES {bounds}"
                connection.execute(statement.encode())
        for at, count in parts(runs, now):
            values = _VALUES.format(id=f"'{encode_time(at)}' || lpad(n::text, 16, '0')", at=at)
            rows = f"SELECT {values}, 'succeeded' FROM generate_series(1, {count}) AS n"
            connection.execute(f"INSERT INTO mainspring.history ({_NAMES}, outcome) {rows}".encode())
        with connection.cursor() as cursor, cursor.copy("COPY mainspring.period_tallies FROM STDIN") as copy:
            for row in tallied(now):
                copy.write_row(row)
        connection.execute("VACUUM ANALYZE")


async def prepare(url: str, jobs: int, runs: int) -> None:
    """The schema, jobs, runs; and what the cleaner adds up of these."""
    app = Mainspring(url, name="many")

    @app.task(name="nothing")
    async def nothing() -> None: ...

    for number in range(jobs):
        app.job(cron(f"{number % 60} {number // 60 % 24} * * *"), name=f"job-{number}")(nothing)
    await app.sync_jobs()
    store = await app.open()
    is_file = url.startswith("sqlite")
    await asyncio.to_thread(fill_sqlite if is_file else fill_postgres, url, runs, store.now() // HOUR * HOUR)
    for _ in range(runs // SUMMED_UP_AT_ONCE + 1 if is_file else 1):
        await store.clean(400 * DAY, 400 * DAY, 400 * DAY, 1_000)
    await app.close()


@contextmanager
def serving(store: str) -> Iterator[tuple[httpx.Client, int]]:
    """A server on a store: a client, and its process."""
    port = free_port()
    words = [
        sys.executable,
        "-m",
        "mainspring",
        "up",
        str(TESTS / "company.py"),
        "--queue",
        "none",
        "--undeclared",
        "report",
    ]
    settings = {"MAINSPRING_STORE": store, "MAINSPRING_PORT": str(port), "MAINSPRING_QUERY_RATE": "1000000"}
    kept = {"MAINSPRING_KEEP_RUNS": KEPT, "MAINSPRING_KEEP_FIRINGS": KEPT, "MAINSPRING_JOB_RATE": "1000000"}
    with running(words, {**os.environ, **settings, **kept}) as process:
        await_answer(f"http://{HOST}:{port}/health/ready", process)
        with httpx.Client(base_url=f"http://{HOST}:{port}", timeout=120) as client:
            yield client, process.pid


class Clerk:
    """Asks the server the same question many times, and prints how long the answers took."""

    def __init__(self, client: httpx.Client, pid: int, times: int) -> None:
        self.client, self._pid, self._times = client, pid, times
        print(f"{'ms':<40} {'p50':>9} {'p95':>9} {'server':>9} {'budget':>8}")

    def show(
        self,
        name: str,
        budget_ms: float,
        path: str,
        *,
        between: Callable[[], object] | None = None,
        body: dict[str, object] | None = None,
        **query: str | int | None,
    ) -> None:
        """One line of the table. The processor time of the server says more than the clock on a busy machine; that of
        PostgreSQL is not in it."""
        took, used = list[float](), 0.0
        for _ in range(self._times if between is None else max(self._times // 5, 3)):
            if between is not None:
                between()
            cpu, began = cpu_s(self._pid), time.perf_counter()
            answer = self.client.get(path, params=query) if body is None else self.client.post(path, json=body)
            took.append((time.perf_counter() - began) * 1_000)
            used += cpu_s(self._pid) - cpu
            answer.raise_for_status()
        p50, p95, own = percentile(took, 0.5), percentile(took, 0.95), used / len(took) * 1_000
        verdict = "" if p95 <= budget_ms else "beyond"
        print(f"{name:<40} {p50:>9.1f} {p95:>9.1f} {own:>9.1f} {budget_ms:>8.0f}  {verdict}", flush=True)


def measure(clerk: Clerk) -> None:
    """Every answer, with what it may take."""
    clerk.show("overview, in new sessions", 20, "/v1/overview", between=lambda: time.sleep(1.05))
    clerk.show("overview, computed", 20, "/v1/overview", between=lambda: time.sleep(1.05))
    clerk.show("overview, shared", 20, "/v1/overview")
    for name, words in LISTS.items():
        clerk.show(f"runs: {name}", 50, "/v1/runs", fields="row", limit=100, **words)
        clerk.show(f"count: {name}", 50, "/v1/runs:count", **words)
    now = datetime.now(UTC)
    for days, bucket in ((1, "1h"), (7, "1d")):
        clerk.show(f"tallies: {days} d", 50, "/v1/tallies", since=before(now, days * 24), bucket=bucket, whole=True)
    clerk.show("tallies: a task, 30 d", 50, "/v1/tallies", since=before(now, 720), bucket="1d", task="task-3")
    draft = {"name": "draft", "task": "exact", "schedule": "30 2 * * *", "timezone": "Europe/Berlin"}
    clerk.show("preview", 100, "/v1/jobs:preview", body={**draft})
    numbers = iter(range(1_000_000))

    def edit() -> None:
        body = {"name": f"new-{next(numbers)}", "task": "exact", "args": {"number": 1}, "schedule": "30 2 * * *"}
        clerk.client.post("/v1/jobs", json=body).raise_for_status()

    clerk.show("load, cold", 2_000, "/v1/load", between=edit)
    clerk.show("load, kept", 20, "/v1/load")
    clerk.show("jobs, by name", 50, "/v1/jobs", fields="row", recent=30)
    clerk.show("jobs, by next", 50, "/v1/jobs", fields="row", sort="next")
    clerk.show("timeline: 6 h", 500, "/v1/timeline", since=before(now, 6))


def before(now: datetime, hours: int) -> str:
    """An instant as text."""
    return (now - timedelta(hours=hours)).isoformat()


def main() -> int:
    """The exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.ui.answers", description="Answers beside a million runs.")
    parser.add_argument("--store", help="a PostgreSQL server, such as postgresql://user:word@host:port; else a file")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--times", type=int, default=100, help="of each question")
    arguments = parser.parse_args()
    with a_store(arguments.store) as store:
        began = time.monotonic()
        asyncio.run(prepare(store, arguments.jobs, arguments.runs))
        kind = "SQLite" if arguments.store is None else "PostgreSQL"
        print(f"{kind}: {arguments.runs} runs and {arguments.jobs} jobs, filled in {time.monotonic() - began:.0f} s")
        with serving(store) as (client, pid):
            measure(Clerk(client, pid, arguments.times))
    return 0


if __name__ == "__main__":
    sys.exit(main())
