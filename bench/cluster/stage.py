"""A contestant's stage: an empty database or an empty Redis, a slate, its programs; nothing of it is left behind."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.cluster.contestants import Contestant
from bench.cluster.servers import Servers
from bench.harness.running import ROOT, Failed, answer_of, end, scratch_folder
from bench.harness.script import Answer, Params
from bench.harness.slate import VARIABLE, Slate

DATABASE = "bench"
LOOK_S = 0.005
LIMIT_S = 110
PATIENCE_S = 30


class Stage:
    """What one measure of one contestant needs."""

    def __init__(
        self, contestant: Contestant, servers: Servers, folder: Path, slots: int, environment: Mapping[str, str]
    ) -> None:
        self.contestant = contestant
        self.servers = servers
        self.folder = folder
        self.workers: list[subprocess.Popen[str]] = []
        self.slate = Slate.create(folder / "slate", slots)
        self.environment = os.environ | {
            "BENCH_POSTGRES": servers.database(DATABASE),
            "BENCH_REDIS": servers.redis,
            VARIABLE: str(folder / "slate"),
            "PYTHONPATH": str(ROOT),
            **environment,
        }

    def command(self, measure: str, params: Params) -> list[str]:
        """How to start a program of the contestant."""
        text = json.dumps({"limit_s": LIMIT_S} | params)
        return [*self.contestant.program, measure, text]

    def ask(self, measure: str, params: Params | None = None, limit_s: int = LIMIT_S) -> Answer:
        """What a program answers, when it has ended."""
        return answer_of(self.command(measure, (params or {}) | {"limit_s": limit_s}), limit_s, self.environment)

    @contextmanager
    def started(self, commands: list[list[str]], log_name: str = "log") -> Iterator[list[subprocess.Popen[str]]]:
        """Programs that go on until this is left; what they say goes to a file, since it is not read meanwhile."""
        with ExitStack() as stack:
            processes = []
            for number, command in enumerate(commands):
                log = stack.enter_context((self.folder / f"{log_name}-{number}").open("w"))
                process = subprocess.Popen(
                    command, cwd=self.folder, env=self.environment, start_new_session=True, text=True,
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                )  # fmt: skip
                stack.callback(end, process)
                processes.append(process)
            yield processes

    @contextmanager
    def working(self, processes: int | None = None, limit_s: int = LIMIT_S) -> Iterator[None]:
        """Its two worker processes."""
        count = self.contestant.spawn if processes is None else processes
        with self.started([self.command("work", {"limit_s": limit_s})] * count) as self.workers:
            yield

    def wait(self, done: Callable[[], bool], limit_s: float, what: str) -> None:
        """Wait for a condition, while the workers live."""
        ends_at = time.monotonic() + limit_s
        while not done():
            if any(worker.poll() is not None for worker in self.workers):
                raise Failed(f"a worker ended: {self._last_words()}")
            if time.monotonic() > ends_at:
                raise Failed(f"{what} not done within {limit_s:.0f} s: {self.slate.ran():,} of {self.slate.size:,} ran")
            time.sleep(LOOK_S)

    def _last_words(self) -> str:
        logs = [(self.folder / f"log-{number}").read_text().strip() for number in range(len(self.workers))]
        return next((log.splitlines()[-1] for log in logs if log), "without a word")

    def warm_up(self, count: int) -> None:
        """Workers that have been at work have been started, and know how long their runs are."""
        self.ask("fill", {"count": count, "batch": count})
        self.wait(lambda: self.slate.ran(0, count) == count and self.unfinished() == 0, PATIENCE_S, "warming up was")
        self.slate.clear()

    def unfinished(self) -> int:
        """What its tables still have."""
        return int(self.servers.fetch(self.contestant.unfinished, DATABASE)) if self.contestant.on_postgres else 0

    def settle(self) -> None:
        """What was written before does not count: let the servers finish writing it, and do what autovacuum would do
        within a minute."""
        if self.contestant.on_postgres:
            self.servers.execute("VACUUM ANALYZE", "CHECKPOINT", name=DATABASE)


@contextmanager
def set_stage(
    contestant: Contestant,
    servers: Servers,
    parent: Path,
    slots: int = 1,
    environment: Mapping[str, str] | None = None,
) -> Iterator[Stage]:
    """An empty store with the contestant's tables in it. `environment` adds variables to that of its programs."""
    with scratch_folder(parent) as folder:
        if contestant.on_postgres:
            servers.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)", f"CREATE DATABASE {DATABASE}")
        else:
            servers.redis_says("FLUSHALL")
        try:
            stage = Stage(contestant, servers, folder, slots, environment or {})
            stage.ask("prepare")
            yield stage
        finally:
            if contestant.on_postgres:
                servers.execute(f"DROP DATABASE IF EXISTS {DATABASE} WITH (FORCE)")
            else:
                servers.redis_says("FLUSHALL")
