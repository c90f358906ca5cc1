"""Backup and restore of a million finished runs and 100,000 jobs: `python -m bench.operations.backups [--store URL]`

First a SQLite file; then the PostgreSQL server that `--store` names, such as `postgresql://me@localhost`: databases are
made there and dropped, and `pg_dump` and `pg_restore` are timed beside. The payload of a run is 200 bytes.
`--runs 50000 --jobs 5000` takes half a minute.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import sqlite3
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

from mainspring.clock import SystemClock
from mainspring.ops.backup import backups
from mainspring.settings import Settings
from mainspring.wiring import open_store

_COLUMNS = """(id, finished_at, namespace, queue, region, task, args, options, state, {outcome} reason, priority,
  due_at, idx, token, attempt, losses, cancel_reason, progress_note, created_at)"""
_VALUES = """{now} + n, 'default', 'default', 'default', 'encode', {args}, '{{}}', 'succeeded', {outcome} '', 5, {now},
  0, 1, 1, 0, '', '', {now}"""
_JOB = """ (id, name, task, "trigger", next_fire_at, created_at, updated_at {changed})
  SELECT 'job-' || n, 'job-' || n, 'encode', '{{"kind":"manual"}}', {now} + n, {now}, {now} {number} FROM """
_SERIES = "(WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < {count}) SELECT n FROM s)"


def statements(dialect: str, runs: int, jobs: int) -> list[str]:
    """What fills a store."""
    now = SystemClock().now()
    if dialect == "postgres":
        video = " || ".join(f"md5('{number}-' || n)" for number in range(6))  # As random as that of SQLite.
        args = f"json_build_object('video', {video})::text"
        series, prefix = "generate_series(1, {count}) AS n", "mainspring."
        identity, column, outcome = "'run' || lpad(n::text, 23, '0')", "outcome,", "'succeeded',"
        changed, number = "", ""
    else:
        args = "json_object('video', hex(randomblob(96)))"
        series, prefix = _SERIES, ""
        identity, column, outcome = "printf('run%023d', n)", "", ""
        changed, number = ", changed", ", n"
    values, columns = _VALUES.format(now=now, args=args, outcome=outcome), _COLUMNS.format(outcome=column)
    return [
        f"INSERT INTO {prefix}history {columns} SELECT {identity}, {values} FROM {series.format(count=runs)}",
        f"INSERT INTO {prefix}jobs" + _JOB.format(now=now, changed=changed, number=number) + series.format(count=jobs),
    ]


def timed(name: str, runs: int, work: Callable[[], object]) -> None:
    """Print how long it takes, and the rate."""
    began = time.perf_counter()
    work()
    took_s = time.perf_counter() - began
    print(f"| {name} | {took_s:.1f} s, {runs / took_s:,.0f} runs/s |", flush=True)


@contextmanager
def databases(server: str) -> Iterator[list[str]]:
    """Three empty databases of a server: the store, the restored one, and that of `pg_restore`."""
    import psycopg

    base, names = server.rstrip("/"), [f"bench_backup_{uuid4().hex[:8]}" for _ in range(3)]
    with psycopg.connect(f"{base}/postgres", autocommit=True) as connection:
        for name in names:
            connection.execute(f"CREATE DATABASE {name}")
        try:
            yield [f"{base}/{name}" for name in names]
        finally:
            for name in names:
                connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


def prepare(url: str) -> None:
    """Make the schema."""
    import asyncio

    store = open_store(url, Settings(store=url), SystemClock())
    asyncio.run(store.close())


def play(url: str, restored: str, folder: Path, runs: int) -> None:
    """Back up, verify and restore. The memory is the most that this process had until then."""
    timed("backup create", runs, lambda: backups.create(Settings(store=url), folder, SystemClock()))
    backup = backups.find(folder, None)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    print(f"| backup size | {size / 1e6:.0f} MB |")
    timed("backup verify", runs, lambda: backups.verify(backup))
    timed("backup restore", runs, lambda: backups.restore(backup, Settings(store=restored), SystemClock()))
    print(f"| peak memory | {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3:.0f} MB |")


def on_postgres(server: str, runs: int, jobs: int, folder: Path) -> None:
    """Beside `pg_dump` in its compressed format."""
    import psycopg

    with databases(server) as (url, restored, other):
        prepare(url)
        with psycopg.connect(url, autocommit=True) as connection:
            filling = [statement.encode() for statement in statements("postgres", runs, jobs)]
            timed("filled in", runs, lambda: [connection.execute(statement) for statement in filling])
            row = connection.execute("SELECT pg_database_size(current_database())").fetchone()
        print(f"| database | {row[0] / 1e6 if row else 0:.0f} MB |")
        play(url, restored, folder / "backups", runs)
        dump = folder / "dump"
        timed("pg_dump -Fc", runs, lambda: subprocess.run(["pg_dump", "-Fc", "-f", str(dump), url], check=True))
        print(f"| its size | {dump.stat().st_size / 1e6:.0f} MB |")
        timed("pg_restore", runs, lambda: subprocess.run(["pg_restore", "-d", other, str(dump)], check=True))


def on_sqlite(runs: int, jobs: int, folder: Path) -> None:
    """Beside a copy of the file."""
    file = folder / "store.db"
    prepare(f"sqlite:///{file}")
    with sqlite3.connect(file) as connection:
        filling = statements("sqlite", runs, jobs)
        timed("filled in", runs, lambda: [connection.execute(statement) for statement in filling])
    connection.close()
    print(f"| database | {file.stat().st_size / 1e6:.0f} MB |")
    play(f"sqlite:///{file}", f"sqlite:///{folder}/restored.db", folder / "backups", runs)
    timed("cp", runs, lambda: shutil.copyfile(file, folder / "copy.db"))


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--store", help="a PostgreSQL server, after the SQLite file")
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--jobs", type=int, default=100_000)
    asked = parser.parse_args()
    load = os.getloadavg()[0]
    print(f"{asked.runs:,} runs, {asked.jobs:,} jobs, {os.cpu_count()} processors, load {load:.1f}")
    with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
        print("\n| SQLite | figure |\n|---|---|")
        on_sqlite(asked.runs, asked.jobs, Path(folder))
    if asked.store:
        with tempfile.TemporaryDirectory(dir=Path.cwd()) as folder:
            print("\n| PostgreSQL | figure |\n|---|---|")
            on_postgres(asked.store, asked.runs, asked.jobs, Path(folder))


if __name__ == "__main__":
    main()
