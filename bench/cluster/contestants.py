"""The contestants on PostgreSQL, where each keeps its work, and how to ask its store what is left."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from bench.harness.running import ROOT


@dataclass(frozen=True)
class Contestant:
    """A program to measure."""

    label: str
    name: str
    """Of its environment and its requirements."""
    module: str = ""
    """Of `bench.peers`."""
    package: str = ""
    """What it is called where it comes from."""
    unfinished: str = ""
    """Counts what its tables still have of a backlog; nothing on Redis, where a run that has begun is all there is."""
    spawn: int = 2
    """How many times its command is started for two worker processes."""
    bulk: bool = False
    count: int = 20_000
    """Of a backlog: about ten seconds of work."""
    across: bool = True
    """Whether a process that works notices what another submits."""

    @property
    def python(self) -> Path:
        """The interpreter of its environment."""
        return environment(self.name) / "bin" / "python" if self.module else Path(sys.executable)

    @property
    def program(self) -> list[str]:
        """What takes the name of a measure and its parameters."""
        named = ["bench.peers", self.module] if self.module else ["bench.ours.cluster"]
        return [str(self.python), "-m", *named]

    @property
    def on_postgres(self) -> bool:
        """Or on Redis."""
        return bool(self.unfinished)


def environment(name: str) -> Path:
    """The folder of a peer's virtualenv."""
    return ROOT / "bench" / f".venv-{name}"


MAINSPRING = Contestant(
    label="Mainspring",
    name="mainspring",
    unfinished="SELECT count(*) FROM mainspring.runs",
    bulk=True,
    count=100_000,
)
PGQUEUER = Contestant(
    label="PgQueuer",
    name="pgqueuer",
    module="with_pgqueuer",
    package="pgqueuer",
    unfinished="SELECT count(*) FROM pgqueuer",
    bulk=True,
    count=100_000,
)
PROCRASTINATE = Contestant(
    label="Procrastinate",
    name="procrastinate",
    module="with_procrastinate",
    package="procrastinate",
    unfinished="SELECT count(*) FROM procrastinate_jobs WHERE status IN ('todo', 'doing')",
    bulk=True,
    count=5_000,
)
CHANCY = Contestant(
    label="Chancy",
    name="chancy",
    module="with_chancy",
    package="chancy",
    unfinished="SELECT count(*) FROM chancy_jobs WHERE state NOT IN ('succeeded', 'failed')",
    bulk=True,
    count=15_000,
)
APSCHEDULER = Contestant(
    label="APScheduler 3",
    name="apscheduler",
    module="with_apscheduler_postgres",
    package="APScheduler",
    unfinished="SELECT count(*) FROM apscheduler_jobs",
    spawn=1,
    count=5_000,
    across=False,
)
APSCHEDULER_4 = Contestant(
    label="APScheduler 4",
    name="apscheduler4",
    module="with_apscheduler4",
    package="APScheduler",
    unfinished="SELECT count(*) FROM jobs",
    count=1_000,
)
DRAMATIQ = Contestant(label="Dramatiq", name="dramatiq", module="with_dramatiq", package="dramatiq", spawn=1)
TASKIQ = Contestant(label="Taskiq", name="taskiq", module="with_taskiq", package="taskiq", spawn=1)
HUEY = Contestant(label="Huey", name="huey", module="with_huey_redis", package="huey", spawn=1)
ARQ = Contestant(label="arq", name="arq", module="with_arq", package="arq", count=8_000)
CELERY = Contestant(label="Celery", name="celery", module="with_celery", package="celery", spawn=1, count=6_000)
RQ = Contestant(label="RQ", name="rq", module="with_rq", package="rq", bulk=True, count=5_000)
EVERY_PEER = (PGQUEUER, CHANCY, PROCRASTINATE, APSCHEDULER, APSCHEDULER_4, DRAMATIQ, TASKIQ, HUEY, ARQ, CELERY, RQ)
