"""The servers of a benchmark: a PostgreSQL that syncs each commit and a Redis that syncs its log every second, by
`scripts/services`, in a folder of their own; stopped at the end."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import psycopg

from bench.harness.running import ROOT, Failed

SCRIPT = ROOT / "scripts" / "services"
LIMIT_S = 300
STATEMENTS = "pg_stat_statements"
CONNECTIONS = "1000"
"""Sixty workers have some four connections each."""


class Servers(NamedTuple):
    """Where they are."""

    postgres: str
    redis: str

    def database(self, name: str) -> str:
        """The URL of a database."""
        return f"{self.postgres}/{name}"

    def execute(self, *statements: str, name: str = "postgres") -> None:
        """Statements to a database of the server, each by itself."""
        with psycopg.connect(self.database(name), autocommit=True) as connection:
            for statement in statements:
                connection.execute(statement)

    def fetch(self, query: str, name: str = "postgres") -> Any:
        """The only value that a query of a database gives."""
        with psycopg.connect(self.database(name), autocommit=True) as connection:
            row = connection.execute(query).fetchone()
        return None if row is None else row[0]

    def redis_says(self, *command: str) -> str:
        """The answer of Redis."""
        asked = ["redis-cli", "-u", self.redis, *command]
        return subprocess.run(asked, capture_output=True, text=True, timeout=60, check=True).stdout.strip()

    def facts(self) -> dict[str, str]:
        """Their versions, and how durable they are."""
        synced = f"fsync {self.fetch('SHOW fsync')}, synchronous_commit {self.fetch('SHOW synchronous_commit')}"
        redis = dict(line.split(":", 1) for line in self.redis_says("INFO", "server").splitlines() if ":" in line)
        logged = self.redis_says("CONFIG", "GET", "appendfsync").splitlines()[-1]
        return {
            "PostgreSQL": f"{self.fetch('SHOW server_version')}, {synced}",
            "Redis": f"{redis['redis_version'].strip()}, appendonly, appendfsync {logged}",
        }


def services(folder: Path, *what: str) -> None:
    """Call `scripts/services` on servers with their data in this folder; Failed with what it says last."""
    own = {"MAINSPRING_SERVICES_FSYNC": "on", "MAINSPRING_SERVICES_CONNECTIONS": CONNECTIONS}
    environment = os.environ | {"MAINSPRING_SERVICES": str(folder), **own}
    ended = subprocess.run(
        [SCRIPT, *what], env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    if ended.returncode:
        raise Failed((ended.stderr.strip().splitlines() or [f"scripts/services {' '.join(what)} failed"])[-1])


@contextmanager
def serving(folder: Path) -> Iterator[Servers]:
    """Servers with their data in this folder, which goes away with them."""
    folder.mkdir(parents=True, exist_ok=True)
    try:
        services(folder, "start", "postgres", "redis")
        lines = (folder / "urls").read_text().splitlines()
        urls = dict(line.split("=", 1) for line in lines)
        yield Servers(urls["MAINSPRING_TEST_POSTGRES"], urls["MAINSPRING_TEST_REDIS"])
    finally:
        services(folder, "stop")
        shutil.rmtree(folder, ignore_errors=True)
